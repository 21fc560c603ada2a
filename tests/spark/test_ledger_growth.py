"""What stays in the ledger for good, and that nothing that went makes a replay look new (ADR 0012)."""

import random
from collections import Counter
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.spark.errors import InDoubtError, SlotsLostError
from ottla.spark.ids import driver_id, slot_id
from ottla.spark.ledger import (
    UNNAMED,
    BatchKey,
    Decision,
    Done,
    Forgotten,
    Handle,
    Ledger,
    LedgerRecord,
    Leftover,
    Plan,
    QueryPast,
    SlotDecision,
    SlotMarker,
    encode,
)
from ottla.spark.protocol import Claim, SlotReport, SlotTask, claim_sink, commit_batch, slot_task, unnamed_batch
from ottla.spark.requests import Append, AppendInTransaction
from tests.spark.kafka_model import ModelKafka, Produce, answered
from tests.spark.spark_model import SLOTS, World, rows_of

BATCHES = 2
QUERIES = ("q", "r", "t")
CHOICES = st.lists(st.integers(0, 9_999), min_size=40, max_size=200)
#: Of the query that decided last: a decision, a done, and a marker for each slot with rows.
OF_THE_LAST = 2 + SLOTS


def finish(world: World, queries: tuple[str, ...]) -> None:
    """Run every query to its end. One that stops in doubt for another one's half committed batch is started again."""
    left = list(queries)
    for query in 2 * queries:
        if query in left:
            world.switch(query)
            failed = world.calm_down().failed
            assert failed is None or isinstance(failed, InDoubtError)
            if failed is None:
                left.remove(query)
    assert left == []


def rows_until(query: str, batches: int) -> list[str]:
    slots = [(batch, slot) for batch in range(batches) for slot in range(SLOTS)]
    return [row for batch, slot in slots for row in rows_of(batch, slot, 0, 0, query)]


def expected(queries: tuple[str, ...]) -> Counter[str]:
    return Counter(row for query in queries for row in rows_until(query, BATCHES))


@settings(max_examples=400, deadline=None)
@given(
    choices=CHOICES,
    switches=st.dictionaries(st.integers(0, 200), st.sampled_from(QUERIES), max_size=6),
    second_protocol=st.booleans(),
    former=st.booleans(),
)
def test_s2_a_replay_is_known_whatever_queries_wrote_in_between_and_whatever_was_compacted(
    choices: list[int], switches: dict[int, str], second_protocol: bool, former: bool
) -> None:
    world = World(BATCHES, second_protocol=second_protocol, variants=cycle([0]), former=former, compacting=True)
    for at, choice in enumerate(choices):
        if at in switches:
            world.switch(switches[at])
            if world.former:
                world.upgrade()
        world.act(choice)
    if world.former:
        world.upgrade()
    finish(world, QUERIES)
    assert Counter(world.kafka.output) == expected(QUERIES)
    while world.on_the_wire:  # the dead are heard of for the last time
        world.deliver(world.on_the_wire[0])
        for name in world.kafka.prepared():
            world.kafka.write_markers(name)
    for query in QUERIES:  # Spark's commit log has lost its last file
        world.switch(query)
        world.commits.discard(BATCHES - 1)
    finish(world, QUERIES)
    assert Counter(world.kafka.output) == expected(QUERIES)


@settings(deadline=None)
@given(
    turns=st.lists(st.tuples(st.sampled_from(QUERIES), st.integers(0, 40)), max_size=8),
    second_protocol=st.booleans(),
    compacting=st.booleans(),
)
def test_s2_a_replay_is_known_when_queries_take_turns_batch_by_batch(
    turns: list[tuple[str, int]], second_protocol: bool, compacting: bool
) -> None:
    world = World(0, second_protocol=second_protocol, variants=cycle([0]), compacting=compacting)
    batches = Counter[str]()
    for query, rounds in turns:
        batches[query] += 1
        world.batches = batches[query]
        world.switch(query)
        world.start_driver()
        for _ in range(rounds):  # then this driver is killed, and another one takes over
            for process in [p for p in world.drivers + world.tasks if p.alive]:
                world.step(process)
            for name in world.kafka.prepared():
                world.kafka.write_markers(name)
        assert world.calm_down().failed is None
    written = Counter(
        row
        for query in batches
        for b in range(batches[query])
        for s in range(SLOTS)
        for row in rows_of(b, s, 0, 0, query)
    )
    assert Counter(world.kafka.output) == written
    for query in batches:  # Spark's commit log has lost its last file
        world.batches = batches[query]
        world.switch(query)
        world.commits.discard(batches[query] - 1)
        assert world.calm_down().failed is None
    assert Counter(world.kafka.output) == written


def test_s2_of_a_query_that_was_followed_by_others_one_small_record_stays() -> None:
    world = World(BATCHES, second_protocol=True, variants=cycle([0]))
    for number in range(12):
        world.switch(f"query {number}")
        assert world.calm_down().failed is None
        assert len(world.kafka.live_keys()) <= number + OF_THE_LAST
    plan = Plan("offsets 1 with 0 more", "t")
    assert set(world.kafka.ledger_now().past().values()) == {QueryPast(BATCHES - 1, BATCHES - 1, (), plan)}


def test_s2_of_a_wide_query_that_was_followed_by_others_one_small_record_stays() -> None:
    kafka = ModelKafka("s", second_protocol=True, compacting=True)
    slots = 150
    for number in range(8):
        write(kafka, [f"{number} {slot}" for slot in range(slots)], query=f"query {number}")
        assert len(kafka.live_keys()) <= number + 2 * (2 + slots)  # the last two have everything


def test_s2_a_late_word_of_a_driver_that_died_long_ago_does_not_bring_an_older_batch_back() -> None:
    world = World(BATCHES, second_protocol=True, variants=cycle([0]), compacting=True)
    (driver,) = world.drivers
    while not isinstance(driver.request, Append):
        for name in world.kafka.prepared():
            world.kafka.write_markers(name)
        for process in [p for p in world.drivers + world.tasks if p.alive]:
            if not isinstance(process.request, Append):
                world.step(process)
    world.kill_with_request_on_the_wire(driver)  # "batch 0 is done"
    for query in ("q", "r"):
        world.switch(query)
        assert world.calm_down().failed is None
    world.deliver(world.on_the_wire[0])
    world.switch("q")
    world.commits.clear()
    world.commits.add(0)
    assert world.calm_down().failed is None
    assert Counter(world.kafka.output) == expected(("q", "r"))


# batch writes without queryId


def write(kafka: ModelKafka, rows: list[str], lost: tuple[int, ...] = (), query: str | None = None) -> None:
    """A batch write: a row to each slot. The slots `lost` are taken over by a zombie before the commit."""
    claim: Claim = answered(kafka, claim_sink("s"))
    key = unnamed_batch(claim) if query is None else BatchKey(query, 0)
    reports = []
    for slot, row in enumerate(rows):
        assert slot_task(claim, key, slot, "t") == (SlotTask.WRITE, None)
        handle = kafka.init(slot_id("s", slot))
        kafka.answer(Produce(handle, [row], SlotMarker(key, slot, 1, row)))
        reports.append(SlotReport(claim, key, slot, SlotTask.WRITE, 1, row, handle))
    for slot in lost:
        kafka.abort_for_good(slot_id("s", slot))
    answered(kafka, commit_batch(reports, {}, Plan(None, "t")))
    for name in kafka.prepared():
        kafka.write_markers(name)


def test_s2_the_ledger_does_not_grow_with_batch_writes_without_query_id() -> None:
    kafka = ModelKafka("s", second_protocol=True, compacting=True)
    sizes = set()
    for number in range(20):
        write(kafka, [f"{number} a", f"{number} b"])
        sizes.add(len(kafka.live_keys()))
    assert sizes == {4}
    assert Counter(kafka.output) == Counter(f"{number} {row}" for number in range(20) for row in "ab")


def test_s2_a_batch_write_that_was_lost_in_whole_is_followed_by_the_next() -> None:
    kafka = ModelKafka("s", second_protocol=True, compacting=True)
    with pytest.raises(SlotsLostError):
        write(kafka, ["a", "b"], lost=(0, 1))
    write(kafka, ["a", "b"])
    assert Counter(kafka.output) == Counter("ab")


def test_s2_a_batch_write_without_query_id_that_stayed_half_committed_is_told_by_the_next() -> None:
    kafka = ModelKafka("s", second_protocol=True, compacting=True)
    write(kafka, ["a", "b"])
    with pytest.raises(SlotsLostError):
        write(kafka, ["c", "d"], lost=(1,))
    for _ in range(2):
        with pytest.raises(InDoubtError, match=r"batch 1 .* slots \[0\] are committed, .* has no replay") as told:
            write(kafka, ["c", "d"])
        assert told.value.query == UNNAMED


# the records themselves

KEY = BatchKey("q", 7)
DRIVER = Handle(driver_id("s"), 1, 0)
WHOLE = Decision(KEY, DRIVER, (SlotDecision(0, 3, "aa", Handle(slot_id("s", 0), 5, 1)),), Plan("ab", "t"))
MARKER = SlotMarker(KEY, 0, 3, "aa")
OTHER = WHOLE._replace(key=BatchKey("r", 0), slots=(SlotDecision(0, 0, "", None),))


def ledger_of(*records: LedgerRecord) -> Ledger:
    kafka = ModelKafka("s", second_protocol=True)
    for record in records:
        kafka.answer(Append(record))
    return kafka.ledger_now()


def forgotten(ledger: Ledger, enough: int = 500) -> list[LedgerRecord]:
    return [record for left in ledger.leftovers(enough) for record in left.records()]


def test_s2_a_complete_query_becomes_its_decision_without_slots() -> None:
    ledger = ledger_of(MARKER, WHOLE, Done(KEY), OTHER)
    assert forgotten(ledger) == [WHOLE._replace(slots=()), Forgotten("q", "done"), Forgotten("q", "slot", 0)]


@pytest.mark.parametrize(
    "records",
    [
        pytest.param((MARKER, WHOLE, Done(KEY)), id="it decided last"),
        pytest.param((WHOLE, OTHER), id="it is not complete"),
        pytest.param((MARKER, WHOLE._replace(slots=()), Forgotten("q", "slot", 0), OTHER), id="it is short already"),
        pytest.param((WHOLE, Done(BatchKey("q", 8)), OTHER), id="its done says more than its decision"),
    ],
)
def test_s2_what_may_be_needed_stays(records: tuple[LedgerRecord, ...]) -> None:
    assert forgotten(ledger_of(*records)) == []


def test_s2_a_done_that_comes_late_goes_again() -> None:
    ledger = ledger_of(WHOLE._replace(slots=()), OTHER, Done(BatchKey("q", 6)))
    assert ledger.past()["q"] == QueryPast(7, 7, (), WHOLE.plan)
    assert forgotten(ledger) == [Forgotten("q", "done")]


@given(
    st.lists(st.tuples(st.sampled_from("qrt"), st.integers(0, 3), st.booleans()), max_size=12),
    st.integers(1, 9),
    st.integers(0, 12),
)
def test_s2_what_is_forgotten_changes_nothing_that_is_told(
    writes: list[tuple[str, int, bool]], enough: int, cut: int
) -> None:
    records: list[LedgerRecord] = []
    for query, batch, done in writes:
        key = BatchKey(query, batch)
        records += [MARKER._replace(key=key), WHOLE._replace(key=key), *([Done(key)] if done else [])]
    before = ledger_of(*records)
    after = ledger_of(*records, *forgotten(before, enough)[:cut])
    assert after.past() == before.past()
    assert not set(after.undone()) - set(before.undone())


def test_s2_a_claim_has_enough_with_the_query_that_makes_it_so() -> None:
    wide = [MARKER._replace(slot=slot) for slot in range(9)]
    ledger = ledger_of(*wide, WHOLE, OTHER, OTHER._replace(key=BatchKey("t", 0)))
    assert [len(left.records()) for left in ledger.leftovers(5)] == [10]
    assert [left.query for left in ledger.leftovers(11)] == ["q", "r"]


def test_s2_a_decision_is_not_refused_for_what_is_forgotten_with_it() -> None:
    kafka = ModelKafka("s", second_protocol=True)
    past = Leftover(WHOLE._replace(slots=()), True, True, tuple(range(50_000)))
    claim = Claim("s", kafka.init(driver_id("s")), {}, forget=(past,))
    report = SlotReport(claim, BatchKey("r", 0), 0, SlotTask.WRITE, 1, "aa", Handle(slot_id("s", 0), 5, 1))
    written = next(commit_batch([report], {}, Plan(None, "t")))
    assert isinstance(written, AppendInTransaction)
    size = sum(len(key) + len(value or b"") for key, value in (encode("s", record) for record in written.records))
    assert 500_000 < size <= 524_288
    assert isinstance(written.records[0], Decision) and written.records[0].key == BatchKey("r", 0)
    chance = random.Random(7)
    handles = [Handle(slot_id("s", slot), chance.randrange(10**10), chance.randrange(2**15)) for slot in range(30_000)]
    wide = [report._replace(slot=slot, handle=handle) for slot, handle in enumerate(handles)]
    alone = next(commit_batch(wide, {}, Plan(None, "t")))
    assert isinstance(alone, AppendInTransaction) and len(alone.records) == 1

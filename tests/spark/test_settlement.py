"""What an operator settles, on the model: nothing is lost that counts as unwritten, nothing repeated that counts as
written, whoever is about meanwhile."""

from collections import Counter
from collections.abc import Generator
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.spark.errors import InDoubtError, PipelineError, SinkFencedError
from ottla.spark.ids import driver_id, slot_id
from ottla.spark.ledger import BatchKey, Decision, Done, Forgotten, Handle, Plan, SlotDecision
from ottla.spark.protocol import claim_sink
from ottla.spark.requests import Append, AppendInTransaction, EndTransactions, ListOpen
from ottla.spark.settlement import Settle, resolve_sink
from ottla.spark.survey import BatchState, SinkView, SlotState, Transaction, view
from tests.spark.kafka_model import ModelKafka, State, answered
from tests.spark.spark_model import QUERY, SINK, SLOTS, Process, World, rows_of

BATCHES = 3
CHOICES = st.lists(st.integers(0, 9_999), min_size=40, max_size=200)


def expected() -> Counter[str]:
    return Counter(row for b in range(BATCHES) for s in range(SLOTS) for row in rows_of(b, s, 0))


def seen(kafka: ModelKafka) -> SinkView:
    states = {State.ONGOING: "Ongoing", State.EMPTY: "CompleteCommit"}
    transactions = [
        Transaction(name, states.get(t.state, "PrepareCommit" if t.commit else "PrepareAbort"), t.producer_id, t.epoch)
        for name, t in kafka.transactions.items()
    ]
    return view(kafka.ledger_now(), transactions)


@settings(max_examples=200, deadline=None)
@given(
    before=CHOICES,
    meanwhile=CHOICES,
    second_protocol=st.booleans(),
    settle=st.sampled_from(Settle),
    operators=st.integers(1, 3),
)
def test_s6_settling_loses_or_repeats_nothing_else_whoever_is_about(
    before: list[int], meanwhile: list[int], second_protocol: bool, settle: Settle, operators: int
) -> None:
    world = World(BATCHES, second_protocol=second_protocol, variants=cycle([0]))
    for choice in before:
        world.act(choice)
    given_up: set[int] = set()

    def operator() -> Process:
        decision = world.kafka.ledger_now().decision(QUERY)
        steps = resolve_sink(SINK, decision.key if decision is not None else BatchKey(QUERY, 0), settle)

        def noted() -> Generator[Any, Any, None]:
            request = next(steps)
            while True:
                if isinstance(request, AppendInTransaction):
                    given_up.update(record.key.batch for record in request.records if isinstance(record, Done))
                answer = yield request
                try:
                    request = steps.send(answer)
                except StopIteration:
                    return

        process = Process(noted())
        process.request = next(process.steps)
        return process

    for _ in range(operators):
        world.drivers.append(operator())
        for choice in meanwhile:
            world.act(choice)
    world.calm_down()
    found = Counter(world.kafka.output)
    if settle is Settle.UNWRITTEN:
        assert not expected() - found, "a row is lost"
    else:
        assert not found - expected(), "a row is there twice"
        assert {int(row.split(".")[1]) for row in expected() - found} <= given_up


def resolve(world: World, query: str | None, settle: Settle | None) -> None:
    batch = None if query is None else BatchKey(query, 0)
    answered(world.kafka, resolve_sink(SINK, batch, settle))
    for name in world.kafka.prepared():
        world.kafka.write_markers(name)


def half_committed() -> World:
    """Batch 0 has slot 0 committed; slot 1's transaction was lost after the decision; the replay gives other rows."""
    world = World(1, second_protocol=True, variants=iter([0, 1, 1, 1]))
    while driver_id(SINK) not in world.kafka.prepared():
        for process in world.drivers + world.tasks:
            if process.alive:
                world.step(process)
    world.kafka.write_markers(driver_id(SINK))
    for process in world.drivers + world.tasks:
        process.alive = False
    assert seen(world.kafka).state == "decided"
    assert len(seen(world.kafka).decided) == SLOTS
    world.kafka.abort_for_good(slot_id(SINK, 1))
    world.kafka.write_markers(slot_id(SINK, 1))
    assert isinstance(world.calm_down().failed, InDoubtError)
    return world


def test_s6_a_half_committed_batch_is_seen_and_told_slot_by_slot() -> None:
    found = seen(half_committed().kafka)
    batch = found.batch(QUERY)
    assert batch is not None
    assert found.state == "half committed"
    assert found.half_committed == (batch,)
    assert [each.state for each in batch.slots] == [SlotState.COMMITTED, SlotState.LOST, SlotState.COMMITTED]
    assert batch.lost == (1,)
    assert found.decided == found.undecided == ()


def test_s6_it_counts_as_written_and_the_query_goes_on_behind_it() -> None:
    world = half_committed()
    resolve(world, QUERY, Settle.WRITTEN)
    assert seen(world.kafka).state == "idle"
    assert world.calm_down().failed is None
    assert Counter(world.kafka.output) == Counter(rows_of(0, 0, 0) + rows_of(0, 2, 0))
    resolve(world, QUERY, Settle.WRITTEN)  # once more changes nothing
    assert seen(world.kafka).state == "idle"


def test_s6_it_counts_as_unwritten_and_the_query_writes_all_of_it() -> None:
    world = half_committed()
    resolve(world, QUERY, Settle.UNWRITTEN)
    assert seen(world.kafka).batches == ()
    assert world.calm_down().failed is None
    again = [row for slot in range(SLOTS) for row in rows_of(0, slot, 1)]
    assert Counter(world.kafka.output) == Counter(rows_of(0, 0, 0) + rows_of(0, 2, 0) + again)


def test_s6_without_a_choice_it_stays_in_doubt() -> None:
    world = half_committed()
    resolve(world, None, None)
    assert seen(world.kafka).state == "half committed"


def test_s6_a_driver_that_claims_meanwhile_fences_the_operator() -> None:
    world = half_committed()
    steps = resolve_sink(SINK, BatchKey(QUERY, 0), Settle.WRITTEN)
    request, answer = next(steps), None
    while not isinstance(request, AppendInTransaction):
        answer = world.kafka.answer(request)
        request = steps.send(answer)
    answered(world.kafka, claim_sink(SINK))
    with pytest.raises(SinkFencedError, match="nothing is settled"):
        steps.send(world.kafka.answer(request))
    assert seen(world.kafka).state == "half committed"


@pytest.mark.parametrize("settle", Settle)
@pytest.mark.parametrize("when", ["before the claim", "before the last look"])
def test_s6_no_other_batch_is_settled_than_the_one_that_was_looked_at(settle: Settle, when: str) -> None:
    kafka = ModelKafka(SINK, second_protocol=True)
    driver = Handle(driver_id(SINK), 1000, 0)
    slots = (SlotDecision(0, 1, "d", None),)
    kafka.answer(Append(Decision(BatchKey(QUERY, 7), driver, slots, Plan())))
    steps = resolve_sink(SINK, BatchKey(QUERY, 7), settle, driver=driver)
    request = next(steps)
    if when == "before the last look":
        while not isinstance(request, ListOpen):
            request = steps.send(kafka.answer(request))
    kafka.answer(Append(Decision(BatchKey(QUERY, 8), driver, slots, Plan())))
    before = kafka.ledger_now().decisions()
    with pytest.raises(PipelineError, match=r"batch 7 of query q is not the last one any more.*batch 8 meanwhile"):
        while True:
            request = steps.send(kafka.answer(request))
            assert not isinstance(request, AppendInTransaction)
    assert kafka.ledger_now().decisions() == before


def test_s6_a_batch_that_was_decided_anew_is_another_one() -> None:
    kafka = ModelKafka(SINK, second_protocol=True)
    slots = (SlotDecision(0, 1, "d", Handle(slot_id(SINK, 0), 77, 0)),)
    kafka.answer(Append(Decision(BatchKey(QUERY, 7), Handle(driver_id(SINK), 1000, 1), slots, Plan())))
    steps = resolve_sink(SINK, BatchKey(QUERY, 7), Settle.UNWRITTEN, driver=Handle(driver_id(SINK), 1000, 0))
    with pytest.raises(PipelineError, match="not the last one any more"):
        answered(kafka, steps)


def test_s6_the_last_decision_is_told_by_the_ledgers_order_and_not_by_epochs() -> None:
    """A producer's epochs have 15 bits; behind the last a new producer id begins with 0."""
    kafka = ModelKafka(SINK, second_protocol=True)
    slots = (SlotDecision(0, 0, "", None),)
    for query, driver in (("a", Handle(driver_id(SINK), 1, 32_766)), ("b", Handle(driver_id(SINK), 2, 0))):
        kafka.answer(Append(Decision(BatchKey(query, 5), driver, slots, Plan())))
    kafka.answer(Append(Decision(BatchKey("a", 5), Handle(driver_id(SINK), 1, 32_766), (), Plan())))  # made short
    last = seen(kafka).last
    assert last is not None and last.key == BatchKey("b", 5)
    kafka.answer(Append(Forgotten("b", "decision")))
    assert seen(kafka).last is None  # of what is left the order is not known


def test_s6_a_query_that_the_ledger_does_not_know_is_an_error() -> None:
    kafka = ModelKafka(SINK, second_protocol=True)
    with pytest.raises(PipelineError, match="no decided batch of query other"):
        answered(kafka, resolve_sink(SINK, BatchKey("other", 0), Settle.WRITTEN))


def test_s6_a_done_that_comes_when_its_batch_was_given_up_says_nothing() -> None:
    """A driver was stopped before its last request. Meanwhile the batch is decided anew, and its slots are open."""
    kafka = ModelKafka(SINK, second_protocol=True)
    key, late = BatchKey(QUERY, 4), Handle(driver_id(SINK), 1000, 0)

    def decide() -> Handle:
        claim = answered(kafka, claim_sink(SINK))
        slot = SlotDecision(0, 1, "d", Handle(slot_id(SINK, 0), 77, 0))
        kafka.answer(AppendInTransaction(claim.driver, (Decision(key, claim.driver, (slot,), Plan()),), {}))
        kafka.answer(EndTransactions((claim.driver,), commit=True))
        kafka.write_markers(driver_id(SINK))
        driver: Handle = claim.driver
        return driver

    late = decide()
    kafka.answer(Append(Forgotten(QUERY, "decision")))
    kafka.answer(Append(Done(key, late)))
    assert QUERY not in {name for name, past in kafka.ledger_now().past().items() if past.complete >= 0}
    driver = decide()
    assert driver != late
    assert kafka.ledger_now().past()[QUERY].complete == -1
    kafka.answer(Append(Done(key, driver)))
    assert kafka.ledger_now().past()[QUERY].complete == 4


@pytest.mark.parametrize(
    ("state", "epoch", "slot", "batch"),
    [
        ("Ongoing", 3, SlotState.OPEN, BatchState.DECIDED),
        ("Ongoing", 4, SlotState.LOST, BatchState.LOST),  # the next attempt's
        ("PrepareCommit", 4, SlotState.OPEN, BatchState.DECIDED),  # KIP-890 has raised the epoch
        ("CompleteAbort", 4, SlotState.LOST, BatchState.LOST),
    ],
)
def test_s6_a_decided_slot_is_open_only_if_the_transaction_is_the_decided_one(
    state: str, epoch: int, slot: SlotState, batch: BatchState
) -> None:
    kafka = ModelKafka(SINK, second_protocol=True)
    driver = Handle(driver_id(SINK), 1, 0)
    slots = (SlotDecision(0, 2, "d", Handle(slot_id(SINK, 0), 9, 3)), SlotDecision(1, 0, "", None))
    kafka.answer(Append(Decision(BatchKey(QUERY, 0), driver, slots, Plan())))
    found = view(kafka.ledger_now(), [Transaction(slot_id(SINK, 0), state, 9, epoch)]).batch(QUERY)
    assert found is not None
    assert [each.state for each in found.slots] == [slot, SlotState.EMPTY]
    assert found.state is batch

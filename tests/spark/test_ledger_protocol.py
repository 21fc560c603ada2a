"""SPEC S2 on the model: whatever is killed, repeated, delayed or left behind as a zombie."""

import re
from collections import Counter
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ConfigError
from ottla.spark.errors import InDoubtError, SlotsLostError
from ottla.spark.ids import PREFIX, driver_id, slot_id
from ottla.spark.ledger import BatchKey, Decision, Handle, Plan, QueryPast, SlotMarker
from ottla.spark.protocol import Claim, SlotReport, SlotTask, abort_batch, claim_sink, commit_batch, slot_task
from ottla.spark.requests import Append, AppendInTransaction, EndTransactions, Fence, FindOpen, InitProducer
from ottla.spark.staged import Staged, StagedBatch
from tests.spark.kafka_model import ModelKafka, Produce, State, Transaction, answered, one_request
from tests.spark.spark_model import GROUP, SLOTS, World, rows_of

BATCHES = 3
CHOICES = st.lists(st.integers(0, 9_999), min_size=60, max_size=260)


def expected(variant: int = 0) -> Counter[str]:
    return Counter(row for b in range(BATCHES) for s in range(SLOTS) for row in rows_of(b, s, variant))


def run(world: World, choices: list[int]) -> None:
    for choice in choices:
        world.act(choice)


@settings(max_examples=400, deadline=None)
@given(choices=CHOICES, second_protocol=st.booleans(), speculation=st.booleans())
def test_s2_the_committed_image_is_exact_after_any_kill_retry_speculation_or_zombie(
    choices: list[int], second_protocol: bool, speculation: bool
) -> None:
    world = World(BATCHES, second_protocol=second_protocol, variants=cycle([0]), speculation=speculation)
    run(world, choices)
    world.calm_down()
    assert all(driver.failed is None for driver in world.drivers[-1:]), world.drivers[-1].failed
    assert world.commits == set(range(BATCHES))
    finished = Counter(world.kafka.output)
    assert finished == expected()
    assert world.kafka.group == {(GROUP, "in", 0): BATCHES * 10}
    # requests of the dead that arrive after everything is over change nothing
    while world.on_the_wire:
        world.deliver(world.on_the_wire[0])
        for name in world.kafka.prepared():
            world.kafka.write_markers(name)
    assert Counter(world.kafka.output) == finished


@settings(max_examples=400, deadline=None)
@given(choices=CHOICES, variants=st.lists(st.integers(0, 1), min_size=1, max_size=12), second_protocol=st.booleans())
def test_s2_a_query_that_gives_other_rows_when_run_again_is_exact_or_stops_in_doubt(
    choices: list[int], variants: list[int], second_protocol: bool
) -> None:
    world = World(BATCHES, second_protocol=second_protocol, variants=cycle(variants))
    run(world, choices)
    driver = world.calm_down()
    if driver.failed is not None:
        # a ConfigError is as loud: other rows have made the batch look as if it had another topic
        assert isinstance(driver.failed, InDoubtError | ConfigError)
        assert re.search(r"batch \d+ of query", str(driver.failed))
        return
    # both variants have the same rows, in other slots: a torn batch would lose or repeat the row that moves
    assert Counter(world.kafka.output) == expected()


def exact_or_in_doubt(world: World) -> bool:
    """Whether the query ran to its end, with exactly what its checkpoint has planned; else it has to be in doubt."""
    failed = world.calm_down().failed
    if failed is not None:
        assert isinstance(failed, InDoubtError)
        return False
    planned = [(b, s, more) for b, more in world.offsets.items() for s in range(SLOTS)]
    assert Counter(world.kafka.output) == Counter(row for b, s, more in planned for row in rows_of(b, s, 0, more))
    return True


@settings(max_examples=200, deadline=None)
@given(choices=CHOICES, edits=st.sets(st.integers(20, 200), min_size=1, max_size=3), second_protocol=st.booleans())
def test_s2_a_batch_that_was_planned_anew_is_written_or_in_doubt_after_any_kill_too(
    choices: list[int], edits: set[int], second_protocol: bool
) -> None:
    world = World(BATCHES, second_protocol=second_protocol, variants=cycle([0]))
    for at, choice in enumerate(choices):
        if at in edits:
            world.lose_the_last_batch()
        world.act(choice)
    exact_or_in_doubt(world)


def test_s2_a_batch_that_was_planned_anew_is_never_skipped() -> None:
    outcomes = []
    for steps in range(60):
        world = World(BATCHES, second_protocol=True, variants=cycle([0]))
        world.walk(steps)
        world.lose_the_last_batch()
        outcomes.append(exact_or_in_doubt(world))
    assert {True, False} == set(outcomes)


@pytest.mark.parametrize("second_protocol", [True, False])
@pytest.mark.parametrize("slot", range(SLOTS))
def test_s2_two_attempts_at_a_slot_never_stop_the_query(slot: int, second_protocol: bool) -> None:
    for rounds in range(40):
        world = World(BATCHES, second_protocol=second_protocol, variants=cycle([0]), speculation=True)
        world.walk(rounds)
        for task in [task for task in world.tasks if task.slot == slot]:
            world.speculate(task)
        for late in range(8):  # the second attempt falls behind the first, a round more each time
            world.walk(1, but=[task for task in world.tasks if task.attempt and late % 4])
        world.walk(200)
        (driver,) = world.drivers
        assert (driver.alive, driver.failed) == (False, None), rounds
        assert Counter(world.kafka.output) == expected()
        assert all(
            task.attempt for task in world.tasks if slot_id("s", task.slot, task.attempt) in world.kafka.ongoing()
        )


@pytest.mark.parametrize("name", ["s-1", "s-driver", "s-0.1", "__ottla/s-1/slot-0"])
def test_s2_a_transaction_of_an_application_or_of_another_sink_is_left_alone(name: str) -> None:
    for rounds in range(0, 60, 5):
        world = World(BATCHES, second_protocol=True, variants=cycle([0]))
        world.kafka.transactions[name] = Transaction(7, 3, State.ONGOING)
        world.walk(rounds)
        world.calm_down()
        assert Counter(world.kafka.output) == expected()
        theirs = world.kafka.transactions[name]
        assert (theirs.epoch, theirs.state) == (3, State.ONGOING)


@settings(max_examples=400, deadline=None)
@given(before=CHOICES.map(lambda choices: choices[:120]), choices=CHOICES, second_protocol=st.booleans())
def test_s2_the_image_is_exact_when_the_sink_moves_on_from_ids_without_a_prefix(
    before: list[int], choices: list[int], second_protocol: bool
) -> None:
    world = World(BATCHES, second_protocol=second_protocol, variants=cycle([0]), former=True)
    run(world, before)
    world.upgrade()
    run(world, choices)
    assert world.calm_down().failed is None
    assert Counter(world.kafka.output) == expected()
    assert world.kafka.group == {(GROUP, "in", 0): BATCHES * 10}


@pytest.mark.parametrize("zombie", [True, False])
@pytest.mark.parametrize("second_protocol", [True, False])
def test_s2_what_a_sink_with_ids_without_a_prefix_left_is_ended_whenever_it_was_stopped(
    second_protocol: bool, zombie: bool
) -> None:
    found = set()
    for rounds in range(60):
        world = World(BATCHES, second_protocol=second_protocol, variants=cycle([0]), former=True)
        world.walk(rounds)
        (former,) = world.drivers
        for process in [former, *world.tasks]:
            process.alive &= zombie
        left = {name for name in world.kafka.ongoing() if not name.startswith(PREFIX)}
        told = bool(world.kafka.ledger)
        world.upgrade()
        world.walk(30)  # the new driver claims, the zombie goes on
        world.calm_down()
        assert Counter(world.kafka.output) == expected(), rounds
        if told:
            assert not left & set(world.kafka.ongoing()), rounds
            found |= left
    assert found == {"s-driver", "s-0", "s-1", "s-2"}


def test_s2_a_decision_under_an_id_without_a_prefix_that_is_just_on_its_way_holds() -> None:
    world = World(1, second_protocol=True, variants=cycle([0]), former=True)
    while "s-driver" not in world.kafka.prepared():
        for process in world.drivers + world.tasks:
            if process.alive:
                world.step(process)
    claim: Claim = answered(world.kafka, claim_sink("s"))
    assert (claim.recovered, claim.aborted) == (SLOTS, 0)
    assert Counter(world.kafka.output) == Counter(row for slot in range(SLOTS) for row in rows_of(0, slot, 0))


def test_s2_ids_without_a_prefix_are_an_applications_from_the_first_decision_on() -> None:
    world = World(BATCHES, second_protocol=True, variants=cycle([0]), former=True)
    world.walk(8)
    world.upgrade()
    (former, driver) = world.drivers
    former.alive = False
    while not world.commits:
        world.walk(1)
    theirs = Transaction(7, 3, State.ONGOING)
    world.kafka.transactions.update({"s-1": theirs, "s-driver": theirs})
    world.calm_down()
    assert (theirs.epoch, theirs.state) == (3, State.ONGOING)
    assert driver.failed is None
    assert Counter(world.kafka.output) == expected()


def test_s2_an_id_without_a_prefix_that_a_lost_slot_once_had_is_not_taken_over_again() -> None:
    world = World(1, second_protocol=True, variants=cycle([0]), former=True)
    (former,) = world.drivers
    while not isinstance(former.request, EndTransactions) or "driver" in former.request.handles[0].transactional_id:
        world.walk(1)
    world.kafka.abort_for_good("s-1")  # its time is over, and an application takes the id
    world.kafka.write_markers("s-1")
    world.kafka.init("s-1")
    epoch = world.kafka.transactions["s-1"].epoch
    former.alive = False
    world.upgrade()
    world.calm_down()
    assert Counter(world.kafka.output) == Counter(row for slot in range(SLOTS) for row in rows_of(0, slot, 0))
    assert world.kafka.transactions["s-1"].epoch == epoch


def test_s2_without_faults_every_batch_is_one_decision() -> None:
    world = World(BATCHES, second_protocol=True, variants=cycle([0]))
    world.calm_down()
    assert Counter(world.kafka.output) == expected()


@pytest.mark.parametrize("second_protocol", [True, False])
def test_s2_a_driver_killed_at_each_of_its_steps_is_recovered_by_the_next(second_protocol: bool) -> None:
    for steps in range(60):
        world = World(BATCHES, second_protocol=second_protocol, variants=cycle([0]))
        world.walk(steps)
        world.calm_down()
        assert Counter(world.kafka.output) == expected(), steps


def reports_of(driver: Handle, past: dict[str, QueryPast], tasks: list[tuple[int, SlotTask]]) -> list[SlotReport]:
    claim = Claim("s", driver, past)
    return [SlotReport(claim, KEY, slot, task, 1, "d", None) for slot, task in tasks]


KEY, PLAN = BatchKey("q", 4), Plan("ab", "t")
DRIVER = Handle(driver_id("s"), 9, 2)


def test_s2_a_committed_slot_that_the_replay_does_not_have_is_in_doubt() -> None:
    past = {"q": QueryPast(complete=3, latest=4, committed=(SlotMarker(KEY, 2, 1, "d"),))}
    steps = commit_batch(reports_of(DRIVER, past, [(0, SlotTask.WRITE), (1, SlotTask.WRITE)]), {}, PLAN)
    with pytest.raises(InDoubtError, match=r"batch 4 of query q is in doubt: slots \[2\] are committed"):
        next(steps)


@pytest.mark.parametrize(("batch", "why"), [(2, "rolled back"), (3, "rolled back"), (5, "Spark went on without it")])
def test_s2_a_checkpoint_that_disagrees_with_the_ledger_is_in_doubt(batch: int, why: str) -> None:
    past = {"q": QueryPast(complete=3 if batch > 4 else 1, latest=4, committed=(SlotMarker(KEY, 0, 1, "d"),))}
    with pytest.raises(InDoubtError, match=why):
        slot_task(Claim("s", DRIVER, past), BatchKey("q", batch), 0, "t")


def test_s2_a_complete_batch_before_one_that_is_decided_is_no_replay() -> None:
    past = {"q": QueryPast(complete=3, latest=4)}
    with pytest.raises(InDoubtError, match="batch 4 is decided already"):
        slot_task(Claim("s", DRIVER, past), BatchKey("q", 3), 0, "t")


@pytest.mark.parametrize("found", [PLAN, Plan("ab", "another topic"), Plan(None, "t")])
def test_s2_a_replay_is_skipped_by_the_plan_of_the_batch(found: Plan) -> None:
    past = {"q": QueryPast(4, 4, (), PLAN)}
    assert list(commit_batch(reports_of(DRIVER, past, [(0, SlotTask.SKIP)]), {}, found)) == []


def test_s2_another_batch_of_the_same_number_is_in_doubt() -> None:
    past = {"q": QueryPast(4, 4, (), PLAN)}
    steps = commit_batch(reports_of(DRIVER, past, [(0, SlotTask.SKIP)]), {}, Plan("cd", "t"))
    with pytest.raises(InDoubtError, match=r"batch 4 of query q is in doubt: .*offsets/4 is not the one"):
        next(steps)


HALF = {"q": QueryPast(3, 4, (SlotMarker(KEY, 0, 1, "d"),), PLAN)}


def test_s2_a_half_committed_batch_is_completed_by_its_own_plan_only() -> None:
    replay = [(0, SlotTask.VERIFY), (1, SlotTask.WRITE)]
    for plan in (PLAN, Plan(None, "t")):
        next(commit_batch(reports_of(DRIVER, HALF, replay), {}, plan))
    with pytest.raises(InDoubtError, match=r"slots \[0\] of a batch of this number .*offsets/4 is not the one"):
        next(commit_batch(reports_of(DRIVER, HALF, replay), {}, Plan("cd", "t")))


def test_s2_a_batch_that_was_decided_and_lost_all_its_slots_may_be_planned_anew() -> None:
    lost = {"q": QueryPast(3, 4, (), PLAN)}
    (one,) = reports_of(DRIVER, lost, [(0, SlotTask.WRITE)])
    steps = commit_batch([one._replace(handle=Handle(slot_id("s", 0), 1, 1))], {}, Plan("cd", "t"))
    assert isinstance(next(steps), AppendInTransaction)


def test_s2_a_batch_that_was_decided_and_lost_all_its_slots_may_have_no_rows_when_it_runs_again() -> None:
    lost = {"q": QueryPast(3, 4, (), PLAN)}
    steps = commit_batch(reports_of(DRIVER, lost, [(0, SlotTask.WRITE)]), {}, PLAN)
    request = next(steps)  # without a decision the next batch would find this one undone
    assert isinstance(request, AppendInTransaction)
    (decision,) = request.records
    assert isinstance(decision, Decision) and decision.key == KEY


def written(kafka: ModelKafka, *rows: str, key: BatchKey = KEY) -> list[SlotReport]:
    """A driver's batch whose slots are flushed."""
    claim: Claim = answered(kafka, claim_sink("s"))
    reports = []
    for slot, row in enumerate(rows):
        handle = kafka.init(slot_id("s", slot))
        kafka.answer(Produce(handle, [row], SlotMarker(key, slot, 1, row)))
        reports.append(SlotReport(claim, key, slot, SlotTask.WRITE, 1, row, handle))
    return reports


@pytest.mark.parametrize("second_protocol", [True, False])
def test_s2_the_replay_of_a_lost_batch_that_fails_too_leaves_nothing_open(second_protocol: bool) -> None:
    kafka = ModelKafka("s", second_protocol=second_protocol)
    reports = written(kafka, "a", "b")
    for slot in range(2):
        kafka.abort_for_good(slot_id("s", slot))
    with pytest.raises(SlotsLostError):
        answered(kafka, commit_batch(reports, {}, PLAN))
    answered(kafka, abort_batch(reports))
    again = written(kafka, "a", "b")
    answered(kafka, abort_batch(again))  # a task, or Spark, failed before the decision
    assert kafka.ongoing() == []


@pytest.mark.parametrize("second_protocol", [True, False])
def test_s2_an_abort_leaves_the_slots_of_a_newer_driver_alone(second_protocol: bool) -> None:
    kafka = ModelKafka("s", second_protocol=second_protocol)
    reports = written(kafka, "a")
    answered(kafka, claim_sink("s"))
    newer = written(kafka, "a")
    answered(kafka, abort_batch(reports))
    answered(kafka, commit_batch(newer, {}, PLAN))
    answered(kafka, claim_sink("s"))
    assert kafka.output == ["a"]


@pytest.mark.parametrize("second_protocol", [True, False])
def test_s2_an_abort_of_a_batch_without_rows_ends_what_its_decision_has_begun(second_protocol: bool) -> None:
    kafka = ModelKafka("s", second_protocol=second_protocol)
    claim = answered(kafka, claim_sink("s"))
    report = SlotReport(claim, KEY, 0, SlotTask.WRITE, 0, "", None)
    steps = commit_batch([report], {"g": {"t": {0: 5}}}, PLAN)
    kafka.answer(next(steps))  # the group's offsets are refused
    assert kafka.ongoing() == [driver_id("s")]
    answered(kafka, abort_batch([report]))
    assert kafka.ongoing() == []


@pytest.mark.parametrize("second_protocol", [True, False])
def test_s2_an_abort_of_a_batch_that_is_decided_leaves_its_slots_to_the_next_driver(second_protocol: bool) -> None:
    kafka = ModelKafka("s", second_protocol=second_protocol)
    reports = written(kafka, "a", "b")
    steps, answer = commit_batch(reports, {}, PLAN), None
    while not isinstance(request := steps.send(answer), EndTransactions) or len(request.handles) == 1:
        answer = kafka.answer(request)
    for name in kafka.prepared():
        kafka.write_markers(name)
    answered(kafka, abort_batch(reports))
    assert answered(kafka, claim_sink("s")).recovered == 2
    assert kafka.output == ["a", "b"]


def test_s2_a_done_that_comes_late_does_not_hide_a_batch_that_is_whole() -> None:
    """It takes the place of the last one when the ledger is compacted."""
    kafka = ModelKafka("s", second_protocol=True, compacting=True)
    claim = answered(kafka, claim_sink("s"))
    report = SlotReport(claim, KEY, 0, SlotTask.WRITE, 0, "", None)
    steps, answer = commit_batch([report], {"g": {"t": {0: 5}}}, PLAN), None
    while not isinstance(late := steps.send(answer), Append):
        answer = kafka.answer(late)
    claim, key = answered(kafka, claim_sink("s")), BatchKey("q", 5)
    staged = Staged((StagedBatch("t", 0, 1, b"a"),))
    answered(kafka, commit_batch([SlotReport(claim, key, 0, SlotTask.WRITE, 1, "a", None, staged=staged)], {}, PLAN))
    kafka.answer(late)
    claim = answered(kafka, claim_sink("s"))
    assert slot_task(claim, key, 0, "t") == (SlotTask.SKIP, None)
    assert slot_task(claim, BatchKey("q", 6), 0, "t") == (SlotTask.WRITE, None)


@pytest.mark.parametrize(
    ("second_protocol", "is_late_to"),
    [
        *[(True, kind) for kind in (FindOpen, EndTransactions, Fence)],
        *[(False, kind) for kind in (FindOpen, EndTransactions)],
    ],
)
def test_s2_a_driver_that_was_replaced_aborts_no_slot_of_the_next_one(
    second_protocol: bool, is_late_to: type[object]
) -> None:
    """With speculation it looks for the attempts that lost, after its slots are committed. (The first protocol has no
    way to fence an attempt and nobody else: `test_stopped_tasks`.)"""
    kafka = ModelKafka("s", second_protocol=second_protocol)
    reports = [report._replace(speculation=True) for report in written(kafka, "a")]
    kafka.answer(Produce(kafka.init(slot_id("s", 0, 1)), ["loser"]))
    steps, answer = commit_batch(reports, {}, PLAN), None
    while not isinstance(late := steps.send(answer), FindOpen):
        answer = answered(kafka, one_request(late))
    while not isinstance(late, is_late_to):
        late = steps.send(answered(kafka, one_request(late)))
    newer = written(kafka, "b", "c", key=BatchKey("q", 5))
    while not isinstance(late, Append):
        late = steps.send(answered(kafka, one_request(late)))
    answered(kafka, commit_batch(newer, {}, PLAN._replace(offsets="cd")))
    answered(kafka, claim_sink("s"))
    assert kafka.output == ["a", "b", "c"]


def test_s2_a_half_committed_batch_goes_to_one_topic() -> None:
    past = {"q": QueryPast(3, 4, (SlotMarker(KEY, 0, 1, "d"),), PLAN)}
    claim = Claim("s", DRIVER, past)
    assert slot_task(claim, KEY, 1, "t") == (SlotTask.WRITE, None)
    for topic, why in (("u", "committed to topic t, and the rest would go to topic u"), (None, "column topic")):
        with pytest.raises(ConfigError, match=why):
            slot_task(claim, KEY, 1, topic)


def test_s2_what_another_query_left_half_committed_is_told() -> None:
    past = {"q": QueryPast(3, 4, (SlotMarker(KEY, 0, 1, "d"),), PLAN)}
    with pytest.raises(InDoubtError, match=r"batch 4 of query q is in doubt: slots \[0\] are committed"):
        slot_task(Claim("s", DRIVER, past), BatchKey("another", 0), 0, "t")


def test_s2_a_claim_carries_only_what_concerns_the_query() -> None:
    whole = {"done": QueryPast(0, 0), "mine": QueryPast(2, 2), **HALF}
    assert Claim("s", DRIVER, whole).only_for("mine").past == {"mine": QueryPast(2, 2), **HALF}


def test_s2_a_batch_without_rows_and_offsets_asks_nothing_of_kafka() -> None:
    assert list(commit_batch(reports_of(DRIVER, {}, [(0, SlotTask.WRITE)]), {}, PLAN)) == []


def test_s2_recovery_commits_a_decided_batch_instead_of_writing_it_again() -> None:
    world = World(1, second_protocol=True, variants=cycle([0]))
    driver = world.drivers[0]
    while not isinstance(driver.request, EndTransactions) or driver.request.handles[0].transactional_id == driver_id(
        "s"
    ):
        for name in world.kafka.prepared():
            world.kafka.write_markers(name)
        for process in [p for p in world.drivers + world.tasks if p.alive]:
            world.step(process)
    driver.alive = False
    tasks_before = len(world.tasks)
    world.calm_down()
    assert Counter(world.kafka.output) == Counter(rows_of(0, 0, 0) + rows_of(0, 1, 0) + rows_of(0, 2, 0))
    assert not any(isinstance(task.request, InitProducer | Produce) for task in world.tasks[tasks_before:])

"""SPEC S2 on the model: a query that ends while tasks are at work leaves nothing open, and touches nobody else's."""

from collections import Counter
from collections.abc import Sequence
from itertools import cycle

import pytest

from ottla.spark.aborting import abort_unfinished
from ottla.spark.ids import slot_id
from ottla.spark.ledger import BatchKey, Handle, Plan, SlotMarker
from ottla.spark.protocol import Claim, SlotReport, SlotTask, claim_sink, commit_batch
from ottla.spark.requests import EndTransactions, Fence, FindOpen, InitProducer, LetTasksEnd, ReadLedger, Steps
from tests.spark.kafka_model import ModelKafka, Produce, answered
from tests.spark.spark_model import SINK, SLOTS, Process, WaitForTasks, World, rows_of

KEY, PLAN = BatchKey("q", 0), Plan("offsets", "t")


def walk(world: World, rounds: int, but: Sequence[Process] = ()) -> None:
    """In each round the markers are written, and every process but those makes one step."""
    for _ in range(rounds):
        for name in world.kafka.prepared():
            world.kafka.write_markers(name)
        for process in [p for p in world.drivers + world.tasks if p.alive and p not in but]:
            world.step(process)


def _waits(driver: Process) -> bool:
    return driver.alive and isinstance(driver.request, WaitForTasks)


@pytest.mark.parametrize("second_protocol", [True, False])
@pytest.mark.parametrize("speculation", [True, False])
@pytest.mark.parametrize("rounds_between", [0, 1, 3])
def test_s2_a_query_that_is_stopped_leaves_nothing_open_however_far_its_tasks_are(
    second_protocol: bool, speculation: bool, rounds_between: int
) -> None:
    """Spark's tasks go on for a while beside the abort, and are killed then."""
    looked_twice = []
    for rounds in range(60):
        world = World(2, second_protocol=second_protocol, variants=cycle([0]), speculation=speculation)
        walk(world, rounds)
        driver = world.drivers[0]
        if not _waits(driver):
            continue
        world.stop(driver)
        looked_twice.append(False)
        while driver.alive:
            if isinstance(driver.request, LetTasksEnd):
                looked_twice[-1] = True
                walk(world, rounds_between, but=[driver])
                for task in world.tasks:
                    task.alive = False
            walk(world, 1)
        walk(world, 10)  # tasks that were found at once may still run
        assert world.kafka.ongoing() == []
        world.calm_down()
        rows = [row for batch in range(2) for slot in range(SLOTS) for row in rows_of(batch, slot, 0)]
        assert Counter(world.kafka.output) == Counter(rows)
    assert set(looked_twice) == {True, False}


def at_work(kafka: ModelKafka, *slots: int) -> Claim:
    """A claim, and tasks under it in the middle of these slots."""
    claim: Claim = answered(kafka, claim_sink(SINK))
    for slot in slots:
        kafka.answer(Produce(kafka.init(slot_id(SINK, slot)), ["half"]))
    return claim


def one_request(request: object) -> Steps:
    """Steps that ask this, and return the answer."""
    return (yield request)  # type: ignore[misc]


@pytest.mark.parametrize("second_protocol", [True, False])
@pytest.mark.parametrize("is_late_to", [FindOpen, InitProducer, ReadLedger, Fence, LetTasksEnd])
@pytest.mark.parametrize("look", [1, 2])
def test_s2_a_stopped_driver_that_was_replaced_aborts_no_slot_of_the_next_one(
    second_protocol: bool, is_late_to: type[object], look: int
) -> None:
    kafka = ModelKafka(SINK, second_protocol=second_protocol)
    steps = abort_unfinished(SINK, at_work(kafka, 0).driver, {0, 1})
    late, seen = next(steps), 0
    while True:
        seen += isinstance(late, is_late_to)
        if seen == (1 if is_late_to in (ReadLedger, LetTasksEnd) else look):
            break
        answer = answered(kafka, one_request(late))
        if look == 2 and isinstance(late, LetTasksEnd):
            kafka.answer(Produce(kafka.init(slot_id(SINK, 1)), ["half"]))  # a task that was slow to begin
        late = steps.send(answer)
    claim = answered(kafka, claim_sink(SINK))
    reports = []
    for slot, row in enumerate("ab"):
        handle = kafka.init(slot_id(SINK, slot))
        kafka.answer(Produce(handle, [row], SlotMarker(KEY, slot, 1, row)))
        reports.append(SlotReport(claim, KEY, slot, SlotTask.WRITE, 1, row, handle))
    answer = answered(kafka, one_request(late))
    with pytest.raises(StopIteration):
        while True:
            answer = answered(kafka, one_request(steps.send(answer)))
    answered(kafka, commit_batch(reports, {}, PLAN))
    answered(kafka, claim_sink(SINK))
    assert kafka.output == ["a", "b"]


@pytest.mark.parametrize("second_protocol", [True, False])
def test_s2_a_batch_that_is_decided_is_not_aborted_although_its_reports_are_lost(second_protocol: bool) -> None:
    kafka = ModelKafka(SINK, second_protocol=second_protocol)
    claim = answered(kafka, claim_sink(SINK))
    handle = kafka.init(slot_id(SINK, 0))
    kafka.answer(Produce(handle, ["a"], SlotMarker(KEY, 0, 1, "a")))
    steps = commit_batch([SlotReport(claim, KEY, 0, SlotTask.WRITE, 1, "a", handle)], {}, PLAN)
    answer = None
    while not isinstance(request := steps.send(answer), EndTransactions) or request.handles == (handle,):
        answer = answered(kafka, one_request(request))
    answered(kafka, one_request(request))
    answered(kafka, abort_unfinished(SINK, claim.driver, {0}))
    assert answered(kafka, claim_sink(SINK)).recovered == 1
    assert kafka.output == ["a"]


def test_s2_a_stopped_driver_leaves_other_sinks_and_applications_alone() -> None:
    kafka = ModelKafka(SINK, second_protocol=True)
    others = ["application", slot_id("other", 0), f"{slot_id(SINK, 0)}x"]
    claim = at_work(kafka, 0)
    for name in others:
        kafka.answer(Produce(kafka.init(name), ["other"]))
    answered(kafka, abort_unfinished(SINK, claim.driver, {0}))
    assert kafka.ongoing() == others


def test_s2_who_has_no_open_transaction_takes_nothing_over() -> None:
    kafka = ModelKafka(SINK, second_protocol=True)
    driver: Handle = at_work(kafka).driver
    asked = []
    steps = abort_unfinished(SINK, driver, {0})
    with pytest.raises(StopIteration):
        request = next(steps)
        while True:
            asked.append(type(request))
            request = steps.send(kafka.answer(request))
    assert asked == [FindOpen, LetTasksEnd, FindOpen]

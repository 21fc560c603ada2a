"""SPEC S2 on the model: a query that ends while tasks are at work leaves nothing open, and touches nobody else's."""

from collections import Counter
from itertools import cycle
from typing import Any

import pytest

from ottla.spark.aborting import abort_unfinished
from ottla.spark.errors import SlotsLostError
from ottla.spark.ids import slot_id
from ottla.spark.ledger import BatchKey, Handle, Plan, SlotMarker
from ottla.spark.protocol import Claim, SlotReport, SlotTask, abort_batch, claim_sink, commit_batch, slot_task
from ottla.spark.requests import EndTransactions, Fence, FindOpen, InitProducer, LetTasksEnd, ReadLedger, Steps
from tests.spark.kafka_model import ModelKafka, Produce, answered, one_request
from tests.spark.spark_model import SINK, SLOTS, Process, WaitForTasks, World, rows_of

KEY, PLAN = BatchKey("q", 0), Plan("offsets", "t")


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
        world.walk(rounds)
        driver = world.drivers[0]
        if not _waits(driver):
            continue
        world.stop(driver)
        looked_twice.append(False)
        while driver.alive:
            if isinstance(driver.request, LetTasksEnd):
                looked_twice[-1] = True
                world.walk(rounds_between, but=[driver])
                for task in world.tasks:
                    task.alive = False
            world.walk(1)
        world.walk(10)  # tasks that were found at once may still run
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


def until(kafka: ModelKafka, steps: Steps, is_late_to: type[object], look: int) -> Any:
    """The request of that kind, the first or second of its kind, before Kafka has it. All before it are answered."""
    request, seen = next(steps), 0
    while True:
        seen += isinstance(request, is_late_to)
        if seen == look:
            return request
        answer = answered(kafka, one_request(request))
        if look == 2 and isinstance(request, LetTasksEnd):
            kafka.answer(Produce(kafka.init(slot_id(SINK, 1)), ["half"]))  # a task that was slow to begin
        request = steps.send(answer)


def to_the_end(kafka: ModelKafka, steps: Steps, late: Any) -> None:
    """The late request is answered, and all after it."""
    with pytest.raises(StopIteration):
        while True:
            late = steps.send(answered(kafka, one_request(late)))


def written(kafka: ModelKafka) -> list[SlotReport]:
    """A claim, and what its tasks report of the two slots of a batch. A slot that is committed is not written again."""
    claim, reports = answered(kafka, claim_sink(SINK)), []
    for slot, row in enumerate("ab"):
        what, _ = slot_task(claim, KEY, slot, "t")
        handle = kafka.init(slot_id(SINK, slot)) if what is SlotTask.WRITE else None
        if handle is not None:
            kafka.answer(Produce(handle, [row], SlotMarker(KEY, slot, 1, row)))
        reports.append(SlotReport(claim, KEY, slot, what, 1, row, handle))
    return reports


@pytest.mark.parametrize("in_its_decision", [False, True])
@pytest.mark.parametrize("look", [1, 2])
@pytest.mark.parametrize(
    ("second_protocol", "is_late_to"),
    [
        *[(True, kind) for kind in (FindOpen, EndTransactions, Fence)],
        *[(False, kind) for kind in (FindOpen, EndTransactions)],
    ],
)
def test_s2_a_stopped_driver_that_was_replaced_aborts_nothing_of_the_next_one(
    second_protocol: bool, is_late_to: type[object], look: int, in_its_decision: bool
) -> None:
    kafka = ModelKafka(SINK, second_protocol=second_protocol)
    steps = abort_unfinished(SINK, at_work(kafka, 0).driver, {0, 1})
    late = until(kafka, steps, is_late_to, look)
    newer, request = commit_batch(written(kafka), {}, PLAN), None
    if in_its_decision:
        request = until(kafka, newer, EndTransactions, 1)
    to_the_end(kafka, steps, late)
    to_the_end(kafka, newer, request or next(newer))
    answered(kafka, claim_sink(SINK))
    assert kafka.output == ["a", "b"]


@pytest.mark.parametrize("look", [1, 2])
@pytest.mark.parametrize("is_late_to", [InitProducer, ReadLedger, Fence])
def test_s2_in_the_first_protocol_a_takeover_may_abort_slots_of_the_next_driver_and_its_restart_writes_them(
    is_late_to: type[object], look: int
) -> None:
    """It comes after the question whether there is a next driver, and Kafka does not look at its epoch."""
    kafka = ModelKafka(SINK, second_protocol=False)
    steps = abort_unfinished(SINK, at_work(kafka, 0).driver, {0, 1})
    late = until(kafka, steps, is_late_to, look)
    reports = written(kafka)
    to_the_end(kafka, steps, late)
    if is_late_to is InitProducer:
        answered(kafka, commit_batch(reports, {}, PLAN))
    else:
        with pytest.raises(SlotsLostError):
            answered(kafka, commit_batch(reports, {}, PLAN))
        answered(kafka, commit_batch(written(kafka), {}, PLAN))
    answered(kafka, claim_sink(SINK))
    assert sorted(kafka.output) == ["a", "b"]


@pytest.mark.parametrize("second_protocol", [True, False])
def test_s2_the_abort_of_a_driver_that_was_replaced_leaves_the_decision_of_the_next_one_alone(
    second_protocol: bool,
) -> None:
    kafka = ModelKafka(SINK, second_protocol=second_protocol)
    reports = written(kafka)
    newer = commit_batch(written(kafka), {}, PLAN)
    request = until(kafka, newer, EndTransactions, 1)
    answered(kafka, abort_batch(reports))
    to_the_end(kafka, newer, request)
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

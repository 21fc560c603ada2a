"""A transaction in partitions of very many topics: its record is made in steps, whenever it grows or ends."""

from collections.abc import Callable

from ottla.base.limits import MAX_INLINE_ADDED
from ottla.base.steps import result_of
from ottla.base.types import TopicPartition
from ottla.coordinator.decision import Decision
from ottla.coordinator.txn.store import TIMEOUT_TIMER
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import TransactionState
from tests.coordinator.cost import steps
from tests.coordinator.txn.requests import add_decision, end_decision, errors, init
from tests.coordinator.txn.runtime import ShardRuntime, decoded

_MANY = tuple(TopicPartition(f"topic-{number}", 0) for number in range(6 * MAX_INLINE_ADDED))
#: Lines of the coordinator that a step runs for each partition of the transaction. All were one step.
_LINES_OF_EACH = 10


def _decided(decide: Callable[[], Decision]) -> Decision:
    """What an input comes to after steps, in which nothing is written."""
    looks = 0
    while True:
        made: list[Decision] = []
        lines, _ = steps(lambda: made.append(decide()))  # noqa: B023
        assert lines < len(_MANY) * _LINES_OF_EACH, f"{lines:,} lines in one step"
        (decision,) = made
        if not decision.is_undecided:
            assert looks > 2
            return decision
        assert decision == Decision(rest=decision.rest, is_undecided=True)
        assert decision.rest is not None
        decide, looks = decision.rest, looks + 1


def _ongoing(runtime: ShardRuntime) -> int:
    producer_id = init(runtime).producer_id
    added = runtime.answer(_decided(lambda: add_decision(runtime, producer_id, 0, *_MANY)))
    assert set(errors(added)) == {ErrorCode.NONE}
    assert (TIMEOUT_TIMER, "x") in runtime.timers
    return producer_id


def test_a_transaction_of_very_many_topics_begins_grows_and_ends_in_steps() -> None:
    """9,000 topics kept the loop for 21 ms when they were added, 13 when one more was, and 14 at the end."""
    runtime = ShardRuntime()
    producer_id = _ongoing(runtime)
    one_more = TopicPartition("one-more", 0)
    asked = [*_MANY, one_more]
    verified = runtime.answer(_decided(lambda: add_decision(runtime, producer_id, 0, *asked, verify_only=True)))
    assert errors(verified) == [*[ErrorCode.NONE] * len(_MANY), ErrorCode.TRANSACTION_ABORTABLE]
    runtime.carry_out(_decided(lambda: add_decision(runtime, producer_id, 0, one_more)))
    transaction = decoded(runtime.log[-1])
    assert transaction is not None
    assert transaction.partitions == {*_MANY, one_more}
    runtime.carry_out(_decided(lambda: end_decision(runtime, producer_id, 0, commit=True)))
    runtime.write_markers()
    assert {each[0] for each in runtime.markers} == transaction.partitions
    assert runtime.states()[-2:] == ["PrepareCommit", "CompleteCommit"]


def test_a_time_out_in_steps_is_tried_again_when_it_cannot_be_written() -> None:
    runtime = ShardRuntime()
    _ongoing(runtime)
    key = (TIMEOUT_TIMER, "x")
    del runtime.timers[key]
    runtime.append_errors = [ErrorCode.KAFKA_STORAGE_ERROR]
    runtime.carry_out(_decided(lambda: runtime.shard.timer(key, runtime.now_ms)))
    assert runtime.states()[-1] == "Ongoing"
    assert key in runtime.timers
    runtime.carry_out(_decided(lambda: runtime.shard.timer(key, runtime.now_ms)))
    assert runtime.states()[-1] == "PrepareAbort"


def test_very_many_topics_of_a_transaction_are_described_in_steps_as_they_were_when_it_began() -> None:
    """9,000 took 20 ms in one turn."""
    runtime = ShardRuntime()
    producer_id = _ongoing(runtime)
    describing, told, count = runtime.shard.describe("x"), list[TransactionState](), 0

    def step() -> None:
        try:
            next(describing)
        except StopIteration as end:
            told.append(end.value)

    while not told:
        lines, _ = steps(step)
        assert lines < MAX_INLINE_ADDED * _LINES_OF_EACH, f"{lines:,} lines in one step"
        count += 1
        if count == 2:
            runtime.carry_out(_decided(lambda: end_decision(runtime, producer_id, 0, commit=True)))
            runtime.write_markers()
    assert count > 2 * len(_MANY) // MAX_INLINE_ADDED
    assert told[0].transaction_state == "Ongoing"
    assert [(each.topic, each.partitions) for each in told[0].topics] == sorted((each.topic, (0,)) for each in _MANY)
    assert result_of(runtime.shard.describe("x")).transaction_state == "CompleteCommit"


def test_few_topics_are_one_decision() -> None:
    runtime = ShardRuntime()
    producer_id = init(runtime).producer_id
    assert add_decision(runtime, producer_id, 0, *_MANY[:MAX_INLINE_ADDED]).rest is None

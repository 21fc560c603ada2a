"""A group with very many offsets is deleted: in parts that fit into batches, and nobody sees one of them.

Nothing is encoded or decoded for each offset alone.
"""

from collections.abc import Callable
from types import CodeType

import pytest

from ottla.base.limits import MAX_OFFSETS_PER_STEP, MAX_TOMBSTONE_BYTES_PER_BATCH, MAX_TOMBSTONES_PER_BATCH
from ottla.base.steps import result_of
from ottla.coordinator.decision import Decision
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.retention import RETENTION
from ottla.coordinator.offsets import commit, expiry
from ottla.coordinator.offsets.store import OffsetStore
from ottla.wire import schema
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.coordinator.group.rig import GROUP, Rig
from tests.counted_calls import calls

_OFFSETS = 1_000
_CODED = (schema.decode.__code__, schema.encode.__code__)
_HAS_EXPIRED = expiry._has_expired.__code__
_ENCODED_TOMBSTONE = commit.offset_tombstone.__code__


def _with_offsets(group_id: str = GROUP, offsets: int = _OFFSETS) -> Rig:
    rig = Rig()
    partitions = tuple(OffsetCommitRequestPartition(number, 1, 0, "") for number in range(offsets))
    topics = tuple(OffsetCommitRequestTopic(name=name, partitions=partitions) for name in ("t", "u"))
    rig.run(rig.shard.commit_offsets(rig.token(), OffsetCommitRequest(group_id, topics=topics), rig.now_ms))
    rig.commit_in_transaction(2, producer_id=7)
    rig.commit(1, group_id="another")
    return rig


def _delete(rig: Rig, group_id: str = GROUP) -> ErrorCode:
    token = rig.token()
    rig.run(rig.shard.delete_group(token, group_id))
    return ErrorCode(rig.answer(token).error_code)


def _parts(rig: Rig, decision: Decision) -> list[Decision]:
    """Carry the deletion out; its parts."""
    parts = [decision]
    rig.run(decision._replace(rest=None))
    while parts[-1].rest is not None:
        parts.append(parts[-1].rest())
        rig.run(parts[-1]._replace(rest=None))
    return parts


def _seen(rig: Rig) -> list[int]:
    """What is told of the group's offsets, in each way in which they can be asked for."""
    named = OffsetFetchRequestGroup(GROUP, topics=tuple(result_of(rig.shard.topics_of(GROUP))))
    (rows,) = [rig.shard.fetch_offsets(named, require_stable=False).topics]
    fetched = sum(each.committed_offset >= 0 for topic in rows for each in topic.partitions)
    return [
        rig.shard.count_offsets(GROUP),
        sum(map(len, rig.shard.committed(GROUP).values())),
        sum(len(topic.partition_indexes) for topic in result_of(rig.shard.topics_of(GROUP))),
        fetched,
    ]


def test_a_group_goes_with_all_its_offsets_at_once() -> None:
    """10,000 offsets had taken 24 ms in one turn."""
    rig = _with_offsets()
    before = len(rig.records)
    assert calls(lambda: _delete(rig), *_CODED) < 20
    gone = [record for record in rig.records[before:] if record.value is None]
    assert len({record.key for record in gone}) == 2 * _OFFSETS + 2, "each offset, the pending one, and the group"
    assert rig.shard.committed(GROUP) == {}
    assert rig.shard.committed("another") == {"words": {0: 1}}
    rig.marker(7, commit=True)
    assert rig.shard.committed(GROUP) == {}, "the transaction's offset went with its group"
    rig.crash()
    assert rig.shard.committed(GROUP) == {}
    assert rig.shard.group(GROUP) is None
    assert rig.shard.committed("another") == {"words": {0: 1}}


def test_a_deletion_that_cannot_be_written_deletes_nothing() -> None:
    rig = _with_offsets()
    rig.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert _delete(rig) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(rig.shard.committed(GROUP)["u"]) == _OFFSETS
    rig.commit(5, partition=3)
    assert rig.shard.committed(GROUP)["words"] == {3: 5}
    assert _delete(rig) is ErrorCode.NONE
    assert rig.commit(6) is ErrorCode.NONE
    assert rig.shard.committed(GROUP) == {"words": {0: 6}}


def test_nobody_sees_a_group_with_some_of_its_offsets() -> None:
    """10,000 offsets had taken 32 to 42 ms in one turn. 30,000 did not fit into a batch: they could not be deleted."""
    rig = _with_offsets()
    before = _seen(rig)
    assert before == [2 * _OFFSETS] * 4
    token, seen = rig.token(), []
    decision: Decision | None = rig.shard.delete_group(token, GROUP)
    assert _seen(rig) == before, "nothing is written yet"
    while decision is not None:
        assert rig.answer(token) is None
        assert len(decision.records) <= MAX_TOMBSTONES_PER_BATCH + 1
        assert rig.shard.group(GROUP) is not None
        rig.run(decision._replace(rest=None))
        assert not rig.shard.is_busy
        seen.append(_seen(rig))
        decision = None if decision.rest is None else decision.rest()
    assert seen == [[0] * 4] * 3
    assert rig.answer(token).error_code == ErrorCode.NONE
    assert rig.shard.group(GROUP) is None


def test_names_that_are_long_go_into_more_batches() -> None:
    group_id = "g" * 32_000
    rig = _with_offsets(group_id, 40)
    parts = _parts(rig, rig.shard.delete_group(rig.token(), group_id))
    assert max(sum(len(each.key) for each in part.records[:-1]) for part in parts) <= MAX_TOMBSTONE_BYTES_PER_BATCH
    assert len(parts) == 5
    assert rig.shard.committed(group_id) == {}
    rig.crash()
    assert rig.shard.group(group_id) is None


@pytest.mark.parametrize("written", [1, 2])
def test_a_part_that_cannot_be_written_leaves_the_offsets_that_are_left(written: int) -> None:
    rig = _with_offsets()
    token = rig.token()
    decision = rig.shard.delete_group(token, GROUP)
    for _ in range(written):
        rig.run(decision._replace(rest=None))
        assert decision.rest is not None
        decision = decision.rest()
    rig.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    rig.run(decision)
    assert rig.answer(token).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    left = 2 * _OFFSETS - written * MAX_TOMBSTONES_PER_BATCH
    assert _seen(rig) == [left] * 4
    rig.crash()
    assert _seen(rig) == [left] * 4, "memory says what the log says"
    assert _delete(rig) is ErrorCode.NONE
    assert rig.shard.group(GROUP) is None


@pytest.mark.parametrize("written", [1, 2])
def test_a_kill_between_two_parts_leaves_the_offsets_that_are_left(written: int) -> None:
    rig = _with_offsets()
    decision = rig.shard.delete_group(rig.token(), GROUP)
    for _ in range(written):
        rig.run(decision._replace(rest=None))
        assert decision.rest is not None
        decision = decision.rest()
    rig.crash()
    assert _seen(rig) == [2 * _OFFSETS - written * MAX_TOMBSTONES_PER_BATCH] * 4
    assert _delete(rig) is ErrorCode.NONE
    rig.marker(7, commit=True)
    assert rig.shard.committed(GROUP) == {}


def _with_many() -> Rig:
    """Some thousand offsets of a group are as old as its retention."""
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=0, offsets_retention_ms=1_000))
    rig.commit(1)
    _commit(rig, GROUP, 3 * _OFFSETS)
    rig.now_ms += 1_000
    return rig


def _commit(rig: Rig, group_id: str, offsets: int) -> None:
    partitions = tuple(OffsetCommitRequestPartition(number, 1, 0, "") for number in range(offsets))
    topics = (OffsetCommitRequestTopic(name="t", partitions=partitions),)
    rig.run(rig.shard.commit_offsets(rig.token(), OffsetCommitRequest(group_id, topics=topics), rig.now_ms))


def _steps(begin: Callable[[], Decision], looking: CodeType) -> tuple[list[int], Decision]:
    """How many offsets each step looks at, and what the last one gives. Those before give nothing."""
    looked, decision = [], [Decision(rest=begin)]
    while (rest := decision[-1].rest) is not None:
        assert decision[-1] == Decision(rest=rest, is_undecided=rest is not begin)
        looked.append(calls(lambda: decision.append(rest()), looking))
    return looked, decision[-1]


def _to_its_end(decisions: list[Decision]) -> None:
    while (rest := decisions[-1].rest) is not None:
        decisions.append(rest())


def test_retention_makes_tombstones_for_one_batch_in_a_turn() -> None:
    """10,000 expired offsets of a group had all been encoded again for each of ten batches: 45 ms in the first turn."""
    rig = _with_many()
    written = []
    while rig.shard.group(GROUP) is not None:
        decisions = [Decision(rest=lambda: rig.shard.timer(RETENTION, rig.now_ms))]
        assert calls(lambda: _to_its_end(decisions), *_CODED) < 20  # noqa: B023
        rig.run(decisions[-1])
        written.append(len(decisions[-1].records))
    assert written == [MAX_TOMBSTONES_PER_BATCH] * 3 + [2]
    assert rig.shard.committed(GROUP) == {}
    rig.crash()
    assert rig.shard.group(GROUP) is None


def test_a_large_group_is_looked_at_in_steps() -> None:
    """Nothing bounded how long: 100,000 offsets would have taken some 100 ms."""
    rig = _with_many()
    looked, decision = _steps(lambda: rig.shard.timer(RETENTION, rig.now_ms), _HAS_EXPIRED)
    assert max(looked) <= MAX_OFFSETS_PER_STEP
    assert sum(looked) == 3 * _OFFSETS + 1
    assert len(decision.records) == MAX_TOMBSTONES_PER_BATCH
    rig.run(decision)
    left = 3 * _OFFSETS + 1 - MAX_TOMBSTONES_PER_BATCH
    rig.topic_ids["t"] = rig.topic_ids["words"] = None
    looked, decision = _steps(rig.shard.topics_deleted, _ENCODED_TOMBSTONE)
    assert max(looked) <= MAX_OFFSETS_PER_STEP
    assert len(decision.records) == MAX_TOMBSTONES_PER_BATCH
    rig.run(decision)
    assert sum(map(len, rig.shard.committed(GROUP).values())) == left - MAX_TOMBSTONES_PER_BATCH


def _commit_in_transaction(rig: Rig, group_id: str, offsets: int) -> None:
    partitions = tuple(TxnOffsetCommitRequestPartition(number, 5) for number in range(offsets))
    topics = (TxnOffsetCommitRequestTopic("t", partitions),)
    request = TxnOffsetCommitRequest("tx", group_id, 7, 0, topics=topics)
    rig.run(rig.shard.commit_transactional_offsets(rig.token(), request, rig.now_ms))


def test_offsets_in_open_transactions_are_looked_at_in_steps() -> None:
    """All were gone through at the first step: 22 ms for 100,000."""
    rig = _with_many()
    _commit_in_transaction(rig, GROUP, 3 * _OFFSETS)
    looked, decision = _steps(rig.shard.topics_deleted, OffsetStore.pending_partitions.__code__)
    assert max(looked) <= MAX_OFFSETS_PER_STEP
    assert sum(looked) == 3 * _OFFSETS + 1
    assert decision.records == ()


def test_groups_with_offsets_in_open_transactions_alone_are_looked_at_in_steps() -> None:
    """They did not count, and a thousand such groups were one step."""
    rig, sizes = Rig(), [MAX_OFFSETS_PER_STEP // 4] * 10
    for number, size in enumerate(sizes):
        _commit_in_transaction(rig, f"g{number}", size)
    looked, _ = _steps(rig.shard.topics_deleted, OffsetStore.pending_partitions.__code__)
    assert max(looked) <= MAX_OFFSETS_PER_STEP
    assert sum(looked) == sum(sizes) + len(sizes)


def test_offsets_of_gone_topics_that_could_not_be_deleted_are_deleted_later() -> None:
    """Groups that were done before the batch was refused had kept theirs until the next topic was deleted."""
    rig = Rig()
    for group_id in ("g0", "g1"):
        _commit(rig, group_id, MAX_TOMBSTONES_PER_BATCH - 1)
    rig.topic_ids["t"] = None
    rig.fail_with = ErrorCode.KAFKA_STORAGE_ERROR
    rig.run(rig.shard.topics_deleted())
    assert rig.shard.committed("g0") != {}
    rig.advance(rig.config.append_retry_ms)
    assert (rig.shard.committed("g0"), rig.shard.committed("g1")) == ({}, {})


def test_many_groups_are_looked_at_in_steps() -> None:
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=0, offsets_retention_ms=1_000))
    groups = MAX_OFFSETS_PER_STEP + MAX_OFFSETS_PER_STEP // 4
    for number in range(groups):
        rig.commit(1, group_id=f"g{number}")
    looked, decision = _steps(lambda: rig.shard.timer(RETENTION, rig.now_ms), _HAS_EXPIRED)
    assert len(looked) == 3
    assert sum(looked) == groups
    assert decision.records == ()


def test_a_step_ends_before_the_next_group_is_too_much_for_it() -> None:
    """What was left of a group did not count: a step could look at three times as many."""
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=0, offsets_retention_ms=1_000))
    sizes = (2 * MAX_OFFSETS_PER_STEP - 1, MAX_OFFSETS_PER_STEP - 2, MAX_OFFSETS_PER_STEP - 2)
    for number, size in enumerate(sizes):
        _commit(rig, f"g{number}", size)
    looked, _ = _steps(lambda: rig.shard.timer(RETENTION, rig.now_ms), _HAS_EXPIRED)
    assert max(looked) <= MAX_OFFSETS_PER_STEP
    assert sum(looked) == sum(sizes)

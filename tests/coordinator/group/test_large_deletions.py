"""A group with very many offsets is deleted: nothing is encoded or decoded for each of them alone."""

from ottla.wire import schema
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.coordinator.group.rig import GROUP, Rig
from tests.counted_calls import calls

_OFFSETS = 1_000
_CODED = (schema.decode.__code__, schema.encode.__code__)


def _with_offsets() -> Rig:
    rig = Rig()
    partitions = tuple(OffsetCommitRequestPartition(number, 1, 0, "") for number in range(_OFFSETS))
    topics = tuple(OffsetCommitRequestTopic(name=name, partitions=partitions) for name in ("t", "u"))
    rig.run(rig.shard.commit_offsets(rig.token(), OffsetCommitRequest(GROUP, topics=topics), rig.now_ms))
    rig.commit_in_transaction(2, producer_id=7)
    rig.commit(1, group_id="another")
    return rig


def _delete(rig: Rig) -> ErrorCode:
    token = rig.token()
    rig.run(rig.shard.delete_group(token, GROUP))
    return ErrorCode(rig.answer(token).error_code)


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

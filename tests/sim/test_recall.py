"""What a coordinator forgets from one life to the next is found; the last batch of its log may be news."""

from __future__ import annotations

from ottla.coordinator.decision import LogRecord
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.txn.metadata import TransactionMetadata, to_record
from ottla.coordinator.txn.shard import TransactionShard
from ottla.coordinator.txn.states import TransactionState, TransactionVersion
from ottla.wire.batch import parse_header
from ottla.wire.markers import control_batch
from ottla.wire.offsets_records import OffsetCommitValue, encode_offset_commit_key, encode_offset_commit_value
from ottla.wire.records import Record, encode_batch
from sim.cluster.log import Entry
from sim.recall import forgotten


def _entry(payload: bytes) -> Entry:
    return Entry(0, 0, 0, parse_header(payload), payload)


def _last(*records: LogRecord) -> Entry:
    return _entry(encode_batch([Record(at, 0, each.key, each.value) for at, each in enumerate(records)]))


def _id(name: str, epoch: int) -> LogRecord:
    state, version = TransactionState.EMPTY, TransactionVersion.V2
    return to_record(TransactionMetadata(name, 7, -1, -1, epoch, -1, 1000, state, frozenset(), -1, 0, version))


def _transactions(*records: LogRecord) -> TransactionShard:
    shard = TransactionShard(0, lambda: 1)
    for record in records:
        shard.apply(record, 0)
    return shard


def _commit(group: str, offset: int) -> LogRecord:
    return LogRecord(encode_offset_commit_key(group, "t", 0), encode_offset_commit_value(OffsetCommitValue(offset)))


def _groups(*records: LogRecord) -> GroupShard:
    shard = GroupShard(GroupConfig(), lambda topic: None)
    for record in records:
        shard.apply(record, 0)
    return shard


def test_a_transactional_id_that_is_another_one_now_is_found() -> None:
    former = _transactions(_id("a", 1), _id("b", 1))
    assert forgotten(former, _transactions(_id("a", 1), _id("b", 1)), None) == []
    assert len(forgotten(former, _transactions(_id("a", 1), _id("b", 0)), None)) == 1
    assert len(forgotten(former, _transactions(_id("a", 1)), _last(_id("a", 1)))) == 1
    assert len(forgotten(_transactions(), former, None)) == 2


def test_the_last_batch_may_be_news() -> None:
    former = _transactions(_id("a", 1))
    assert forgotten(former, _transactions(_id("a", 2)), _last(_id("a", 2))) == []
    assert forgotten(_groups(), _groups(_commit("g", 1)), _last(_commit("g", 1))) == []


def test_an_offset_that_goes_back_is_found() -> None:
    former = _groups(_commit("g", 5))
    assert len(forgotten(former, _groups(_commit("g", 4)), _last(_commit("h", 1)))) == 1
    assert len(forgotten(former, _groups(), None)) == 1


def test_a_marker_may_be_news() -> None:
    former, now = _groups(), _groups()
    for shard in (former, now):
        shard.apply_transactional(7, _commit("g", 5))
    now.apply_marker(7, True)
    marker = control_batch(commit=True, producer_id=7, producer_epoch=1, coordinator_epoch=0, timestamp_ms=0)
    other = control_batch(commit=True, producer_id=8, producer_epoch=1, coordinator_epoch=0, timestamp_ms=0)
    assert forgotten(former, now, _entry(marker)) == []
    assert len(forgotten(former, now, _entry(other))) == 1

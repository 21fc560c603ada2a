"""The records of a consumer group: how each is written, and what it changes in the group when it is in the log."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import islice
from typing import Final

from ottla.base.limits import MAX_NAMES_AT_ONCE
from ottla.base.steps import Pace, result_of
from ottla.coordinator.decision import LogRecord
from ottla.coordinator.group.consumer.group import ConsumerGroup, Resolved
from ottla.coordinator.group.consumer.member import Assigned, Member, Target, to_topics
from ottla.wire import consumer_group_records as wire
from ottla.wire.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    TargetTopicPartition,
)
from ottla.wire.offsets_records import record_type

#: Bytes of records from which one step makes a group: some 7 milliseconds for the largest record, one or two for many.
_BYTES_AT_ONCE: Final = 60_000
#: What a record costs beside its bytes, in bytes.
_BYTES_OF_RECORD: Final = 400


def _record(key: wire.Key, value: wire.Value | None) -> LogRecord:
    return LogRecord(wire.encode_key(key), None if value is None else wire.encode_value(value))


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> LogRecord:
    """The group's epoch, and the hash of what it subscribes to."""
    return _record(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash))


def member_record(group_id: str, member: Member) -> LogRecord:
    """Who a member is, and what it subscribes to."""
    return _record(ConsumerGroupMemberMetadataKey(group_id, member.member_id), member.metadata_value())


def target_record(group_id: str, member_id: str, target: Target) -> LogRecord:
    """A member's part of the target."""
    topics = tuple(TargetTopicPartition(topic_id, tuple(sorted(numbers))) for topic_id, numbers in target.items())
    key = ConsumerGroupTargetAssignmentMemberKey(group_id, member_id)
    return _record(key, ConsumerGroupTargetAssignmentMemberValue(topics))


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> LogRecord:
    """The target is that of this group epoch."""
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id)
    return _record(key, ConsumerGroupTargetAssignmentMetadataValue(epoch, timestamp_ms))


def current_record(group_id: str, member: Member) -> LogRecord:
    """What a member has, in which epoch and state."""
    return result_of(current_record_steps(group_id, member))


def current_record_steps(group_id: str, member: Member) -> Generator[None, None, LogRecord]:
    """The same in steps, where the member has very many topics."""
    assigned = yield from _current(member.assigned)
    revoking = yield from _current(member.revoking)
    if len(assigned) + len(revoking) > MAX_NAMES_AT_ONCE:
        yield
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id)
    return _record(key, member.current_value(assigned, revoking))


def _current(partitions: Assigned) -> Generator[None, None, tuple[CurrentTopicPartitions, ...]]:
    topics: list[CurrentTopicPartitions] = []
    there = iter(partitions.items())
    while part := dict(islice(there, MAX_NAMES_AT_ONCE)):
        if topics:
            yield
        topics += to_topics(part)
    return tuple(topics)


def regex_record(group_id: str, regex: str, resolved: Resolved | None) -> LogRecord:
    """The topics that a regular expression matched; None when nobody uses it any more."""
    value = None
    if resolved is not None:
        value = ConsumerGroupRegularExpressionValue(
            tuple(sorted(resolved.topics)), resolved.version, resolved.timestamp_ms
        )
    return _record(ConsumerGroupRegularExpressionKey(group_id, regex), value)


def partition_metadata_tombstone(group_id: str) -> LogRecord:
    """Kafka before 4.1 kept a group's topics in a record of its own; it has no use any more."""
    return _record(ConsumerGroupPartitionMetadataKey(group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[LogRecord]:
    """A member is gone."""
    return [
        _record(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        _record(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        _record(ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]


def group_tombstones(group: ConsumerGroup, members: Iterable[str] | None = None) -> list[LogRecord]:
    """The group is gone, with all that belongs to it; `members` when they are others than the group's own."""
    group_id, ids = group.group_id, list(group.members if members is None else members)
    return [
        *(_record(ConsumerGroupCurrentMemberAssignmentKey(group_id, each), None) for each in ids),
        *(_record(ConsumerGroupTargetAssignmentMemberKey(group_id, each), None) for each in ids),
        _record(ConsumerGroupTargetAssignmentMetadataKey(group_id), None),
        *(_record(ConsumerGroupMemberMetadataKey(group_id, each), None) for each in ids),
        *(regex_record(group_id, each, None) for each in group.regexes),
        partition_metadata_tombstone(group_id),
        _record(ConsumerGroupMetadataKey(group_id), None),
    ]


def group_of(group_id: str, records: Iterable[LogRecord]) -> Generator[None, None, ConsumerGroup]:
    """The group that these records make, those among them that are of a consumer group. In steps, if they are much."""
    group, pace = ConsumerGroup(group_id), Pace(_BYTES_AT_ONCE)
    for record in records:
        if record_type(record.key) in wire.RECORD_TYPES:
            key = wire.decode_key(record.key)
            value = None if record.value is None else wire.decode_value(key, record.value)
            apply(group, key, value, has_value=record.value is not None)
        if pace.is_over(_BYTES_OF_RECORD + len(record.value or b"")):
            yield
    return group


def group_id_of(key: wire.Key) -> str:
    """The group that a record belongs to."""
    return key.group_id


def is_group_tombstone(key: wire.Key, value: wire.Value | None) -> bool:
    """Whether the record deletes the whole group."""
    return value is None and isinstance(key, ConsumerGroupMetadataKey)


def apply(group: ConsumerGroup, key: wire.Key, value: wire.Value | None, *, has_value: bool) -> None:
    """A record of this group is in the log. `value` is None for a tombstone, and for a value nobody looks into."""
    match key, value:
        case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue(epoch, metadata_hash):
            group.apply_epoch(epoch, metadata_hash)
        case ConsumerGroupMetadataKey(), _:
            group.check_deletable()
        case ConsumerGroupPartitionMetadataKey(), _:
            group.has_partition_metadata = has_value
        case ConsumerGroupMemberMetadataKey(_, member_id), ConsumerGroupMemberMetadataValue() as metadata:
            group.apply_member(group.members.get(member_id, Member(member_id)).with_metadata(metadata))
        case ConsumerGroupMemberMetadataKey(_, member_id), _:
            group.apply_member_tombstone(member_id)
        case ConsumerGroupTargetAssignmentMetadataKey(), ConsumerGroupTargetAssignmentMetadataValue(epoch, at_ms):
            group.apply_target_epoch(epoch, at_ms)
        case ConsumerGroupTargetAssignmentMetadataKey(), _:
            group.apply_target_tombstone()
        case ConsumerGroupTargetAssignmentMemberKey(_, member_id), ConsumerGroupTargetAssignmentMemberValue(topics):
            group.apply_target(member_id, {each.topic_id: frozenset(each.partitions) for each in topics})
        case ConsumerGroupTargetAssignmentMemberKey(_, member_id), _:
            group.apply_target(member_id, None)
        case ConsumerGroupCurrentMemberAssignmentKey(_, member_id), ConsumerGroupCurrentMemberAssignmentValue() as now:
            group.apply_member(group.members.get(member_id, Member(member_id)).with_current(now))
        case ConsumerGroupCurrentMemberAssignmentKey(_, member_id), _:
            group.apply_current_tombstone(member_id)
        case ConsumerGroupRegularExpressionKey(_, regex), ConsumerGroupRegularExpressionValue(topics, version, at_ms):
            group.apply_regex(regex, Resolved(frozenset(topics), version, at_ms))
        case ConsumerGroupRegularExpressionKey(_, regex), _:
            group.apply_regex(regex, None)

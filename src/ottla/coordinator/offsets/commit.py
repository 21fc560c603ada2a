"""OffsetCommit (v2–10) and TxnOffsetCommit (v0–5): who may commit, and the records that do it (O1, T11, G12)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ottla.base.types import TopicPartition
from ottla.coordinator.decision import LogRecord
from ottla.coordinator.offsets.groups import Commit, GroupOfOffsets
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.offsets_records import OffsetCommitValue, encode_offset_commit_key, encode_offset_commit_value

#: The last millisecond that a record has room for.
_LATEST_MS: Final = 2**63 - 1


def check_commit(group: GroupOfOffsets | None, request: OffsetCommitRequest, *, report_missing: bool) -> ErrorCode:
    """NONE, or why the whole commit is refused.

    A commit without a generation (-1) comes from a consumer that assigns its partitions by hand, or from an
    administrator. It is accepted while the group has no members, and makes the group if it does not exist.
    `report_missing`: the client understands GROUP_ID_NOT_FOUND and member epochs (v9+).
    """
    epoch = request.generation_id_or_member_epoch
    if group is None:
        if epoch < 0:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if report_missing else ErrorCode.ILLEGAL_GENERATION
    partitions = tuple((topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions)
    return group.check_commit(
        Commit(
            request.member_id,
            request.group_instance_id,
            epoch,
            partitions,
            knows_member_epochs=report_missing,
        )
    )


def check_transactional_commit(
    group: GroupOfOffsets | None, request: TxnOffsetCommitRequest, topic_id: Callable[[str], bytes | None]
) -> ErrorCode:
    """NONE, or why the whole commit is refused (KIP-447: a member fenced by a rebalance cannot commit).

    Producers older than KIP-447 name no member and no generation; only their epoch can fence them. The group's state
    does not matter here, because the offsets only count when the transaction commits.
    """
    if group is None:
        return ErrorCode.NONE if request.generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
    ids = {topic.name: topic_id(topic.name) or NULL_UUID for topic in request.topics}
    partitions = tuple((ids[topic.name], each.partition_index) for topic in request.topics for each in topic.partitions)
    error = group.check_commit(
        Commit(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            partitions,
            transactional=True,
        )
    )
    # A producer knows no member epochs.
    return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error


def commit_records(
    request: OffsetCommitRequest, now_ms: int, metadata_limit: int
) -> tuple[list[LogRecord], OffsetCommitResponse]:
    """The records of an accepted commit, and its answer. A partition with metadata that is too long is refused."""
    expire_ms = _expire_ms(request.retention_time_ms, now_ms)
    records: list[LogRecord] = []
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        answers: list[OffsetCommitResponsePartition] = []
        for partition in topic.partitions:
            error = _check_metadata(partition.committed_metadata, metadata_limit)
            answers.append(OffsetCommitResponsePartition(partition.partition_index, error))
            if error is ErrorCode.NONE:
                value = _value(partition, now_ms, expire_ms, topic.topic_id)
                records.append(offset_record(request.group_id, topic.name, partition.partition_index, value))
        topics.append(OffsetCommitResponseTopic(topic.topic_id, topic.name, tuple(answers)))
    return records, OffsetCommitResponse(topics=tuple(topics))


def _expire_ms(retention_ms: int, now_ms: int) -> int:
    """When offsets expire that are to be kept for `retention_ms`; -1 when the broker's own retention holds.

    The time must have room in a record, and must not become -1 by chance. (In Apache Kafka the sum wraps around, and
    the offsets are gone at once.)
    """
    return -1 if retention_ms == -1 else min(max(now_ms + retention_ms, 0), _LATEST_MS)


def transactional_commit_records(
    request: TxnOffsetCommitRequest, now_ms: int, metadata_limit: int, topic_id: Callable[[str], bytes | None]
) -> tuple[list[LogRecord], TxnOffsetCommitResponse]:
    """The same for a commit inside a transaction.

    The request has no topic ids, and so Apache Kafka 4.3's records have none. Ours have the ids that the broker knows:
    otherwise these offsets would look like offsets of a later topic with the same name.
    """
    records: list[LogRecord] = []
    topics: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        known_id = topic_id(topic.name) or NULL_UUID
        answers: list[TxnOffsetCommitResponsePartition] = []
        for partition in topic.partitions:
            error = _check_metadata(partition.committed_metadata, metadata_limit)
            answers.append(TxnOffsetCommitResponsePartition(partition.partition_index, error))
            if error is ErrorCode.NONE:
                value = _value(partition, now_ms, -1, known_id)
                records.append(offset_record(request.group_id, topic.name, partition.partition_index, value))
        topics.append(TxnOffsetCommitResponseTopic(topic.name, tuple(answers)))
    return records, TxnOffsetCommitResponse(topics=tuple(topics))


def offset_record(group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> LogRecord:
    """The record of one committed offset."""
    return LogRecord(encode_offset_commit_key(group_id, topic, partition), encode_offset_commit_value(value))


def offset_tombstone(group_id: str, topic: str, partition: int) -> LogRecord:
    """The record that deletes one committed offset."""
    return LogRecord(encode_offset_commit_key(group_id, topic, partition), None)


def offset_tombstones(group_id: str, partitions: Iterable[TopicPartition]) -> Iterator[LogRecord]:
    """The same for many: of each topic the beginning of the keys, which all its partitions have, is encoded once."""
    begins: dict[str, bytes] = {}
    for topic, partition in partitions:
        begin = begins.get(topic)
        if begin is None:
            begin = begins[topic] = encode_offset_commit_key(group_id, topic, 0)[:-4]  # the partition comes last
        yield LogRecord(begin + partition.to_bytes(4, "big", signed=True), None)


def refuse_commit(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The same error for every partition."""
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                topic.topic_id,
                topic.name,
                tuple(OffsetCommitResponsePartition(p.partition_index, error) for p in topic.partitions),
            )
            for topic in request.topics
        )
    )


def refuse_transactional_commit(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """The same error for every partition."""
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                topic.name, tuple(TxnOffsetCommitResponsePartition(p.partition_index, error) for p in topic.partitions)
            )
            for topic in request.topics
        )
    )


def _check_metadata(metadata: str | None, limit: int) -> ErrorCode:
    too_long = metadata is not None and len(metadata) > limit
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if too_long else ErrorCode.NONE


def _value(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    now_ms: int,
    expire_ms: int,
    topic_id: bytes,
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=expire_ms,
        topic_id=topic_id,
    )

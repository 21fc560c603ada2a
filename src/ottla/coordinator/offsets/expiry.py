"""Which offsets are deleted: by retention (O2, KIP-211), OffsetDelete, and with groups and topics. By tombstones."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import chain
from typing import NamedTuple

from ottla.base.limits import MAX_OFFSETS_PER_STEP
from ottla.base.types import TopicPartition
from ottla.coordinator.decision import LogRecord
from ottla.coordinator.offsets.commit import offset_tombstone
from ottla.coordinator.offsets.groups import GroupOfOffsets
from ottla.coordinator.offsets.store import OffsetStore
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.offsets_records import OffsetCommitValue


class Expired(NamedTuple):
    """Partitions of a group whose offsets have expired, and whether the group has nothing else."""

    partitions: tuple[TopicPartition, ...]
    nothing_left: bool


def expired(
    group: GroupOfOffsets, store: OffsetStore, now_ms: int, retention_ms: int
) -> Generator[None, None, Expired]:
    """O2: the offsets of a group whose retention is over. In steps, between which nothing is applied."""
    offsets = store.of_group(group.group_id)
    since = group.retention_starts()
    if since is None:
        return Expired((), False)
    gone: list[TopicPartition] = []
    for at, (partition, committed) in enumerate(offsets.items(), 1):
        if (
            not group.is_subscribed_to(partition.topic)
            and not store.is_pending(group.group_id, partition)
            and _has_expired(committed.value, since(committed.value), now_ms, retention_ms)
        ):
            gone.append(partition)
        if at % MAX_OFFSETS_PER_STEP == 0:
            yield
    return Expired(tuple(gone), len(gone) == len(offsets) and not store.has_pending(group.group_id))


def _has_expired(value: OffsetCommitValue, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    if value.expire_timestamp_ms != -1:  # in old versions a commit could have a retention of its own
        return now_ms >= value.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms


def gone_topics_tombstones(
    group_id: str, store: OffsetStore, topic_id: Callable[[str], bytes | None]
) -> Iterator[LogRecord | None]:
    """Tombstones for a group's offsets, including those in open transactions, of topics that do not exist any more.
    In steps, which end with None; nothing is applied between two of them.

    `topic_id` gives the id that a topic with this name has now, or None. Offsets with another id belong to an older
    topic with the same name. A partition that has offsets of both keeps them: the newer ones win.
    """
    current: dict[str, bytes | None] = {}
    committed = store.of_group(group_id)
    for at, partition in enumerate(chain(committed, store.pending_partitions(group_id)), 1):
        if at % MAX_OFFSETS_PER_STEP == 0:
            yield None
        if at > len(committed) and partition in committed:
            continue  # it was looked at
        if partition.topic not in current:
            current[partition.topic] = topic_id(partition.topic)
        there = current[partition.topic]
        if there is None or all(are_different(value.topic_id, there) for value in store.values(group_id, partition)):
            yield offset_tombstone(group_id, *partition)


def are_different(topic_id: bytes, other_id: bytes) -> bool:
    """Whether these are the ids of two different topics. An unknown id may be any id, so it is not different."""
    return NULL_UUID not in (topic_id, other_id) and topic_id != other_id


def check_delete(group: GroupOfOffsets | None) -> ErrorCode:
    """NONE, or why offsets of this group may not be deleted (OffsetDelete, KIP-496)."""
    return ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()


def delete_records(
    group: GroupOfOffsets, store: OffsetStore, request: OffsetDeleteRequest
) -> tuple[list[LogRecord], OffsetDeleteResponse]:
    """Tombstones for the named partitions, and the answer. Topics that members subscribe to keep their offsets."""
    records: list[LogRecord] = []
    answers: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic.name) else ErrorCode.NONE
        if error is ErrorCode.NONE:
            records += _delete_topic(group.group_id, store, topic)
        partitions = tuple(OffsetDeleteResponsePartition(p.partition_index, error) for p in topic.partitions)
        answers.append(OffsetDeleteResponseTopic(topic.name, partitions))
    return records, OffsetDeleteResponse(topics=tuple(answers))


def _delete_topic(group_id: str, store: OffsetStore, topic: OffsetDeleteRequestTopic) -> list[LogRecord]:
    wanted = dict.fromkeys(TopicPartition(topic.name, p.partition_index) for p in topic.partitions)
    return [
        offset_tombstone(group_id, *partition)
        for partition in wanted
        if partition in store.of_group(group_id) or store.is_pending(group_id, partition)
    ]

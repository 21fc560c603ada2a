"""OffsetFetch (v1–10): what a group has committed (O3). Many groups in one request: the runtime asks each one's shard.

`require_stable` (KIP-447) does not hold the request back: a partition with an offset in an open transaction answers
UNSTABLE_OFFSET_COMMIT and the client asks again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator
from typing import Final

from ottla.base.steps import result_of
from ottla.base.types import TopicPartition
from ottla.coordinator.offsets.expiry import are_different
from ottla.coordinator.offsets.store import OffsetStore
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

#: The answer for a partition without a committed offset.
INVALID_OFFSET: Final = -1
#: Offsets whose partitions are named in one step: less than a millisecond.
_NAMED_AT_ONCE: Final = 1_000


def fetch(
    store: OffsetStore,
    request: OffsetFetchRequestGroup,
    *,
    require_stable: bool,
    topic_id: Callable[[str], bytes | None],
) -> OffsetFetchResponseGroup:
    """The committed offsets of one group: of the partitions named, or with `topics` None of all there are.

    `topic_id` gives the id that a topic has now, or None. A topic that was deleted and made again has another id. The
    offsets of the older topic do not count (KIP-848), although their tombstones may not be written yet.
    """
    group_id = request.group_id
    topics = result_of(all_topics(store, group_id, topic_id)) if request.topics is None else request.topics
    return OffsetFetchResponseGroup(
        group_id=group_id,
        topics=tuple(
            _of_topic(store, group_id, topic, topic_id(topic.name) or NULL_UUID, require_stable=require_stable)
            for topic in topics
        ),
    )


def all_topics(
    store: OffsetStore, group_id: str, topic_id: Callable[[str], bytes | None]
) -> Generator[None, None, list[OffsetFetchRequestTopics]]:
    """The partitions for which a group has committed an offset, as a request for all of them names them. In steps."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    partitions = tuple(iter(store.of_group(group_id)))  # tuple() would ask first how many there are, and count them
    for begin in range(0, len(partitions), _NAMED_AT_ONCE):
        if begin:
            yield
        offsets = store.of_group(group_id)  # as they are now
        for partition in partitions[begin : begin + _NAMED_AT_ONCE]:
            committed = offsets.get(partition)
            if committed is None:
                continue
            if not are_different(committed.value.topic_id, topic_id(partition.topic) or NULL_UUID):
                by_topic[partition.topic].append(partition.partition)
    topics: list[OffsetFetchRequestTopics] = []
    for number, (topic, numbers) in enumerate(by_topic.items()):
        if number and number % _NAMED_AT_ONCE == 0:
            yield
        topics.append(OffsetFetchRequestTopics(name=topic, partition_indexes=tuple(sorted(numbers))))
    return topics


def _of_topic(
    store: OffsetStore, group_id: str, topic: OffsetFetchRequestTopics, current_id: bytes, *, require_stable: bool
) -> OffsetFetchResponseTopics:
    # A request by id may be older than the topic that has the name now.
    ids = [each for each in (topic.topic_id, current_id) if each != NULL_UUID]
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        name=topic.name,
        partitions=tuple(
            _one(store, group_id, TopicPartition(topic.name, each), ids, require_stable=require_stable)
            for each in topic.partition_indexes
        ),
    )


def _one(
    store: OffsetStore, group_id: str, partition: TopicPartition, topic_ids: list[bytes], *, require_stable: bool
) -> OffsetFetchResponsePartitions:
    if require_stable and store.is_pending(group_id, partition):
        return _without(partition.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = store.of_group(group_id).get(partition)
    if committed is None or any(are_different(committed.value.topic_id, each) for each in topic_ids):
        return _without(partition.partition, ErrorCode.NONE)
    value = committed.value
    return OffsetFetchResponsePartitions(
        partition_index=partition.partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def refuse(request: OffsetFetchRequestGroup, error: ErrorCode) -> OffsetFetchResponseGroup:
    """The whole group is refused."""
    return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error)


def _without(partition: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=INVALID_OFFSET, error_code=error)


def groups_of(request: OffsetFetchRequest) -> tuple[OffsetFetchRequestGroup, ...]:
    """The groups that are asked for. Versions 1 to 7 ask for one group; it is brought into the later form."""
    if request.groups:
        return request.groups
    topics = request.topics
    return (
        OffsetFetchRequestGroup(
            group_id=request.group_id,
            topics=None
            if topics is None
            else tuple(OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics),
        ),
    )


def response_of(request: OffsetFetchRequest, groups: tuple[OffsetFetchResponseGroup, ...]) -> OffsetFetchResponse:
    """The answer in the request's form."""
    if request.groups:
        return OffsetFetchResponse(groups=groups)
    topics = tuple(
        OffsetFetchResponseTopic(t.name, tuple(OffsetFetchResponsePartition(*p) for p in t.partitions))
        for t in groups[0].topics
    )
    return OffsetFetchResponse(topics=topics, error_code=groups[0].error_code)

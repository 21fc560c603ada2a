"""Reading and writing a group's committed offsets, for consumers and admins alike."""

from collections.abc import Iterable, Mapping

from ottla.base.types import TopicPartition
from ottla.client.core.intents import CoordinatorKind
from ottla.client.core.metadata import ClusterSnapshot
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.net.coordinators import Coordinators
from ottla.wire.apis import ApiKey
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

_GROUP = CoordinatorKind.GROUP
#: OffsetCommit and OffsetFetch name topics by id from version 10 on; names say the same and are always at hand.
_LAST_VERSION_WITH_NAMES = 9


async def fetch_committed(
    coordinators: Coordinators,
    snapshot: ClusterSnapshot,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool = False,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """One attempt at the committed offsets of `partitions` (None: all there are); those without one are left out.

    With `require_stable` an offset in an open transaction is a retriable error (KIP-447).
    """
    topics = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for tp in sorted(partitions):
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        topics = tuple(OffsetFetchRequestTopics(snapshot.topic_id(t), t, tuple(ps)) for t, ps in by_topic.items())
    request = OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id, topics=topics),), require_stable=require_stable
    )
    answer: OffsetFetchResponse = await coordinators.request(
        _GROUP, group_id, ApiKey.OFFSET_FETCH, request, cap=_LAST_VERSION_WITH_NAMES
    )
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for group in answer.groups:
        coordinators.check(_GROUP, group_id, group.error_code, f"group {group_id}")
        for topic in group.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                coordinators.check(_GROUP, group_id, p.error_code, f"group {group_id}, {tp}")
                if p.committed_offset >= 0:
                    found[tp] = OffsetAndMetadata(p.committed_offset, p.metadata or "", p.committed_leader_epoch)
    return found


async def commit_offsets(
    coordinators: Coordinators,
    member: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    """One attempt at committing `offsets`. Raises KafkaError of the first partition that was refused."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for tp, offset in sorted(offsets.items()):
        by_topic.setdefault(tp.topic, []).append(
            OffsetCommitRequestPartition(tp.partition, offset.offset, offset.leader_epoch, offset.metadata)
        )
    request = OffsetCommitRequest(
        member.group_id,
        member.generation_id,
        member.member_id,
        member.group_instance_id,
        topics=tuple(OffsetCommitRequestTopic(name=name, partitions=tuple(ps)) for name, ps in by_topic.items()),
    )
    answer: OffsetCommitResponse = await coordinators.request(
        _GROUP, member.group_id, ApiKey.OFFSET_COMMIT, request, cap=_LAST_VERSION_WITH_NAMES
    )
    for topic in answer.topics:
        for p in topic.partitions:
            coordinators.check(
                _GROUP, member.group_id, p.error_code, f"group {member.group_id}, {topic.name}-{p.partition_index}"
            )

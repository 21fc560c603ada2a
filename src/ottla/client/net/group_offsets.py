"""Read and write a group's committed offsets: for the admin client, and for a consumer's `committed()`."""

from collections.abc import Collection, Mapping

from ottla.base.types import TopicPartition
from ottla.client.core.intents import CoordinatorKind
from ottla.client.core.metadata import ClusterSnapshot
from ottla.client.core.offset_requests import LAST_VERSION_WITH_NAMES, commit_request, committed_request
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.errors import IncompleteAnswerError
from ottla.client.net.coordinators import Coordinators
from ottla.wire.apis import ApiKey
from ottla.wire.messages.offset_commit import OffsetCommitResponse
from ottla.wire.messages.offset_fetch import OffsetFetchResponse

_GROUP = CoordinatorKind.GROUP


async def fetch_committed(
    coordinators: Coordinators,
    snapshot: ClusterSnapshot,
    group_id: str,
    partitions: Collection[TopicPartition] | None,
    *,
    require_stable: bool = False,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The committed offsets of `partitions` (None: of all), without partitions that have none. One attempt.

    With `require_stable` an offset that belongs to an open transaction is a retriable error (KIP-447).
    """
    request = committed_request(snapshot, group_id, partitions, require_stable=require_stable)
    answer: OffsetFetchResponse = await coordinators.request(
        _GROUP, group_id, ApiKey.OFFSET_FETCH, request, cap=LAST_VERSION_WITH_NAMES
    )
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    left_out = {TopicPartition(*tp) for tp in partitions or ()}
    for group in answer.groups:
        coordinators.check(_GROUP, group_id, group.error_code, f"group {group_id}")
        for topic in group.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                left_out.discard(tp)
                coordinators.check(_GROUP, group_id, p.error_code, f"group {group_id}, {tp}")
                if p.committed_offset >= 0:
                    found[tp] = OffsetAndMetadata(p.committed_offset, p.metadata or "", p.committed_leader_epoch)
    _require_whole(group_id, left_out)  # a partition that is left out may still have a committed offset
    if not answer.groups:
        raise IncompleteAnswerError(f"the coordinator says nothing about group {group_id}")
    return found


async def commit_offsets(
    coordinators: Coordinators,
    member: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    """Commit `offsets`. One attempt. Raises the KafkaError of the first partition that the broker refuses.

    Raises IncompleteAnswerError, which is retriable, if the answer leaves one out: to commit again does no harm.
    """
    request = commit_request(member, offsets)
    answer: OffsetCommitResponse = await coordinators.request(
        _GROUP, member.group_id, ApiKey.OFFSET_COMMIT, request, cap=LAST_VERSION_WITH_NAMES
    )
    left_out = {TopicPartition(*tp) for tp in offsets}
    for topic in answer.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            left_out.discard(tp)
            coordinators.check(_GROUP, member.group_id, p.error_code, f"group {member.group_id}, {tp}")
    _require_whole(member.group_id, left_out)


def _require_whole(group_id: str, left_out: Collection[TopicPartition]) -> None:
    """Raise IncompleteAnswerError if an answer has left out partitions."""
    if left_out:
        raise IncompleteAnswerError(f"group {group_id}: the coordinator says nothing about {min(left_out)}")

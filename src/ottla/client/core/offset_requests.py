"""How consumers, producers and the admin client fill requests about offsets: committed ones, and those in the log."""

from collections.abc import Iterable, Mapping

from ottla.base.types import TopicPartition
from ottla.client.core.metadata import ClusterSnapshot
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

#: From version 10 on OffsetCommit and OffsetFetch name topics by id. The client stays below: it always knows the name.
LAST_VERSION_WITH_NAMES = 9


def commit_request(
    member: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest:
    """Commit `offsets` for `member` and its group."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for tp, offset in sorted(offsets.items()):
        by_topic.setdefault(tp.topic, []).append(
            OffsetCommitRequestPartition(tp.partition, offset.offset, offset.leader_epoch, offset.metadata)
        )
    return OffsetCommitRequest(
        member.group_id,
        member.generation_id,
        member.member_id,
        member.group_instance_id,
        topics=tuple(OffsetCommitRequestTopic(name=name, partitions=tuple(ps)) for name, ps in by_topic.items()),
    )


def committed_request(
    snapshot: ClusterSnapshot,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool,
    member: ConsumerGroupMetadata | None = None,
) -> OffsetFetchRequest:
    """What has the group committed in these partitions? None: in all partitions.

    A `member` of the consumer protocol is refused if its epoch is out of date (KIP-848).
    """
    topics = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for tp in sorted(partitions):
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        topics = tuple(OffsetFetchRequestTopics(snapshot.topic_id(t), t, tuple(ps)) for t, ps in by_topic.items())
    member_id, epoch = (member.member_id, member.generation_id) if member is not None else (None, -1)
    group = OffsetFetchRequestGroup(group_id, member_id, epoch, topics)
    return OffsetFetchRequest(groups=(group,), require_stable=require_stable)


def list_request(
    snapshot: ClusterSnapshot, times: Mapping[TopicPartition, int], *, read_committed: bool
) -> ListOffsetsRequest:
    """Which offset does each partition have at its time (milliseconds, or a SpecialTimestamp)? To one leader."""
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for tp, timestamp_ms in times.items():
        part = ListOffsetsPartition(tp.partition, snapshot.leader_epoch(tp), timestamp_ms)
        by_topic.setdefault(tp.topic, []).append(part)
    topics = tuple(ListOffsetsTopic(name, tuple(ps)) for name, ps in by_topic.items())
    return ListOffsetsRequest(-1, int(read_committed), topics)


def epochs_request(snapshot: ClusterSnapshot, epochs: Mapping[TopicPartition, int]) -> OffsetForLeaderEpochRequest:
    """Where does each partition's log leave this leader epoch? To one leader, as a consumer asks it."""
    by_topic: dict[str, list[OffsetForLeaderPartition]] = {}
    for tp, epoch in epochs.items():
        part = OffsetForLeaderPartition(tp.partition, snapshot.leader_epoch(tp), epoch)
        by_topic.setdefault(tp.topic, []).append(part)
    return OffsetForLeaderEpochRequest(
        -1, tuple(OffsetForLeaderTopic(name, tuple(ps)) for name, ps in by_topic.items())
    )

"""Admin calls about the offsets that groups have committed, and how far groups are behind (SPEC G18)."""

from collections.abc import Iterable, Mapping

from ottla.base.types import TopicPartition
from ottla.client.admin.base import AdminBase
from ottla.client.admin.types import GroupLag, OffsetSpec
from ottla.client.core.intents import CoordinatorKind
from ottla.client.core.offsets import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    checked_group_id,
)
from ottla.client.net.group_offsets import commit_offsets, fetch_committed
from ottla.client.net.log_offsets import list_offsets
from ottla.client.net.record_times import first_timestamps
from ottla.client.net.retry import Deadline
from ottla.wire.apis import ApiKey
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

_GROUP = CoordinatorKind.GROUP
_Offsets = dict[TopicPartition, OffsetAndTimestamp]


class GroupOffsetCalls(AdminBase):
    """Committed offsets."""

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """A group's committed offsets: of `partitions`, or (None) of all partitions."""
        checked_group_id(group_id)
        wanted = None if partitions is None else list(partitions)
        return await self._requests.repeat(
            lambda: fetch_committed(self._requests.coordinators, self._cluster.snapshot, group_id, wanted),
            f"list_group_offsets({group_id})",
        )

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Set the committed offsets of a group without members. If it has members, raises KafkaError with
        UNKNOWN_MEMBER_ID."""
        member = ConsumerGroupMetadata(checked_group_id(group_id))
        await self._requests.repeat(
            lambda: commit_offsets(self._requests.coordinators, member, offsets), f"alter_group_offsets({group_id})"
        )

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the committed offsets of `partitions` (KIP-496). One that the group has not committed is no error.

        Raises KafkaError: with GROUP_ID_NOT_FOUND, or with GROUP_SUBSCRIBED_TO_TOPIC for a partition of a topic that
        members subscribe to; then the offsets of other topics are deleted.
        """
        checked_group_id(group_id)
        by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for tp in sorted(set(partitions)):
            by_topic.setdefault(tp.topic, []).append(OffsetDeleteRequestPartition(tp.partition))
        topics = tuple(OffsetDeleteRequestTopic(name, tuple(found)) for name, found in by_topic.items())

        async def attempt() -> None:
            answer: OffsetDeleteResponse = await self._requests.ask_coordinator(
                _GROUP, group_id, ApiKey.OFFSET_DELETE, OffsetDeleteRequest(group_id, topics)
            )
            self._requests.coordinators.check(_GROUP, group_id, answer.error_code, f"group {group_id}")
            for topic in answer.topics:
                for p in topic.partitions:
                    what = f"group {group_id}, {topic.name}-{p.partition_index}"
                    self._requests.coordinators.check(_GROUP, group_id, p.error_code, what)

        await self._requests.repeat(attempt, f"delete_group_offsets({group_id})")

    async def list_group_lags(
        self, group_id: str, also: Iterable[TopicPartition] = ()
    ) -> dict[TopicPartition, GroupLag]:
        """How far a group is behind, in each partition that it has committed an offset of, and in `also`.

        The end is the high watermark, as in Kafka's own tools, also for a group that reads only what is committed. To
        find since when a record waits, this fetches that record: one request for each partition that is behind.
        """
        committed = await self.list_group_offsets(group_id)
        partitions = sorted(committed.keys() | set(also))
        async with self._requests.ready() as deadline:
            with self._cluster.tracking({tp.topic for tp in partitions}) as is_new:
                if is_new:
                    await self._cluster.refreshed(deadline.left_ms)  # else a new topic would look as if it were gone
                starts, ends, since_ms = await self._extents(partitions, committed, deadline)
        return {
            tp: GroupLag(
                committed.get(tp),
                starts[tp].offset if tp in starts else None,
                ends[tp].offset if tp in ends else None,
                since_ms.get(tp),
            )
            for tp in partitions
        }

    async def _extents(
        self,
        partitions: Iterable[TopicPartition],
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
    ) -> tuple[_Offsets, _Offsets, dict[TopicPartition, int]]:
        """Where each log starts and ends, and when the first record behind what is `committed` was written."""
        starts, ends = [
            await list_offsets(
                self._cluster,
                dict.fromkeys(partitions, when),
                read_committed=False,
                timeout_ms=deadline.left_ms,
                leave_out_gone=True,
            )
            for when in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        ]
        unread = {
            tp: range(max(at.offset, starts[tp].offset), ends[tp].offset)
            for tp, at in committed.items()
            if tp in starts and tp in ends
        }
        return starts, ends, await first_timestamps(self._cluster, unread, timeout_ms=deadline.left_ms)

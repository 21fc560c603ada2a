"""Calls that only ask: for committed offsets, and for offsets by time. They do not need the core."""

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.config.consumer import ConsumerConfig
from ottla.client.core.intents import Channel
from ottla.client.core.offsets import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    checked_offsets,
    checked_partition,
    checked_time,
)
from ottla.client.errors import IllegalStateError
from ottla.client.net.cluster import Cluster
from ottla.client.net.coordinators import Coordinators
from ottla.client.net.group_offsets import fetch_committed
from ottla.client.net.log_offsets import list_offsets
from ottla.client.net.retry import Deadline
from ottla.client.net.supervisor import Supervisor

T = TypeVar("T")


class Lookups:
    """The lookups of one consumer."""

    def __init__(self, config: ConsumerConfig, cluster: Cluster, supervisor: Supervisor) -> None:
        self._config = config
        self._cluster = cluster
        self._supervisor = supervisor
        self._coordinators = Coordinators(cluster, Channel.COORDINATOR)

    def checked(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None
    ) -> dict[TopicPartition, OffsetAndMetadata] | None:
        """What can be committed. Raises IllegalStateError without a group, ValueError for a negative offset."""
        if self._config.group_id is None:
            raise IllegalStateError("commits need a group.id in the consumer's configuration")
        return checked_offsets(offsets)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets, where there are any. Raises RequestTimeoutError, KafkaError."""
        wanted = [checked_partition(tp) for tp in partitions]
        return await self._watched(self._committed(wanted, timeout_ms))

    async def offsets_at(
        self, times: Mapping[TopicPartition, int], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The offset of each partition at its time; -1 where there is none. Raises RequestTimeoutError, KafkaError."""
        read_committed = self._config.read_committed
        times = {checked_partition(tp): checked_time(time) for tp, time in times.items()}
        return await self._watched(
            list_offsets(self._cluster, times, read_committed=read_committed, timeout_ms=timeout_ms)
        )

    async def _watched(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work`, as long as the client has not crashed."""
        try:
            await self._cluster.start()
            self._supervisor.check()
        except BaseException:
            work.close()
            raise
        async with self._supervisor.scope():
            return await work

    async def _committed(
        self, partitions: list[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        deadline = Deadline(timeout_ms)
        group_id, cluster = self._config.group_id, self._cluster
        if group_id is None:
            raise IllegalStateError("committed offsets need a group.id in the consumer's configuration")
        stable = self._config.read_committed
        await cluster.ensure_metadata(deadline.left_ms)
        return await cluster.retrying(
            lambda: fetch_committed(self._coordinators, cluster.snapshot, group_id, partitions, require_stable=stable),
            what="committed",
            timeout_ms=deadline.left_ms,
        )

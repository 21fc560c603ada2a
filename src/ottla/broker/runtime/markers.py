"""Writes transaction markers to the leaders of partitions, through the port that finds a partition by its name."""

from collections.abc import Iterable

from ottla.base.types import TopicPartition
from ottla.broker.runtime.coordinators import Coordinators
from ottla.broker.runtime.partitions import Partitions
from ottla.coordinator.group.shard import GroupShard
from ottla.wire.errors import ErrorCode


class Markers:
    """Writes markers. A marker in a partition of `__consumer_offsets` is also told to that partition's group shard."""

    def __init__(self, partitions: Partitions, groups: Coordinators[GroupShard]) -> None:
        self._partitions = partitions
        self._groups = groups

    def write(
        self,
        partitions: Iterable[TopicPartition],
        *,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> dict[TopicPartition, ErrorCode]:
        """End the producer's transaction in each partition. Returns the outcome for each."""
        results = {}
        for tp in partitions:
            appended = self._partitions.append_marker(
                tp,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                commit=commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
            )
            results[tp] = appended.error
            if appended.error is ErrorCode.NONE and tp.topic == self._groups.topic:
                runner = self._groups.runner(tp.partition)
                if runner is not None:
                    runner.marker_written(producer_id, commit=commit)
        return results

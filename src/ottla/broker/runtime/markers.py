"""Writes transaction markers to the leaders of partitions, through the port that finds a partition by its name."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from ottla.base.limits import MAX_INLINE_MARKERS
from ottla.base.types import TopicPartition
from ottla.broker.metadata.names import NOT_IN_TRANSACTIONS
from ottla.broker.runtime.answers import ready
from ottla.broker.runtime.coordinators import Coordinators
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.slices import Slices
from ottla.coordinator.group.shard import GroupShard
from ottla.wire.errors import ErrorCode


class Marker(NamedTuple):
    """The end of a producer's transaction, as each of its partitions gets it."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    #: 0, or 2 for KIP-890's protocol (`TransactionVersion` of WriteTxnMarkers v2).
    transaction_version: int


class Markers:
    """Writes markers. A marker in a partition of `__consumer_offsets` is also told to that partition's group shard."""

    def __init__(self, partitions: Partitions, groups: Coordinators[GroupShard], slices: Slices) -> None:
        self._partitions = partitions
        self._groups = groups
        self._slices = slices

    def write(
        self, partitions: Sequence[TopicPartition], marker: Marker, is_wanted: Callable[[], bool] = lambda: True
    ) -> "asyncio.Future[dict[TopicPartition, ErrorCode]]":
        """End the producer's transaction in each partition; the outcome for each.

        It is done at once, or in slices where there are many partitions. It ends early when it is not wanted any more.
        """
        results: dict[TopicPartition, ErrorCode] = {}
        steps = takewhile(lambda _: is_wanted(), self._steps(partitions, marker, results))
        if len(partitions) > MAX_INLINE_MARKERS:
            return self._slices.start(self._write_slowly(steps, results), "writing the markers of a transaction")
        deque(steps, 0)
        return ready(results)

    async def _write_slowly(
        self, steps: Iterator[None], results: dict[TopicPartition, ErrorCode]
    ) -> dict[TopicPartition, ErrorCode]:
        await self._slices.run(steps)
        return results

    def _steps(
        self, partitions: Sequence[TopicPartition], marker: Marker, results: dict[TopicPartition, ErrorCode]
    ) -> Iterator[None]:
        for tp in partitions:
            if tp.topic in NOT_IN_TRANSACTIONS:  # a coordinator of before may have let it in: nothing of it is there
                results[tp] = ErrorCode.NONE
                yield
                continue
            appended = self._partitions.append_marker(
                tp,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                commit=marker.commit,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
            results[tp] = appended.error
            if appended.error is ErrorCode.NONE and tp.topic == self._groups.topic:
                runner = self._groups.runner(tp.partition)
                if runner is not None:
                    runner.marker_written(marker.producer_id, commit=marker.commit)
            yield

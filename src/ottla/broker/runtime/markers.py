"""Writes transaction markers to the leaders of partitions, through the port that finds a partition by its name.

A partition refuses a marker whose producer epoch or coordinator epoch is below what it has seen. To Apache Kafka's
coordinator this says that another one has taken over, and it gives up. Here nobody else can have: every coordinator is
of this one node. So a marker that a coordinator has decided is written all the same, and the operator is told why it
could not be as it was. Such epochs come from markers that were written by hand, with a coordinator that a loss of power
has taken back, or with a directory from Apache Kafka.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.base.limits import MAX_INLINE_MARKERS
from ottla.base.require import require
from ottla.base.types import TopicPartition
from ottla.broker.metadata.names import NOT_IN_TRANSACTIONS
from ottla.broker.runtime.answers import ready, then
from ottla.broker.runtime.coordinators import Coordinators
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.slices import Slices
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.txn.metadata import MAX_PRODUCER_EPOCH
from ottla.log.results import ActiveProducer
from ottla.wire.errors import ErrorCode


class Marker(NamedTuple):
    """The end of a producer's transaction, as each of its partitions gets it."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    #: 0, or 2 for KIP-890's protocol (`TransactionVersion` of WriteTxnMarkers v2).
    transaction_version: int


class _Results(NamedTuple):
    """What becomes of a marker in each partition."""

    errors: dict[TopicPartition, ErrorCode]
    #: Where the device has to have it first (`flush.messages`).
    syncs: "dict[TopicPartition, asyncio.Future[ErrorCode]]"

    def when_synced(self) -> "asyncio.Future[dict[TopicPartition, ErrorCode]]":
        """The outcomes, when they are certain."""
        if not self.syncs:
            return ready(self.errors)
        errors = asyncio.gather(*self.syncs.values())
        outcomes = then(errors, lambda synced: self.errors | dict(zip(self.syncs, synced, strict=True)))
        return outcomes if isinstance(outcomes, asyncio.Future) else ready(outcomes)


_log = logging.getLogger(__name__)
#: What a partition says of a marker whose epochs are too low.
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
#: Of so many it is remembered that the operator was told; of one that was forgotten he is told again.
_MOST_TOLD: Final = 1_000


class Markers:
    """Writes markers. A marker in a partition of `__consumer_offsets` is also told to that partition's group shard."""

    def __init__(self, partitions: Partitions, groups: Coordinators[GroupShard], slices: Slices) -> None:
        self._partitions = partitions
        self._groups = groups
        self._slices = slices
        #: Of which transactional ids and partitions the operator was told, the first one first.
        self._told: dict[tuple[str, TopicPartition], None] = {}

    def write(
        self,
        partitions: Sequence[TopicPartition],
        marker: Marker,
        is_wanted: Callable[[], bool] = lambda: True,
        *,
        decided_for: str | None = None,
    ) -> "asyncio.Future[dict[TopicPartition, ErrorCode]]":
        """End the producer's transaction in each partition; the outcome for each.

        It is done at once, or in slices where there are many partitions, or a large batch is just written to one. It
        ends early when it is not wanted any more.
        `decided_for` is the transactional id whose coordinator has decided so: then no epoch is too low.
        """
        results = _Results({}, {})
        steps = self._steps(partitions, marker, results, is_wanted, decided_for)
        if len(partitions) > MAX_INLINE_MARKERS or any(self._partitions.is_held(tp) for tp in partitions):
            return self._slices.start(self._write_slowly(steps, results), "writing the markers of a transaction")
        deque(steps, 0)
        return results.when_synced()

    async def _write_slowly(self, steps: Iterator[object], results: "_Results") -> dict[TopicPartition, ErrorCode]:
        await self._slices.run(steps)
        return await results.when_synced()

    def known(self, tp: TopicPartition, producer_id: int) -> ActiveProducer | None:
        """What a partition that this node leads knows of a producer."""
        partition = self._partitions.find(*tp)
        if partition is None:
            return None
        return next(partition.log.producers.active(producer_id), None)

    def _steps(
        self,
        partitions: Sequence[TopicPartition],
        marker: Marker,
        results: "_Results",
        is_wanted: Callable[[], bool],
        decided_for: str | None,
    ) -> Iterator[Any]:
        for tp in partitions:
            if tp.topic in NOT_IN_TRANSACTIONS:  # a coordinator of before may have let it in: nothing of it is there
                results.errors[tp] = ErrorCode.NONE
                yield
                continue
            yield from self._partitions.until_free(tp)
            if not is_wanted():
                return
            error = self._append(tp, marker, results)
            if decided_for is not None and error in _FENCED:
                error = self._overrule(tp, marker, error, decided_for, results)
            results.errors[tp] = error
            yield

    def _append(self, tp: TopicPartition, marker: Marker, results: "_Results") -> ErrorCode:
        """A marker of the groups' topic is synced at once: its shard goes on from it, in the order of the log."""
        is_groups = tp.topic == self._groups.topic
        appended = self._partitions.append_marker(
            tp,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
            unsynced=None if is_groups else partial(results.syncs.__setitem__, tp),
        )
        if appended.error is ErrorCode.NONE and is_groups:
            runner = self._groups.runner(tp.partition)
            if runner is not None:
                runner.marker_written(marker.producer_id, commit=marker.commit)
        return appended.error

    def _is_news(self, transactional_id: str, tp: TopicPartition) -> bool:
        """Whether the operator was not told of these: a coordinator's epoch is too low in every later transaction."""
        told = (transactional_id, tp)
        if told in self._told:
            return False
        if len(self._told) >= _MOST_TOLD:
            del self._told[next(iter(self._told))]
        self._told[told] = None
        return True

    def _overrule(
        self, tp: TopicPartition, marker: Marker, refused: ErrorCode, transactional_id: str, results: "_Results"
    ) -> ErrorCode:
        """End what the coordinator has decided where the partition has seen higher epochs; the outcome."""
        known = self.known(tp, marker.producer_id)
        require(known is not None, f"{tp} refuses the marker of producer {marker.producer_id}, and knows it not")
        assert known is not None
        # In version 0 the epoch that the partition has seen last will do.
        forced = marker._replace(
            producer_epoch=max(marker.producer_epoch, known.producer_epoch),
            coordinator_epoch=max(marker.coordinator_epoch, known.coordinator_epoch),
            transaction_version=0,
        )
        if known.transaction_start_offset < 0:
            outcome, error = "nothing of it is open there, and no marker is needed", ErrorCode.NONE
        elif _is_later(known, marker):
            # Its producer, if it lives, must not go on with the rest of it.
            above = min(known.producer_epoch + 1, MAX_PRODUCER_EPOCH)
            error = self._append(tp, forced._replace(commit=False, producer_epoch=above), results)
            outcome = "a later one is open there, which no coordinator has, and which is aborted"
        else:
            error = self._append(tp, forced, results)
            outcome = "its marker is written with the epochs of the partition"
        if self._is_news(transactional_id, tp):
            _tell(transactional_id, tp, marker, known, f"{refused.name}: {outcome} ({error.name})")
        return error


def _tell(transactional_id: str, tp: TopicPartition, marker: Marker, known: ActiveProducer, what: str) -> None:
    _log.error(
        "transaction of %r: the partition %s has seen epoch %d and coordinator epoch %d of producer %d; its "
        "coordinator decided to %s with epoch %d and coordinator epoch %d. Only a marker written by hand, a loss of "
        "data or a directory of another broker explains that. What is decided stands, here and in later transactions "
        "of this id. %s",
        transactional_id,
        tp,
        known.producer_epoch,
        known.coordinator_epoch,
        marker.producer_id,
        "commit" if marker.commit else "abort",
        marker.producer_epoch,
        marker.coordinator_epoch,
        what,
    )


def _is_later(known: ActiveProducer, marker: Marker) -> bool:
    """Whether what the producer has open in a partition began after the transaction that `marker` ends.

    In KIP-890's protocol the marker has the epoch of the transaction after; but the last epoch cannot be raised.
    """
    if marker.transaction_version >= 2 and marker.producer_epoch < MAX_PRODUCER_EPOCH:
        return known.producer_epoch >= marker.producer_epoch
    return known.producer_epoch > marker.producer_epoch

"""WriteTxnMarkers, versions 1–2. Coordinators send it to leaders, and `kafka-transactions abort` sends it too.

Who repairs by hand looks first which transactions no coordinator has. One that he may not describe looks like that.
So a transaction that a coordinator of this broker has open is ended only for who may act as a broker (CLUSTER_ACTION)
and may describe it. Everybody else is told INVALID_TXN_STATE.

The coordinators are all of this node, and do not ask here. So a marker from outside must not raise what a partition has
seen of a producer above what its coordinator has: the coordinator's own marker would be refused then. It is told
INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED. A producer that no coordinator has is ended with any epochs;
only of an id that nobody has got yet the epochs are kept for who will.
"""

import asyncio
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from ottla.base.types import TopicPartition
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.transactions import HasMarkers, HasProducerIds, HasTransactions
from ottla.broker.runtime.answers import gather
from ottla.broker.runtime.markers import Marker
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

#: A request of more markers, and partitions of theirs, is carried out in steps.
_AT_ONCE: Final = 100
#: The epoch that whoever will have a producer id begins with.
_FIRST_EPOCH: Final = 0


class _Node(HasAccess, HasMarkers, HasPartitions, HasProducerIds, HasSlices, HasTransactions, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: WriteTxnMarkersRequest, context: RequestContext) -> Any:
    """End each producer's transaction in the partitions named."""
    may_alter = node.access.covers(context, AclOperation.ALTER)
    as_broker = node.access.allows_cluster(context, AclOperation.CLUSTER_ACTION, told=not may_alter)
    markers = _Markers(node, request.markers, context, as_broker=as_broker)
    if not may_alter and not as_broker:
        markers.refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if _has_many(request.markers):
        # To the end, as a short one, also when who asked has gone.
        return asyncio.shield(node.slices.start(_slowly(node, markers), "writing the markers of many transactions"))
    deque(markers.write(), 0)
    return gather(markers.writing if markers.refused is ErrorCode.NONE else [], markers.response)


async def _slowly(node: _Node, markers: "_Markers") -> WriteTxnMarkersResponse:
    await node.slices.run(markers.write())
    written = [await each for each in markers.writing] if markers.refused is ErrorCode.NONE else []
    await node.slices.run(markers.tell(written))
    return WriteTxnMarkersResponse(tuple(markers.told))


def _has_many(markers: Sequence[WritableTxnMarker]) -> bool:
    if len(markers) > _AT_ONCE:
        return True
    return sum(len(topic.partition_indexes) for marker in markers for topic in marker.topics) > _AT_ONCE


class _Markers:
    """The markers of one request. Those of one producer are answered together, as in Kafka."""

    def __init__(
        self, node: _Node, markers: Sequence[WritableTxnMarker], context: RequestContext, *, as_broker: bool
    ) -> None:
        self._node = node
        self._markers = markers
        self._context = context
        self._as_broker = as_broker
        #: Why the whole request fails.
        self.refused = ErrorCode.NONE
        #: Of each marker what becomes of it in its partitions, and in which of them it is not written.
        self.writing: list[asyncio.Future[dict[TopicPartition, ErrorCode]]] = []
        self._kept: list[dict[TopicPartition, ErrorCode]] = []
        self.told: list[WritableTxnMarkerResult] = []

    def write(self) -> Iterator[None]:
        """Begin to write them, one after the other."""
        node = self._node
        for marker in self._markers:
            if self.refused is not ErrorCode.NONE:
                return
            named = _partitions(marker)
            if min(marker.producer_id, marker.producer_epoch) < 0 and any(node.partitions.find(*tp) for tp in named):
                # There is no batch without a producer. As in Kafka the whole request fails, also what is written.
                self.refused = ErrorCode.UNKNOWN_SERVER_ERROR
                return
            end = Marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
                marker.transaction_version,
            )
            kept = yield from _too_high(node, end, named)
            kept |= _kept(node, self._context, marker.producer_id, named, as_broker=self._as_broker)
            self._kept.append(kept)
            self.writing.append(node.markers.write([tp for tp in named if tp not in kept], end))
            yield

    def tell(self, written: Sequence[Mapping[TopicPartition, ErrorCode]]) -> Iterator[None]:
        """Find what becomes of each producer's markers; `written` is of what was begun, where nothing is refused."""
        outcomes: dict[int, dict[TopicPartition, ErrorCode]] = {}
        for at, marker in enumerate(self._markers):
            of_producer = outcomes.setdefault(marker.producer_id, {})
            if self.refused is ErrorCode.NONE:
                of_producer |= written[at]
                of_producer |= self._kept[at]
            else:
                of_producer |= dict.fromkeys(_partitions(marker), self.refused)
            yield
        for producer_id, found in outcomes.items():
            self.told.append(WritableTxnMarkerResult(producer_id, _topics(found)))
            yield

    def response(self, written: Sequence[Mapping[TopicPartition, ErrorCode]]) -> WriteTxnMarkersResponse:
        """The answer, at once."""
        deque(self.tell(written), 0)
        return WriteTxnMarkersResponse(tuple(self.told))


def _too_high(
    node: _Node, marker: Marker, named: Iterable[TopicPartition]
) -> Generator[None, None, dict[TopicPartition, ErrorCode]]:
    """Partitions where this would fence the producer's own coordinator; what hangs there may have such epochs."""
    have = _highest(node, marker.producer_id)
    if have is None and node.producer_ids.was_given(marker.producer_id):
        return {}
    producer_epoch, coordinator_epoch = have or (_FIRST_EPOCH, marker.coordinator_epoch)
    if marker.producer_epoch <= producer_epoch and marker.coordinator_epoch <= coordinator_epoch:
        return {}
    found = {}
    for number, tp in enumerate(named, 1):
        if number % _AT_ONCE == 0:
            yield
        known = node.markers.known(tp, marker.producer_id)
        if node.partitions.find(*tp) is None or (have is None and known is not None):
            continue  # an id that nobody has, and that wrote here, is some client's invention
        if marker.producer_epoch > max(producer_epoch, -1 if known is None else known.producer_epoch):
            found[tp] = ErrorCode.INVALID_PRODUCER_EPOCH
        elif marker.coordinator_epoch > max(coordinator_epoch, -1 if known is None else known.coordinator_epoch):
            found[tp] = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    return found


def _highest(node: _Node, producer_id: int) -> tuple[int, int] | None:
    """The producer epoch that the producer's coordinator has for it, and the coordinator's own; None without one."""
    for runner in node.transactions.active():
        store = runner.shard.store
        txn = store.of_producer(producer_id)
        if txn is not None:
            return txn.producer_epoch, store.coordinator_epoch
    return None


def _kept(
    node: _Node, context: RequestContext, producer_id: int, named: Iterable[TopicPartition], *, as_broker: bool
) -> dict[TopicPartition, ErrorCode]:
    """Partitions that this producer's coordinator has in a transaction: who asks may not end it here."""
    if not node.access.is_on:
        return {}
    if not as_broker and node.transactions.loading:
        return dict.fromkeys(named, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if not as_broker and node.transactions.has_unloaded:
        return dict.fromkeys(named, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    for runner in node.transactions.active():
        store = runner.shard.store
        txn = store.of_producer(producer_id)
        if txn is not None:
            kind, name = ResourceType.TRANSACTIONAL_ID, txn.transactional_id
            if as_broker and node.access.allows(context, AclOperation.DESCRIBE, kind, name, told=False):
                return {}
            waiting = store.waiting(txn)
            return {tp: ErrorCode.INVALID_TXN_STATE for tp in named if tp in waiting}
    return {}


def _partitions(marker: WritableTxnMarker) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]


def _topics(outcomes: Mapping[TopicPartition, ErrorCode]) -> tuple[WritableTxnMarkerTopicResult, ...]:
    by_topic: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for tp, error in outcomes.items():
        by_topic.setdefault(tp.topic, []).append(WritableTxnMarkerPartitionResult(tp.partition, error))
    return tuple(WritableTxnMarkerTopicResult(topic, tuple(each)) for topic, each in by_topic.items())

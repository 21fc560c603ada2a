"""WriteTxnMarkers, versions 1–2. Coordinators send it to leaders, and `kafka-transactions abort` sends it too.

Who repairs by hand looks first which transactions no coordinator has. One that he may not describe looks like that.
So a transaction that a coordinator of this broker has open is ended only for who may act as a broker (CLUSTER_ACTION)
and may describe it. Everybody else is told INVALID_TXN_STATE.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ottla.base.types import TopicPartition
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.transactions import HasMarkers, HasTransactions
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

#: Producer id → what became of its markers. Those of one producer are answered together, as in Kafka.
_Outcomes = dict[int, dict[TopicPartition, ErrorCode]]


class _Node(HasAccess, HasMarkers, HasPartitions, HasTransactions, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: WriteTxnMarkersRequest, context: RequestContext) -> Any:
    """End each producer's transaction in the partitions named."""
    may_alter = node.access.covers(context, AclOperation.ALTER)
    as_broker = node.access.allows_cluster(context, AclOperation.CLUSTER_ACTION, told=not may_alter)
    if not may_alter and not as_broker:
        return _answer(_all_failed(request.markers, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    writing, refused = [], list[dict[TopicPartition, ErrorCode]]()
    for marker in request.markers:
        named = _partitions(marker)
        if min(marker.producer_id, marker.producer_epoch) < 0 and any(node.partitions.find(*tp) for tp in named):
            # There is no batch without a producer. As in Kafka the whole request fails, also markers that are written.
            return _answer(_all_failed(request.markers, ErrorCode.UNKNOWN_SERVER_ERROR))
        end = Marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        kept = _kept(node, context, marker.producer_id, named, as_broker=as_broker)
        refused.append(kept)
        writing.append(node.markers.write([tp for tp in named if tp not in kept], end))
    return gather(writing, lambda written: _answer(_outcomes(request.markers, written, refused)))


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


def _all_failed(markers: Iterable[WritableTxnMarker], error: ErrorCode) -> _Outcomes:
    outcomes: _Outcomes = {}
    for marker in markers:
        failed = dict.fromkeys(_partitions(marker), error)
        outcomes.setdefault(marker.producer_id, {}).update(failed)
    return outcomes


def _outcomes(
    markers: Sequence[WritableTxnMarker],
    written: Sequence[Mapping[TopicPartition, ErrorCode]],
    refused: Sequence[Mapping[TopicPartition, ErrorCode]],
) -> _Outcomes:
    outcomes: _Outcomes = {}
    for marker, results, kept in zip(markers, written, refused, strict=True):
        outcomes.setdefault(marker.producer_id, {}).update({**results, **kept})
    return outcomes


def _answer(outcomes: Mapping[int, Mapping[TopicPartition, ErrorCode]]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        tuple(WritableTxnMarkerResult(producer_id, _topics(found)) for producer_id, found in outcomes.items())
    )


def _topics(outcomes: Mapping[TopicPartition, ErrorCode]) -> tuple[WritableTxnMarkerTopicResult, ...]:
    by_topic: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for tp, error in outcomes.items():
        by_topic.setdefault(tp.topic, []).append(WritableTxnMarkerPartitionResult(tp.partition, error))
    return tuple(WritableTxnMarkerTopicResult(topic, tuple(each)) for topic, each in by_topic.items())

"""WriteTxnMarkers, versions 1–2. Coordinators send it to leaders, and `kafka-transactions abort` sends it too."""

from ottla.base.types import TopicPartition
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.transactions import HasMarkers
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle(node: HasMarkers, request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    """End each producer's transaction in the partitions named."""
    return WriteTxnMarkersResponse(tuple(_write(node, marker) for marker in request.markers))


def _write(node: HasMarkers, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    partitions = [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
    results = node.markers.write(
        partitions,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        commit=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
    return WritableTxnMarkerResult(
        marker.producer_id,
        tuple(
            WritableTxnMarkerTopicResult(
                topic.name,
                tuple(
                    WritableTxnMarkerPartitionResult(index, results[TopicPartition(topic.name, index)])
                    for index in topic.partition_indexes
                ),
            )
            for topic in marker.topics
        ),
    )

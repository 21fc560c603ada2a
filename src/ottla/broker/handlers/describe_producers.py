"""DescribeProducers, version 0 (KIP-664): who writes to a partition, and whose transaction is open there."""

from ottla.base.topic_names import topic_name_problem
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.partitions import HasPartitions
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(
    node: HasPartitions, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """The producers that each partition remembers."""
    return DescribeProducersResponse(
        topics=tuple(
            TopicResponse(topic.name, tuple(_describe(node, topic.name, index) for index in topic.partition_indexes))
            for topic in request.topics
        )
    )


def _describe(node: HasPartitions, topic: str, index: int) -> PartitionResponse:
    partition = node.partitions.find(topic, index)
    if partition is None:
        legal = topic_name_problem(topic) is None
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        return PartitionResponse(index, error)
    return PartitionResponse(
        index,
        active_producers=tuple(
            ProducerState(
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp_ms,
                each.coordinator_epoch,
                each.transaction_start_offset,
            )
            for each in partition.log.active_producers()
        ),
    )

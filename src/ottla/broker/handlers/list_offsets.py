"""ListOffsets, versions 1–11: an offset by time. Negative timestamps are special questions:

-1 latest, -2 earliest, -3 max timestamp (version 7, KIP-734), -4 earliest local (8), -5 latest tiered (9, KIP-1005),
-6 earliest pending upload (11, KIP-1023). With READ_COMMITTED the end is the last stable offset.
"""

from collections import Counter
from typing import Final, Protocol

from ottla.base.errors import CorruptDataError, StorageError
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.partitions import HasPartitions
from ottla.log.results import Isolation
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

#: First version that knows a special timestamp.
_SPECIAL_FROM: Final = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}


class _Node(HasAccess, HasPartitions, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """One offset for each partition; -1 where no record is at or after the timestamp. Naming one twice is an error."""
    isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED
    names = (topic.name for topic in request.topics)
    refused = node.access.refused(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    counts = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    topics = tuple(
        _refuse(topic)
        if topic.name in refused
        else ListOffsetsTopicResponse(
            topic.name,
            tuple(
                ListOffsetsPartitionResponse(asked.partition_index, ErrorCode.INVALID_REQUEST)
                if counts[topic.name, asked.partition_index] > 1
                else _one(node, topic.name, asked, isolation, context.api_version)
                for asked in {each.partition_index: each for each in topic.partitions}.values()
            ),
        )
        for topic in request.topics
    )
    return ListOffsetsResponse(topics=topics)


def _refuse(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ListOffsetsTopicResponse(
        topic.name, tuple(ListOffsetsPartitionResponse(each.partition_index, error) for each in topic.partitions)
    )


def _one(
    node: _Node, topic: str, asked: ListOffsetsPartition, isolation: Isolation, version: int
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    if asked.timestamp < 0 and version < _SPECIAL_FROM.get(asked.timestamp, version + 1):
        return ListOffsetsPartitionResponse(index, ErrorCode.UNSUPPORTED_VERSION)
    partition = node.partitions.find(topic, index)
    if partition is None:
        return ListOffsetsPartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = partition.check_leader_epoch(asked.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return ListOffsetsPartitionResponse(index, error)
    try:
        found = partition.log.offset_for_timestamp(asked.timestamp, isolation)
    except (CorruptDataError, StorageError) as fault:
        return ListOffsetsPartitionResponse(index, node.partitions.faults.report(partition.tp, fault))
    if found is None:
        return ListOffsetsPartitionResponse(index)
    return ListOffsetsPartitionResponse(index, 0, found.timestamp_ms, found.offset, found.leader_epoch)

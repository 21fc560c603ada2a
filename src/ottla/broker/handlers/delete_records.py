"""DeleteRecords, versions 0–2 (KIP-107): the log begins later from now on."""

import asyncio
from collections.abc import Collection, Iterator
from typing import Protocol

from ottla.base.errors import StorageError
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.names import INTERNAL_TOPICS
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.slices import HasSlices
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_NO_OFFSET = -1


class _Node(HasAccess, HasPartitions, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DeleteRecordsRequest, context: RequestContext
) -> "asyncio.Future[DeleteRecordsResponse]":
    """Each partition's new start. It is on the device before the answer; another thread writes it down and syncs it."""
    return node.slices.start(_delete_all(node, request, context), "deleting records")


async def _delete_all(node: _Node, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    names = (topic.name for topic in request.topics)
    refused = await node.access.refused_of_many(node.slices, context, AclOperation.DELETE, ResourceType.TOPIC, names)
    results: list[DeleteRecordsTopicResult] = []
    await node.slices.run(_steps(node, request, refused, results))
    try:
        await node.partitions.write_checkpoint(node.slices)
    except StorageError as fault:
        error = node.partitions.faults.report("the new log starts are not written down yet", fault)
        results = [
            topic._replace(partitions=tuple(_failed(each, error) for each in topic.partitions)) for topic in results
        ]
    return DeleteRecordsResponse(topics=tuple(results))


def _failed(result: DeleteRecordsPartitionResult, error: ErrorCode) -> DeleteRecordsPartitionResult:
    """The records are not served any more, but after a crash they would be there again: the client has to ask again."""
    if result.error_code is not ErrorCode.NONE:
        return result
    return DeleteRecordsPartitionResult(result.partition_index, _NO_OFFSET, error)


def _steps(
    node: _Node, request: DeleteRecordsRequest, refused: Collection[str], results: list[DeleteRecordsTopicResult]
) -> Iterator[None]:
    """A partition in each step; a topic's results follow when it is done."""
    for topic in request.topics:
        deleted = []
        for each in topic.partitions:
            deleted.append(_delete(node, topic.name, each, refused))
            yield
        results.append(DeleteRecordsTopicResult(topic.name, tuple(deleted)))


def _delete(
    node: _Node, topic: str, asked: DeleteRecordsPartition, refused: Collection[str]
) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    if topic in refused:
        return DeleteRecordsPartitionResult(index, _NO_OFFSET, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    partition = node.partitions.find(topic, index)
    if partition is None:
        return DeleteRecordsPartitionResult(index, _NO_OFFSET, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS:
        return DeleteRecordsPartitionResult(index, _NO_OFFSET, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not partition.log.config.deletes:
        # In a topic that is only compacted, nothing but compaction deletes records.
        return DeleteRecordsPartitionResult(index, _NO_OFFSET, ErrorCode.POLICY_VIOLATION)
    try:
        deleted = partition.log.delete_records_before(asked.offset)
    except StorageError as fault:
        error = node.partitions.faults.report(f"{topic}-{index}: its new start is not written down yet", fault)
        return DeleteRecordsPartitionResult(index, _NO_OFFSET, error)
    return DeleteRecordsPartitionResult(index, deleted.low_watermark, deleted.error)

"""DescribeLogDirs, versions 1–5 (KIP-113, KIP-827): how much of the disk each partition takes."""

import asyncio
from collections.abc import Iterator
from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.slices import HasSlices
from ottla.wire.acls import AclOperation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


class _Node(HasAccess, HasConfig, HasPartitions, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DescribeLogDirsRequest, context: RequestContext
) -> "DescribeLogDirsResponse | asyncio.Future[DescribeLogDirsResponse]":
    """The one data directory."""
    if not node.access.allows_cluster(context, AclOperation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return node.slices.start(_slowly(node, request, context), "sizes of partitions")


async def _slowly(node: _Node, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """A partition may have thousands of files, and there may be thousands of partitions."""
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    await node.slices.run(counted(context, _sizes(node, request, topics)))
    told = await node.slices.collect(
        counted(context, (DescribeLogDirsTopic(name, tuple(sorted(sizes))) for name, sizes in sorted(topics.items())))
    )
    space = node.partitions.space()
    result = DescribeLogDirsResult(
        log_dir=str(node.config.data_dir.absolute()),
        topics=tuple(told),
        total_bytes=space.total_bytes,
        usable_bytes=space.usable_bytes,
    )
    return DescribeLogDirsResponse(results=(result,))


def _sizes(
    node: _Node, request: DescribeLogDirsRequest, topics: dict[str, list[DescribeLogDirsPartition]]
) -> Iterator[None]:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    for partition in node.partitions.all():
        if wanted is None or partition.tp in wanted:
            size = DescribeLogDirsPartition(partition.tp.partition, partition.log.size_bytes)
            topics.setdefault(partition.tp.topic, []).append(size)
        yield

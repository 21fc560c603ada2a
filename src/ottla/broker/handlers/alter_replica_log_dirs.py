"""AlterReplicaLogDirs, versions 1–2 (KIP-113): move replicas to another directory of this broker.

There is one directory, and each replica is in it: a move to it is done, and one to any other has nowhere to go.
"""

import asyncio
from collections.abc import Iterator
from typing import Protocol

from ottla.broker.handlers.placement import problem_of
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage
from ottla.wire.acls import AclOperation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


class _Node(HasAccess, HasConfig, HasImage, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> "asyncio.Future[AlterReplicaLogDirsResponse]":
    """NONE, LOG_DIR_NOT_FOUND or UNKNOWN_TOPIC_OR_PARTITION for each partition that is named.

    One that is named for several directories is answered once, for the last of them, as in Apache Kafka.
    """
    return node.slices.start(_slowly(node, request, context), "replicas of directories")


async def _slowly(
    node: _Node, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    topics: dict[str, dict[int, ErrorCode]] = {}
    is_allowed = node.access.allows_cluster(context, AclOperation.ALTER)
    await node.slices.run(counted(context, _steps(node, request, topics, is_allowed=is_allowed)))
    results = await node.slices.collect(
        counted(context, (AlterReplicaLogDirTopicResult(name, _told(found)) for name, found in topics.items()))
    )
    return AlterReplicaLogDirsResponse(results=tuple(results))


def _steps(
    node: _Node, request: AlterReplicaLogDirsRequest, topics: dict[str, dict[int, ErrorCode]], *, is_allowed: bool
) -> Iterator[None]:
    """A partition in each step."""
    own = str(node.config.data_dir.absolute())
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                if not is_allowed:
                    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                elif directory.path != own:
                    error = ErrorCode.LOG_DIR_NOT_FOUND
                else:
                    unknown = problem_of(node.image, topic.name, number)
                    error = ErrorCode.NONE if unknown is None else unknown[0]
                topics.setdefault(topic.name, {})[number] = error
                yield
            yield


def _told(found: dict[int, ErrorCode]) -> tuple[AlterReplicaLogDirPartitionResult, ...]:
    return tuple(AlterReplicaLogDirPartitionResult(*each) for each in found.items())

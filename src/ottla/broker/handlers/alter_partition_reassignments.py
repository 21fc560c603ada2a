"""AlterPartitionReassignments, versions 0–1 (KIP-455, KIP-860): other replicas for partitions.

There is one node, so each partition has the one assignment that it can have: to ask for that changes nothing, and
nothing is ever on its way that could be given up.
"""

import asyncio
from collections.abc import Iterator
from typing import Protocol

from ottla.broker.handlers.authorized import UNAUTHORIZED_TEXT
from ottla.broker.handlers.placement import problem_of
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.identity import HasIdentity
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


class _Node(HasAccess, HasIdentity, HasImage, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> "asyncio.Future[AlterPartitionReassignmentsResponse]":
    """Whether each partition can be, and so is, where it is asked to be."""
    return node.slices.start(_slowly(node, request, context), "reassigning partitions")


async def _slowly(
    node: _Node, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    refused: tuple[ErrorCode, str] | None = None
    if not node.access.allows_cluster(context, AclOperation.ALTER):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, UNAUTHORIZED_TEXT[ResourceType.CLUSTER]
    responses: list[ReassignableTopicResponse] = []
    await node.slices.run(counted(context, _steps(node, request, refused, responses)))
    error, message = refused or (ErrorCode.NONE, None)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=error,
        error_message=message,
        responses=tuple(responses),
    )


def _steps(
    node: _Node,
    request: AlterPartitionReassignmentsRequest,
    refused: tuple[ErrorCode, str] | None,
    responses: list[ReassignableTopicResponse],
) -> Iterator[None]:
    """A partition in each step; a topic's answers follow when it is done."""
    for topic in request.topics:
        told = []
        for each in topic.partitions:
            outcome = refused or _outcome(node, topic.name, each)
            told.append(ReassignablePartitionResponse(each.partition_index, *outcome))
            yield
        responses.append(ReassignableTopicResponse(topic.name, tuple(told)))


def _outcome(node: _Node, topic: str, asked: ReassignablePartition) -> tuple[ErrorCode, str | None]:
    unknown = problem_of(node.image, topic, asked.partition_index)
    if unknown is not None:
        return unknown
    if asked.replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    own_id = node.identity.node_id
    if asked.replicas != (own_id,):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is one broker: a partition has the one replica {own_id}"
    return ErrorCode.NONE, None

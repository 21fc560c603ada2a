"""ElectLeaders, versions 0–2 (KIP-183, KIP-460): another leader for partitions.

Each partition has one replica, and that one leads: the preferred leader does already, and none is ever without one. So
there is never anything to elect, and what the request says of time is without effect.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from ottla.broker.handlers.authorized import UNAUTHORIZED_TEXT
from ottla.broker.handlers.placement import problem_of
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

#: ElectionType of Kafka's clients: preferred, unclean.
_KINDS: Final = (0, 1)


class _Node(HasAccess, HasImage, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: ElectLeadersRequest, context: RequestContext
) -> "asyncio.Future[ElectLeadersResponse]":
    """That each partition has its leader. Who asks for all partitions hears of those alone that were elected: none."""
    return node.slices.start(_slowly(node, request, context), "electing leaders")


async def _slowly(node: _Node, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    refused: tuple[ErrorCode, str] | None = None
    if not node.access.allows_cluster(context, AclOperation.ALTER):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, UNAUTHORIZED_TEXT[ResourceType.CLUSTER]
    elif request.election_type not in _KINDS:
        refused = ErrorCode.INVALID_REQUEST, f"there is no election type {request.election_type}"
    results: list[ReplicaElectionResult] = []
    await node.slices.run(counted(context, _steps(node, request, refused, results)))
    error = ErrorCode.NONE if refused is None else refused[0]
    return ElectLeadersResponse(error_code=error, replica_election_results=tuple(results))


def _steps(
    node: _Node,
    request: ElectLeadersRequest,
    refused: tuple[ErrorCode, str] | None,
    results: list[ReplicaElectionResult],
) -> Iterator[None]:
    """A partition in each step; a topic's results follow when it is done."""
    if request.topic_partitions is None:
        names: Iterable[str] = () if refused is not None else tuple(node.image.topics)
        for name in names:
            results.append(ReplicaElectionResult(name, ()))
            yield
        return
    for topic in request.topic_partitions:
        told = []
        for number in topic.partitions:
            told.append(PartitionResult(number, *(refused or _outcome(node, topic.topic, number))))
            yield
        results.append(ReplicaElectionResult(topic.topic, tuple(told)))


def _outcome(node: _Node, topic: str, number: int) -> tuple[ErrorCode, str]:
    unknown = problem_of(node.image, topic, number)
    return unknown or (ErrorCode.ELECTION_NOT_NEEDED, "the partition has one replica, which leads it")

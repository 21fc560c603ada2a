"""DescribeCluster, versions 0–2 (KIP-700): one broker, which is its own controller to clients."""

from typing import Protocol

from ottla.broker.handlers.authorized import on_cluster
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.identity import HasIdentity
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2


class _Node(HasAccess, HasIdentity, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """The cluster. MISMATCHED_ENDPOINT_TYPE if the client takes this broker for a controller (KIP-919)."""
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    me = node.identity
    host, port = me.told[context.session.listener]
    return DescribeClusterResponse(
        cluster_id=me.cluster_id,
        controller_id=me.node_id,
        brokers=(DescribeClusterBroker(me.node_id, host, port, me.rack),),
        cluster_authorized_operations=on_cluster(
            node.access, context, asked=request.include_cluster_authorized_operations
        ),
    )

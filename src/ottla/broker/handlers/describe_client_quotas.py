"""DescribeClientQuotas, versions 0–1 (KIP-546, KIP-612): the quotas of the entities that a filter means."""

import asyncio
from collections.abc import Iterator
from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.quota_rules import read_filter
from ottla.broker.metadata.rules import RefusedError
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage
from ottla.wire.acls import AclOperation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


class _Node(HasAccess, HasImage, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DescribeClientQuotasRequest, context: RequestContext
) -> "DescribeClientQuotasResponse | asyncio.Future[DescribeClientQuotasResponse]":
    """What is set for each entity itself; the defaults of others are entities of their own."""
    if not node.access.allows_cluster(context, AclOperation.DESCRIBE_CONFIGS):
        return _refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    try:
        components = read_filter((each.entity_type, each.match_type, each.match) for each in request.components)
    except RefusedError as refused:
        return _refuse(refused.error, str(refused))
    entries = (
        EntryData(tuple(EntityData(*part) for part in of), tuple(ValueData(*each) for each in values.items()))
        for of, values in node.image.quotas.matching(components, strict=request.strict)
    )
    return node.slices.start(_told(node, counted(context, entries)), "describing quotas")


async def _told(node: _Node, entries: Iterator[EntryData]) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_message=None, entries=tuple(await node.slices.collect(entries)))


def _refuse(error: ErrorCode, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error, error_message=message, entries=None)

"""ListTransactions, versions 0–2: by state and producer id (KIP-664), duration (KIP-994), id pattern (KIP-1152)."""

import asyncio
from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.settings import HasClock
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.transactions import HasTransactions
from ottla.coordinator.txn.listing import Listing
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


class _Node(HasAccess, HasClock, HasSlices, HasTransactions, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: ListTransactionsRequest, context: RequestContext
) -> "ListTransactionsResponse | asyncio.Future[ListTransactionsResponse]":
    """All transactional ids of this node that pass the filters, and that may be described."""
    if node.transactions.loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if node.transactions.has_unloaded:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return node.slices.start(_list(node, request, context), "listing transactions")


async def _list(node: _Node, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    def may_see(transactional_id: str) -> bool:
        access, kind = node.access, ResourceType.TRANSACTIONAL_ID
        return access.allows(context, AclOperation.DESCRIBE, kind, transactional_id, told=False)

    listing = Listing(request, node.clock.now_ms(), may_see if node.access.is_on else None)
    await node.slices.run(listing.steps([runner.shard.store for runner in node.transactions.active()]))
    return listing.response

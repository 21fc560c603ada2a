"""ListTransactions, versions 0–2: by state and producer id (KIP-664), duration (KIP-994), id pattern (KIP-1152)."""

import asyncio
from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.settings import HasClock
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.transactions import HasTransactions
from ottla.coordinator.txn.listing import Listing, only_matching
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


class _Node(HasClock, HasSlices, HasTransactions, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: ListTransactionsRequest, context: RequestContext
) -> "ListTransactionsResponse | asyncio.Future[ListTransactionsResponse]":
    """All transactional ids of this node that pass the filters."""
    if node.transactions.loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return node.slices.start(_list(node, request), "listing transactions")


async def _list(node: _Node, request: ListTransactionsRequest) -> ListTransactionsResponse:
    listing = Listing(request, node.clock.now_ms())
    await node.slices.run(listing.steps([runner.shard.store for runner in node.transactions.active()]))
    pattern = request.transactional_id_pattern
    if not pattern:
        return listing.response
    # A slow pattern over many ids takes seconds. That runs in a thread, because the loop serves every client.
    return await asyncio.get_running_loop().run_in_executor(None, only_matching, pattern, listing.response)

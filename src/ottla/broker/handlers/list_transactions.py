"""ListTransactions, versions 0–2: by state and producer id (KIP-664), duration (KIP-994), id pattern (KIP-1152)."""

import asyncio
from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.settings import HasClock
from ottla.broker.ports.transactions import HasTransactions
from ottla.coordinator.txn.listing import list_transactions, only_matching
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


class _Node(HasClock, HasTransactions, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: ListTransactionsRequest, context: RequestContext
) -> "ListTransactionsResponse | asyncio.Future[ListTransactionsResponse]":
    """All transactional ids of this node that pass the filters."""
    if node.transactions.loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stores = (runner.shard.store for runner in node.transactions.active())
    listed = list_transactions(stores, request, node.clock.now_ms())
    pattern = request.transactional_id_pattern
    if not pattern:
        return listed
    # A slow pattern over many ids takes seconds. That runs in a thread, because the loop serves every client.
    return asyncio.get_running_loop().run_in_executor(None, only_matching, pattern, listed)

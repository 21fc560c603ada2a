"""DescribeTransactions, version 0 (KIP-664)."""

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.transactions import HasTransactions
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def handle(
    node: HasTransactions, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Each transactional id as its coordinator knows it."""
    return DescribeTransactionsResponse(
        transaction_states=tuple(_one(node, each) for each in request.transactional_ids)
    )


def _one(node: HasTransactions, transactional_id: str) -> TransactionState:
    runner = node.transactions.find(transactional_id)
    if isinstance(runner, ErrorCode):
        return TransactionState(runner, transactional_id)
    return runner.shard.describe(transactional_id)

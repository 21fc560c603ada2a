"""DescribeTransactions, version 0 (KIP-664)."""

from typing import TYPE_CHECKING

from ottla.broker.handlers.table import RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: "Node", request: DescribeTransactionsRequest, context: RequestContext) -> DescribeTransactionsResponse:
    """Each transactional id as its coordinator knows it."""
    return DescribeTransactionsResponse(
        transaction_states=tuple(_one(node, each) for each in request.transactional_ids)
    )


def _one(node: "Node", transactional_id: str) -> TransactionState:
    runner = node.transactions.find(transactional_id)
    if isinstance(runner, ErrorCode):
        return TransactionState(runner, transactional_id)
    return runner.shard.describe(transactional_id)

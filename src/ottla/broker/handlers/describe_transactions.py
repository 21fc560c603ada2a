"""DescribeTransactions, version 0 (KIP-664). Topics that may not be described are left out."""

import asyncio
from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.transactions import HasTransactions
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


class _Node(HasAccess, HasSlices, HasTransactions, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DescribeTransactionsRequest, context: RequestContext
) -> "asyncio.Future[DescribeTransactionsResponse]":
    """Each transactional id as its coordinator knows it when its turn comes."""
    return node.slices.start(_slowly(node, request, context), "describing transactions")


async def _slowly(
    node: _Node, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """An id in each step: its transaction may be in thousands of partitions."""
    states = await node.slices.collect(
        counted(context, (_one(node, each, context) for each in request.transactional_ids))
    )
    return DescribeTransactionsResponse(transaction_states=tuple(states))


def _one(node: _Node, transactional_id: str, context: RequestContext) -> TransactionState:
    if not node.access.allows(context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return TransactionState(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id)
    runner = node.transactions.find(transactional_id)
    if isinstance(runner, ErrorCode):
        return TransactionState(runner, transactional_id)
    state = runner.shard.describe(transactional_id)
    names = (topic.topic for topic in state.topics)
    hidden = node.access.refused(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    return state._replace(topics=tuple(topic for topic in state.topics if topic.topic not in hidden))

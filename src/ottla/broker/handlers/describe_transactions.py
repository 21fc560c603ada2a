"""DescribeTransactions, version 0 (KIP-664). Topics that may not be described are left out."""

import asyncio
from collections.abc import Generator, Iterator
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
    """Its transaction may be in thousands of topics."""
    states: list[TransactionState] = []
    await node.slices.run(counted(context, _describe_all(node, request, context, states)))
    return DescribeTransactionsResponse(transaction_states=tuple(states))


def _describe_all(
    node: _Node, request: DescribeTransactionsRequest, context: RequestContext, states: list[TransactionState]
) -> Iterator[None]:
    for transactional_id in request.transactional_ids:
        states.append((yield from _one(node, transactional_id, context)))
        yield


def _one(node: _Node, transactional_id: str, context: RequestContext) -> Generator[None, None, TransactionState]:
    """An id, and then each of its topics: who asks may not describe all of them."""
    if not node.access.allows(context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return TransactionState(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id)
    runner = node.transactions.find(transactional_id)
    if isinstance(runner, ErrorCode):
        return TransactionState(runner, transactional_id)
    state = yield from runner.shard.describe(transactional_id)
    if not node.access.is_on:
        return state
    shown = []
    for topic in state.topics:
        yield
        if not node.access.refused(context, AclOperation.DESCRIBE, ResourceType.TOPIC, (topic.topic,)):
            shown.append(topic)
    return state._replace(topics=tuple(shown))

"""AddOffsetsToTxn, versions 0–4: the group's partition of `__consumer_offsets` joins the transaction (KIP-98)."""

from typing import Any, Protocol

from ottla.broker.handlers.fencing import told
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.transactions import HasTransactions
from ottla.broker.runtime.answers import then
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

#: From here on a client knows PRODUCER_FENCED (KIP-588).
_KNOWS_FENCED_FROM = 2


class _Node(HasAccess, HasGroups, HasTransactions, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: AddOffsetsToTxnRequest, context: RequestContext) -> Any:
    """Older clients send this before TxnOffsetCommit."""
    if not node.access.allows(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not node.access.allows(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return then(node.groups.ready(), lambda _: _add(node, request, context))


def _add(node: _Node, request: AddOffsetsToTxnRequest, context: RequestContext) -> Any:
    runner = node.transactions.find(request.transactional_id)
    if isinstance(runner, ErrorCode):
        return AddOffsetsToTxnResponse(error_code=runner)
    offsets = node.groups.partition_of(request.group_id)
    if offsets is None:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    shard = runner.shard
    knows = context.api_version >= _KNOWS_FENCED_FROM
    answer = runner.submit(lambda token, now_ms: shard.add_offsets_to_txn(token, request, offsets, now_ms))
    return then(answer, lambda response: told(response, knows_fenced=knows))

"""EndTxn, versions 0–5. From version 5 on the end raises the epoch, and the answer tells the new one (KIP-890)."""

from typing import Any, Protocol

from ottla.broker.handlers.fencing import told
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.transactions import HasTransactions
from ottla.broker.runtime.answers import then
from ottla.coordinator.txn.states import TransactionVersion
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_BUMPS_EPOCH_FROM = 5
#: From here on a client knows PRODUCER_FENCED (KIP-588).
_KNOWS_FENCED_FROM = 2


class _Node(HasAccess, HasTransactions, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: EndTxnRequest, context: RequestContext) -> Any:
    """Answered once the decision is in the log; the markers follow."""
    if not node.access.allows(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    runner = node.transactions.find(request.transactional_id)
    if isinstance(runner, ErrorCode):
        return EndTxnResponse(error_code=runner)
    version = TransactionVersion.V2 if context.api_version >= _BUMPS_EPOCH_FROM else TransactionVersion.V0
    shard = runner.shard
    knows = context.api_version >= _KNOWS_FENCED_FROM
    answer = runner.submit(lambda token, now_ms: shard.end_txn(token, request, version, now_ms))
    return then(answer, lambda response: told(response, knows_fenced=knows))

"""InitProducerId, versions 0–6: a producer id and epoch (KIP-98), an epoch bump for one that recovers (KIP-360).

Version 6 (two-phase commit, KIP-939) is unstable in Apache Kafka 4.3, and offered with `unstable.api.versions.enable`.
"""

from typing import Any, Protocol

from ottla.broker.handlers.fencing import told
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.transactions import HasProducerIds, HasTransactions
from ottla.broker.runtime.answers import then
from ottla.coordinator.txn.init_producer_id import idempotent_producer_id
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

#: From here on a client knows PRODUCER_FENCED (KIP-588).
_KNOWS_FENCED_FROM = 4


class _Node(HasAccess, HasProducerIds, HasTransactions, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: InitProducerIdRequest, context: RequestContext) -> Any:
    """Any broker serves an idempotent producer. A transactional one is served by its id's coordinator."""
    error = _refused(node, request, context)
    if error is not None:
        return InitProducerIdResponse(error_code=error, producer_epoch=-1)
    return then(node.producer_ids.ready(), lambda _: _initialise(node, request, context))


def _refused(node: _Node, request: InitProducerIdRequest, context: RequestContext) -> ErrorCode | None:
    """Without a transactional id it is enough to may write to some topic (KIP-679)."""
    transactional_id = request.transactional_id
    if transactional_id is None:
        if node.access.covers(context, AclOperation.IDEMPOTENT_WRITE):
            return None
        somewhere = node.access.allows_somewhere(context, AclOperation.WRITE, ResourceType.TOPIC)
        return None if somewhere else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    needed = [AclOperation.WRITE, *([AclOperation.TWO_PHASE_COMMIT] if request.enable_2pc else [])]
    if all(node.access.allows(context, each, ResourceType.TRANSACTIONAL_ID, transactional_id) for each in needed):
        return None
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _initialise(node: _Node, request: InitProducerIdRequest, context: RequestContext) -> Any:
    if request.transactional_id is None:
        return idempotent_producer_id(request, node.producer_ids.new)
    runner = node.transactions.find(request.transactional_id)
    if isinstance(runner, ErrorCode):
        return InitProducerIdResponse(error_code=runner, producer_epoch=-1)
    shard = runner.shard
    knows = context.api_version >= _KNOWS_FENCED_FROM
    answer = runner.submit(lambda token, now_ms: shard.init_producer_id(token, request, now_ms))
    return then(answer, lambda response: told(response, knows_fenced=knows))

"""FindCoordinator, versions 0–6: the broker that leads the partition which a group or transactional id belongs to.

Several keys at once from version 4 on (KIP-699). Key types: 0 group, 1 transactional id (version 1 on).
"""

import asyncio
from collections.abc import Collection
from typing import Protocol

from ottla.base.errors import StorageError
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.identity import HasIdentity
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.transactions import HasTransactions
from ottla.broker.runtime.answers import then
from ottla.broker.runtime.coordinators import Coordinators
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.txn.shard import TransactionShard
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP, _TRANSACTION = 0, 1
_MANY_KEYS_FROM = 4
_RESOURCES = {_GROUP: ResourceType.GROUP, _TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_REFUSED = {
    _GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    _TRANSACTION: (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."),
}


class _Node(HasAccess, HasGroups, HasIdentity, HasPartitions, HasTransactions, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: FindCoordinatorRequest, context: RequestContext
) -> "FindCoordinatorResponse | asyncio.Future[FindCoordinatorResponse]":
    """This node, for every key: it leads all partitions. The first who asks has the coordinators' topic made."""
    refused = _refused(node, request, context)
    coordinators = _coordinators(node, request.key_type)
    if coordinators is None or (refused and refused.issuperset(_keys(request, context))):
        return _answer(node, request, context, refused, None)
    answer: FindCoordinatorResponse | asyncio.Future[FindCoordinatorResponse] = then(
        coordinators.ready(), lambda fault: _answer(node, request, context, refused, fault)
    )
    return answer


def _keys(request: FindCoordinatorRequest, context: RequestContext) -> tuple[str, ...]:
    return request.coordinator_keys if context.api_version >= _MANY_KEYS_FROM else (request.key,)


def _refused(node: _Node, request: FindCoordinatorRequest, context: RequestContext) -> frozenset[str]:
    """The keys that may not be described. For them no topic is made."""
    kind = _RESOURCES.get(request.key_type)
    if kind is None:
        return frozenset()
    return node.access.refused(context, AclOperation.DESCRIBE, kind, _keys(request, context))


def _coordinators(node: _Node, key_type: int) -> "Coordinators[GroupShard] | Coordinators[TransactionShard] | None":
    return node.groups if key_type == _GROUP else node.transactions if key_type == _TRANSACTION else None


def _answer(
    node: _Node,
    request: FindCoordinatorRequest,
    context: RequestContext,
    refused: Collection[str],
    fault: StorageError | None,
) -> FindCoordinatorResponse:
    found = tuple(
        _refuse(key, *_REFUSED[request.key_type])
        if key in refused
        else _find(node, request.key_type, key, context, fault)
        for key in _keys(request, context)
    )
    if context.api_version >= _MANY_KEYS_FROM:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


def _find(node: _Node, key_type: int, key: str, context: RequestContext, fault: StorageError | None) -> Coordinator:
    coordinators = _coordinators(node, key_type)
    if coordinators is None:
        return _refuse(key, ErrorCode.INVALID_REQUEST, f"Unknown coordinator type {key_type}")
    partition = coordinators.partition_of(key)
    if partition is None:
        text = f"{coordinators.topic} is not there yet" if fault is None else str(fault)
        return _refuse(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
    if key_type == _GROUP:
        _tell(node, key)
    if node.partitions.find(*partition) is None:
        return _refuse(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{partition} has no leader")
    host, port = node.identity.told[context.session.listener]
    return Coordinator(key, node.identity.node_id, host, port, 0, None)


def _tell(node: _Node, group_id: str) -> None:
    """Whoever asks may be about to join: the coordinator may wait for it."""
    runner = node.groups.find(group_id)
    if not isinstance(runner, ErrorCode):
        shard = runner.shard
        runner.tell(lambda now_ms: shard.coordinator_asked(group_id, now_ms))


def _refuse(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key, -1, "", -1, error, message)

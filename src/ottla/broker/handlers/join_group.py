"""JoinGroup, versions 0–9. From version 4 on a client without a member id is given one first (KIP-394)."""

import uuid
from typing import Any, Final, Protocol

from ottla.base.limits import (
    MAX_ALL_METADATA_BYTES,
    MAX_GROUP_METADATA_BYTES,
    MAX_MEMBER_METADATA_BYTES,
    MAX_MEMBER_PROTOCOLS,
    SMALL_METADATA_BYTES,
)
from ottla.base.words import shown
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.identity import HasRandom
from ottla.broker.ports.refusals import HasRefusals
from ottla.broker.runtime.answers import then
from ottla.coordinator.group.context import RequestContext as Client
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

_KNOWS_MEMBER_ID_REQUIRED_FROM = 4
_NULLABLE_PROTOCOL_FROM = 7
_SKIPS_ASSIGNMENT_FROM = 9

_ADVICE: Final = "it should subscribe to fewer topics, or to a pattern"


class _Node(HasAccess, HasGroups, HasRandom, HasRefusals, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: JoinGroupRequest, context: RequestContext) -> Any:
    """Wait for the next generation."""
    version = context.api_version
    if not node.access.allows(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _refused(JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED), version)
    if len(request.protocols) > MAX_MEMBER_PROTOCOLS:
        why = f"it has {len(request.protocols)} protocols, at most {MAX_MEMBER_PROTOCOLS} are allowed"
        _tell(node, context, request, why)
        return _refused(JoinGroupResponse(error_code=ErrorCode.INVALID_REQUEST, member_id=request.member_id), version)
    size_bytes = sum(len(each.name) + len(each.metadata) for each in request.protocols)
    if size_bytes > MAX_MEMBER_METADATA_BYTES:
        why = f"its protocols have {size_bytes} bytes, at most {MAX_MEMBER_METADATA_BYTES} are allowed; {_ADVICE}"
        _tell(node, context, request, why)
        return _refused(JoinGroupResponse(error_code=ErrorCode.INVALID_REQUEST, member_id=request.member_id), version)
    runner = node.groups.find(request.group_id)
    if isinstance(runner, ErrorCode):
        return JoinGroupResponse(error_code=runner, member_id=request.member_id)
    shard = runner.shard
    if size_bytes > SMALL_METADATA_BYTES:
        more_bytes = shard.more_is_said(request)
        if more_bytes > 0 and more_bytes + _said_bytes(node) > MAX_ALL_METADATA_BYTES:
            why = f"the protocols of the members of all groups would have more than {MAX_ALL_METADATA_BYTES} bytes"
            _tell(node, context, request, f"{why}; {_ADVICE}")
            refused = JoinGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id=request.member_id)
            return _refused(refused, version)
    if shard.is_too_much(request):
        why = f"the protocols of all its members would have more than {MAX_GROUP_METADATA_BYTES} bytes; {_ADVICE}"
        _tell(node, context, request, why)
    client = Client(context.client_id, context.session.client_host, node.access.sees(context))
    unique = str(uuid.UUID(int=node.rng.getrandbits(128), version=4))
    joined = runner.submit(
        lambda token, now_ms: shard.join_group(
            token,
            request,
            client,
            now_ms,
            unique_id=unique,
            member_id_required=version >= _KNOWS_MEMBER_ID_REQUIRED_FROM,
            skip_assignment=version >= _SKIPS_ASSIGNMENT_FROM,
        )
    )
    if version >= _NULLABLE_PROTOCOL_FROM:
        return then(joined, _with_null)
    return then(joined, _without_null)


def _said_bytes(node: HasGroups) -> int:
    """What the members of all groups say of themselves."""
    return sum(runner.shard.metadata_bytes for runner in node.groups.active())


def _tell(node: HasRefusals, context: RequestContext, request: JoinGroupRequest, why: str) -> None:
    what = f"a JoinGroup to group {shown(request.group_id)}: {why}"
    node.refusals.tell(context.session.client_host, context.client_id, what)


def _refused(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    return _with_null(response) if version >= _NULLABLE_PROTOCOL_FROM else _without_null(response)


def _with_null(response: JoinGroupResponse) -> JoinGroupResponse:
    """A member that is not in the group has no protocol. A protocol without a name is told as none, as Kafka does."""
    return response if response.protocol_name and not response.error_code else response._replace(protocol_name=None)


def _without_null(response: JoinGroupResponse) -> JoinGroupResponse:
    """Older versions have no null protocol name."""
    return response._replace(protocol_name=response.protocol_name or "")

"""CreateAcls, versions 1–3: ACLs (KIP-140), with prefixed patterns (KIP-290), for users (version 3, KIP-373)."""

import asyncio
from typing import Protocol

from ottla.base.errors import StorageError
from ottla.broker.access.acls import Acl
from ottla.broker.access.rules import acl_problem
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.rules import RefusedError, check_changes
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.acls import HasAcls
from ottla.broker.runtime.answers import then
from ottla.wire.acls import AclOperation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

_GOOD = AclCreationResult(0, None)


class _Node(HasAccess, HasAcls, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: CreateAclsRequest, context: RequestContext
) -> "CreateAclsResponse | asyncio.Future[CreateAclsResponse]":
    """Each ACL that can be. One that is there already is no error, and stays one."""
    if not node.access.is_on:
        return _all(request, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    if not node.access.allows_cluster(context, AclOperation.ALTER):
        return _all(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Changing ACLs needs ALTER on the cluster.")
    try:
        check_changes(len(request.creations), "ACLs")
    except RefusedError as refused:
        return _all(request, refused.error, str(refused))
    asked = [Acl(*each) for each in request.creations]
    problems = [acl_problem(each) for each in asked]
    good = [acl for acl, problem in zip(asked, problems, strict=True) if problem is None]

    def told(fault: StorageError | None) -> CreateAclsResponse:
        done = _GOOD if fault is None else AclCreationResult(ErrorCode.KAFKA_STORAGE_ERROR, str(fault))
        return CreateAclsResponse(
            results=tuple(
                done if problem is None else AclCreationResult(ErrorCode.INVALID_REQUEST, problem)
                for problem in problems
            )
        )

    answer: CreateAclsResponse | asyncio.Future[CreateAclsResponse] = then(node.acls.create(good), told)
    return answer


def _all(request: CreateAclsRequest, error: ErrorCode, message: str) -> CreateAclsResponse:
    return CreateAclsResponse(results=(AclCreationResult(error, message),) * len(request.creations))

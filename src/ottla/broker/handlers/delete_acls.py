"""DeleteAcls, versions 1–3 (KIP-140): the ACLs that filters mean."""

import asyncio
from typing import Protocol

from ottla.base.errors import StorageError
from ottla.broker.access.acls import Acl, AclFilter
from ottla.broker.access.rules import filter_problem
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.rules import RefusedError
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.acls import HasAcls
from ottla.broker.runtime.answers import then
from ottla.wire.acls import AclOperation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


class _Node(HasAccess, HasAcls, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DeleteAclsRequest, context: RequestContext
) -> "DeleteAclsResponse | asyncio.Future[DeleteAclsResponse]":
    """Delete them, and name for each filter those that it means."""
    if not node.access.is_on:
        return _all(request, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    if not node.access.allows_cluster(context, AclOperation.ALTER):
        return _all(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Changing ACLs needs ALTER on the cluster.")
    asked = [AclFilter(*each) for each in request.filters]
    problems = [filter_problem(each) for each in asked]
    good = [wanted for wanted, problem in zip(asked, problems, strict=True) if problem is None]

    def told(met: list[list[Acl]] | StorageError | RefusedError) -> DeleteAclsResponse:
        if isinstance(met, StorageError):
            return _all(request, ErrorCode.KAFKA_STORAGE_ERROR, str(met))
        if isinstance(met, RefusedError):
            return _all(request, met.error, str(met))
        found = iter(met)
        return DeleteAclsResponse(
            filter_results=tuple(
                DeleteAclsFilterResult(0, None, tuple(_gone(acl) for acl in next(found)))
                if problem is None
                else DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, problem)
                for problem in problems
            )
        )

    answer: DeleteAclsResponse | asyncio.Future[DeleteAclsResponse] = then(node.acls.delete(good), told)
    return answer


def _gone(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(0, None, *acl)


def _all(request: DeleteAclsRequest, error: ErrorCode, message: str) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=tuple(DeleteAclsFilterResult(error, message) for _ in request.filters))

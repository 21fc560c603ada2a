"""DeleteAcls, versions 1–3 (KIP-140): the ACLs that filters mean."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

from ottla.base.errors import StorageError
from ottla.broker.access.acls import Acl, AclFilter
from ottla.broker.access.rules import filter_problem
from ottla.broker.handlers.parts import PART_NAMES
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.rules import RefusedError
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.acls import HasAcls
from ottla.broker.ports.slices import HasSlices
from ottla.broker.runtime.answers import then
from ottla.wire.acls import AclOperation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

#: What each filter has met, or why nothing is deleted.
_Met: TypeAlias = list[list[Acl]] | StorageError | RefusedError


class _Node(HasAccess, HasAcls, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DeleteAclsRequest, context: RequestContext
) -> "DeleteAclsResponse | asyncio.Future[DeleteAclsResponse]":
    """Delete them, and name for each filter those that it means."""
    if not node.access.is_on:
        return _all(request, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    if not node.access.allows_cluster(context, AclOperation.ALTER):
        return _all(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Changing ACLs needs ALTER on the cluster.")
    if len(request.filters) > PART_NAMES:
        return node.slices.start(_slowly(node, request), "many filters of ACLs")
    asked = list(map(_read, request.filters))
    answer: DeleteAclsResponse | asyncio.Future[DeleteAclsResponse] = then(
        node.acls.delete(_good(asked)), lambda met: _refused(request, met) or _answer(_told(asked, met))
    )
    return answer


async def _slowly(node: _Node, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """What each filter means is read and told while others are served, too."""
    asked = await node.slices.collect(map(_read, request.filters))
    met = await node.acls.delete(_good(asked))
    return _refused(request, met) or _answer(await node.slices.collect(_told(asked, met)))


def _read(asked: DeleteAclsFilter) -> tuple[AclFilter, str | None]:
    """The filter, and what is wrong with it."""
    wanted = AclFilter(*asked)
    return wanted, filter_problem(wanted)


def _good(asked: Sequence[tuple[AclFilter, str | None]]) -> list[AclFilter]:
    return [wanted for wanted, problem in asked if problem is None]


def _refused(request: DeleteAclsRequest, met: _Met) -> DeleteAclsResponse | None:
    """The answer where nothing is deleted."""
    if isinstance(met, StorageError):
        return _all(request, ErrorCode.KAFKA_STORAGE_ERROR, str(met))
    return _all(request, met.error, str(met)) if isinstance(met, RefusedError) else None


def _told(asked: Sequence[tuple[AclFilter, str | None]], met: _Met) -> Iterator[DeleteAclsFilterResult]:
    """What each filter has met, or what is wrong with it."""
    found = iter(met if isinstance(met, list) else ())
    for _, problem in asked:
        if problem is None:
            yield DeleteAclsFilterResult(0, None, tuple(map(_gone, next(found))))
        else:
            yield DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, problem)


def _answer(told: Iterable[DeleteAclsFilterResult]) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=tuple(told))


def _gone(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(0, None, *acl)


def _all(request: DeleteAclsRequest, error: ErrorCode, message: str) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=tuple(DeleteAclsFilterResult(error, message) for _ in request.filters))

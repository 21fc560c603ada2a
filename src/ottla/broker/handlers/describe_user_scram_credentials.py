"""DescribeUserScramCredentials, version 0 (KIP-554): which users have which credentials. Their keys are never told."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage
from ottla.wire.acls import AclOperation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


class _Node(HasAccess, HasImage, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> "DescribeUserScramCredentialsResponse | asyncio.Future[DescribeUserScramCredentialsResponse]":
    """The users that are named, or all. RESOURCE_NOT_FOUND for one who has none, DUPLICATE_RESOURCE for one who is
    named twice."""
    if not node.access.allows_cluster(context, AclOperation.DESCRIBE):
        refused, why = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Describing users needs DESCRIBE on the cluster."
        return DescribeUserScramCredentialsResponse(error_code=refused, error_message=why)
    named = Counter(each.name for each in request.users or ())
    users = named or Counter(dict.fromkeys((name for users in node.image.scram.values() for name in users), 1))
    results = counted(context, (_describe(node.image, name, count) for name, count in users.items()))
    return node.slices.start(_told(node, results), "describing users")


async def _told(
    node: _Node, results: Iterator[DescribeUserScramCredentialsResult]
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(results=tuple(await node.slices.collect(results)))


def _describe(image: MetadataImage, name: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, message)
    infos = tuple(
        CredentialInfo(mechanism, users[name].iterations)
        for mechanism, users in sorted(image.scram.items())
        if name in users
    )
    if not infos:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, message)
    return DescribeUserScramCredentialsResult(name, 0, None, infos)

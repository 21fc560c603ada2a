"""Admin calls about ACLs: who may do what (KIP-140)."""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple, TypeVar

from ottla.client.admin.base import AdminBase
from ottla.client.errors import raise_for
from ottla.wire.acls import AclOperation, AclPermissionType
from ottla.wire.acls import PatternType as AclPatternType
from ottla.wire.acls import ResourceType as AclResourceType
from ottla.wire.apis import ApiKey
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclCalls",
    "AclOperation",
    "AclPatternType",
    "AclPermissionType",
    "AclResourceType",
]

E = TypeVar("E", bound=IntEnum)


class AclBinding(NamedTuple):
    """One ACL: `AclBinding(AclResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)` lets Alice read it."""

    resource_type: AclResourceType
    #: A name, the beginning of names (PREFIXED), or `*` for all. The cluster's is `kafka-cluster`.
    resource_name: str
    principal: str
    operation: AclOperation
    permission_type: AclPermissionType = AclPermissionType.ALLOW
    pattern_type: AclPatternType = AclPatternType.LITERAL
    host: str = "*"

    def __str__(self) -> str:
        verb = "may" if self.permission_type is AclPermissionType.ALLOW else "may not"
        where = "" if self.host == "*" else f" from {self.host}"
        star = "*" if self.pattern_type is AclPatternType.PREFIXED else ""
        kind = self.resource_type.name.lower().replace("_", " ")
        return f"{self.principal} {verb} {self.operation.name} {kind} {self.resource_name}{star}{where}"


class AclBindingFilter(NamedTuple):
    """Which ACLs are meant. What is not given means every one; MATCH means those that concern the resource."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY
    pattern_type: AclPatternType = AclPatternType.ANY
    host: str | None = None


class AclCalls(AdminBase):
    """ACLs. A broker without an authorizer refuses all of them with SECURITY_DISABLED."""

    async def create_acls(self, acls: Iterable[AclBinding]) -> None:
        """Add ACLs; one that is there already stays. Raises KafkaError of the first that is refused."""
        wanted = tuple(acls)
        request = CreateAclsRequest(
            tuple(
                AclCreation(
                    each.resource_type,
                    each.resource_name,
                    each.pattern_type,
                    each.principal,
                    each.host,
                    each.operation,
                    each.permission_type,
                )
                for each in wanted
            )
        )

        async def attempt() -> None:
            answer: CreateAclsResponse = await self._requests.ask_controller(ApiKey.CREATE_ACLS, request)
            for acl, result in zip(wanted, answer.results, strict=True):
                raise_for(result.error_code, f"{acl}: {result.error_message}")

        await self._requests.repeat(attempt, "create_acls")

    async def describe_acls(self, wanted: AclBindingFilter = AclBindingFilter()) -> list[AclBinding]:  # noqa: B008
        """The ACLs that the filter means, sorted. Raises KafkaError, RequestTimeoutError."""
        request = DescribeAclsRequest(*_in_order(wanted))

        async def attempt() -> list[AclBinding]:
            node_id = self._cluster.least_loaded()
            answer: DescribeAclsResponse = await self._cluster.request(node_id, ApiKey.DESCRIBE_ACLS, request)
            raise_for(answer.error_code, answer.error_message or "ACLs cannot be seen")
            return sorted(
                _binding(
                    resource.resource_type,
                    resource.resource_name,
                    resource.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                )
                for resource in answer.resources
                for acl in resource.acls
            )

        return await self._requests.repeat(attempt, "describe_acls")

    async def delete_acls(self, filters: Iterable[AclBindingFilter]) -> list[AclBinding]:
        """Delete the ACLs that any of the filters means; returns them, sorted. Raises KafkaError of the first filter
        that is refused."""
        request = DeleteAclsRequest(tuple(DeleteAclsFilter(*_in_order(each)) for each in filters))

        async def attempt() -> list[AclBinding]:
            answer: DeleteAclsResponse = await self._requests.ask_controller(ApiKey.DELETE_ACLS, request)
            gone: set[AclBinding] = set()
            for result in answer.filter_results:
                raise_for(result.error_code, result.error_message or "ACLs cannot be deleted")
                for acl in result.matching_acls:
                    raise_for(acl.error_code, acl.error_message or "an ACL cannot be deleted")
                    gone.add(_deleted(acl))
            return sorted(gone)

        return await self._requests.repeat(attempt, "delete_acls")


def _in_order(wanted: AclBindingFilter) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    """The filter's parts as the messages have them."""
    return (
        wanted.resource_type,
        wanted.resource_name,
        wanted.pattern_type,
        wanted.principal,
        wanted.host,
        wanted.operation,
        wanted.permission_type,
    )


def _known(kind: type[E], number: int) -> E:
    """A number of a newer broker that has no name here is UNKNOWN."""
    return kind(number) if number in tuple(kind) else kind(0)


def _binding(
    resource_type: int, name: str, pattern_type: int, principal: str, host: str, operation: int, permission: int
) -> AclBinding:
    return AclBinding(
        _known(AclResourceType, resource_type),
        name,
        principal,
        _known(AclOperation, operation),
        _known(AclPermissionType, permission),
        _known(AclPatternType, pattern_type),
        host,
    )


def _deleted(acl: DeleteAclsMatchingAcl) -> AclBinding:
    return _binding(
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )

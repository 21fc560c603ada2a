"""Checks an ACL before it is written, and a filter before it is used. The messages tell a user what to do."""

from ottla.broker.access.acls import Acl, AclFilter
from ottla.broker.access.authorizer import is_principal
from ottla.wire.acls import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType

_TYPES = tuple(each for each in ResourceType if each > ResourceType.ANY)
_OPERATIONS = tuple(each for each in AclOperation if each > AclOperation.ANY)


def acl_problem(acl: Acl) -> str | None:
    """Why there can be no such ACL, or None.

    Kafka also takes a principal without a colon, and then fails at each question about its resource.
    """
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if acl.resource_type not in _TYPES:
        return f"Invalid resourceType {acl.resource_type}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern_type}: an ACL is LITERAL or PREFIXED"
    if acl.operation not in _OPERATIONS:
        return f"Invalid operation {acl.operation}"
    if acl.permission_type not in (AclPermissionType.DENY, AclPermissionType.ALLOW):
        return f"Invalid permissionType {acl.permission_type}: an ACL is DENY or ALLOW"
    if not is_principal(acl.principal):
        return f"Invalid principal {acl.principal!r}: write it as User:name"
    if not acl.host:
        return "Invalid empty host: write an address, or * for every one"
    return None


def filter_problem(wanted: AclFilter) -> str | None:
    """Why a filter means nothing that there is, or None."""
    if wanted.resource_type not in tuple(ResourceType)[1:] or wanted.pattern_type not in tuple(PatternType)[1:]:
        return "Unknown patternFilter."
    if wanted.operation not in tuple(AclOperation)[1:] or wanted.permission_type not in tuple(AclPermissionType)[1:]:
        return "Unknown entryFilter."
    return None

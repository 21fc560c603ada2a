"""The rules for ACLs read naively, ACL by ACL, as Kafka's documentation says them."""

from collections.abc import Iterable

from ottla.broker.access.acls import Acl
from ottla.wire.acls import AclOperation, AclPermissionType, PatternType
from tests.broker.access.acl_worlds import Question

_O = AclOperation


def concerns(acl: Acl, resource_type: int, name: str) -> bool:
    """Whether an ACL is about a resource."""
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in ("*", name)


def _is_for(acl: Acl, asked: Question) -> bool:
    return acl.principal in ("User:*", asked.principal) and acl.host in ("*", asked.host)


def _has(acl: Acl, operation: int) -> bool:
    if acl.operation in (_O.ALL, operation):
        return True
    if acl.permission_type == AclPermissionType.DENY:
        return False
    if operation == _O.DESCRIBE:
        return acl.operation in (_O.READ, _O.WRITE, _O.DELETE, _O.ALTER)
    return operation == _O.DESCRIBE_CONFIGS and acl.operation == _O.ALTER_CONFIGS


def may(acls: Iterable[Acl], asked: Question, *, if_no_acl: bool = False) -> bool:
    """The answer for who is no super user."""
    about = [each for each in acls if concerns(each, asked.resource_type, asked.name)]
    if not about:
        return if_no_acl
    speaking = [each.permission_type for each in about if _is_for(each, asked) and _has(each, asked.operation)]
    return AclPermissionType.DENY not in speaking and AclPermissionType.ALLOW in speaking

"""Answers one question: may this principal, from this host, do this with this resource?"""

from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from ipaddress import IPv6Address
from typing import NamedTuple

from ottla.base.errors import ConfigError
from ottla.broker.access.acls import Acls
from ottla.wire.acls import ResourceType


class Rule(Enum):
    """What decided."""

    SUPER_USER = "super user"
    DENY_ACL = "an ACL denies it"
    ALLOW_ACL = "an ACL allows it"
    NO_ALLOW_ACL = "no ACL allows it"
    NO_ACL_ALLOWED = "the resource has no ACL, and then everybody may"


class Verdict(NamedTuple):
    """The answer, and why."""

    is_allowed: bool
    rule: Rule


_SUPER_USER = Verdict(True, Rule.SUPER_USER)
_DENIED = Verdict(False, Rule.DENY_ACL)
_ALLOWED = Verdict(True, Rule.ALLOW_ACL)
_NOT_ALLOWED = Verdict(False, Rule.NO_ALLOW_ACL)
_EVERYBODY = Verdict(True, Rule.NO_ACL_ALLOWED)
#: Some name, to see whether a principal may do something wherever nothing special is said (Kafka uses this one).
_SOME_NAME = "hardcode"


class Authorizer:
    """Apache Kafka's StandardAuthorizer: super users first, then ACLs that deny, then those that allow."""

    def __init__(self, acls: Acls, super_users: Iterable[str] = (), *, allow_everyone_if_no_acl: bool = False) -> None:
        self.acls = acls
        self._super_users = frozenset(super_users)
        self._no_acl = _EVERYBODY if allow_everyone_if_no_acl else _NOT_ALLOWED

    def decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Verdict:
        """`principal` is `User:alice`, `host` as `java_host` writes it, `name` the resource's own: no pattern."""
        if principal in self._super_users:
            return _SUPER_USER
        found = self.acls.find(principal, host, operation, resource_type, name)
        if found.is_denied:
            return _DENIED
        if found.is_allowed:
            return _ALLOWED
        return _NOT_ALLOWED if found.has_acls else self._no_acl

    def decide_somewhere(self, principal: str, host: str, operation: int, resource_type: ResourceType) -> Verdict:
        """Whether the principal may do it with any resource of this type (KIP-679)."""
        verdict = self.decide(principal, host, operation, resource_type, _SOME_NAME)
        if verdict.is_allowed:
            return verdict
        is_allowed = self.acls.allow_somewhere(principal, host, operation, resource_type)
        return _ALLOWED if is_allowed else _NOT_ALLOWED


def parse_super_users(text: str) -> tuple[str, ...]:
    """The principals in `super.users`, which `;` separates: a name may have a comma (`User:CN=a,O=b;User:admin`).

    ConfigError for one that is no principal.
    """
    found = tuple(each.strip() for each in text.split(";") if each.strip())
    for each in found:
        if not is_principal(each):
            raise ConfigError(f"super.users: {each!r} is no principal; write User:name, and ; between two of them")
    return found


def is_principal(text: str) -> bool:
    """Whether this is a type and a name with a colon between them, as in `User:alice`."""
    kind, colon, name = text.partition(":")
    return bool(kind and colon and name)


@lru_cache(maxsize=1000)
def java_host(address: str) -> str:
    """An address as Java, and so an ACL, writes it: `::1` is `0:0:0:0:0:0:0:1`, `::ffff:1.2.3.4` is `1.2.3.4`.

    What is no address comes back as it is.
    """
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in found.exploded.split(":"))

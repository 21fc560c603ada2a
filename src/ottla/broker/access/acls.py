"""ACLs, and the few of them that matter for one question.

How it is fast. For each resource pattern there is a table from (principal, host) to the operations that are allowed and
denied there, as bits. A question looks at the pattern with the resource's own name, at the pattern `*`, and at one
prefix of the name for each length that prefixed patterns have; in each at four pairs: the principal or everybody, from
the host or from everywhere. So the number of ACLs does not matter, only the number of different prefix lengths.
(Kafka's StandardAuthorizerData walks a sorted set, past every ACL whose name is a prefix.)
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from typing import Final, NamedTuple

from ottla.base.require import InvariantError
from ottla.wire.acls import WILDCARD, WILDCARD_PRINCIPAL, AclOperation, AclPermissionType, PatternType, ResourceType


class Acl(NamedTuple):
    """One access control entry on one resource pattern.

    `Acl(TOPIC, "orders", LITERAL, "User:alice", "*", READ, ALLOW)`: Alice may read the topic orders, from every host.
    """

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AclFilter(NamedTuple):
    """Which ACLs are meant. None and ANY mean every one, the pattern type MATCH all that concern the named resource."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission_type: int = AclPermissionType.ANY

    def matches(self, acl: Acl) -> bool:
        """Whether this ACL is meant (Kafka's ResourcePatternFilter and AccessControlEntryFilter)."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (AclPermissionType.ANY, acl.permission_type)
            and self._matches_pattern(acl.resource_name, acl.pattern_type)
        )

    def _matches_pattern(self, name: str, pattern_type: int) -> bool:
        asked = self.resource_name
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern_type):
            return False
        if asked is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return asked == name
        return asked.startswith(name) if pattern_type == PatternType.PREFIXED else name in (asked, WILDCARD)


class Finding(NamedTuple):
    """What the ACLs say of one question."""

    is_denied: bool
    is_allowed: bool
    #: Whether any ACL is about this resource, whoever it is for.
    has_acls: bool


_EVERYTHING: Final = -1
#: An ACL that allows one of these allows to describe as well; the second pair is for settings.
_IMPLY_DESCRIBE: Final = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)


def _allowed_bits(operation: int) -> int:
    """The operations that an ACL with ALLOW allows."""
    if operation == AclOperation.ALL:
        return _EVERYTHING
    bits = 1 << operation
    if operation in _IMPLY_DESCRIBE:
        bits |= 1 << AclOperation.DESCRIBE
    elif operation == AclOperation.ALTER_CONFIGS:
        bits |= 1 << AclOperation.DESCRIBE_CONFIGS
    return bits


class _Rules:
    """What one principal from one host may do with one resource pattern."""

    __slots__ = ("allowed", "denied", "entries")

    def __init__(self) -> None:
        self.allowed = 0
        self.denied = 0
        #: (operation, permission type) of each ACL.
        self.entries: set[tuple[int, int]] = set()

    def change(self, acl: Acl, *, add: bool) -> None:
        """Take in an ACL, or forget it."""
        entry = acl.operation, acl.permission_type
        if add:
            self.entries.add(entry)
        else:
            self.entries.remove(entry)
        self.allowed = self.denied = 0
        for operation, permission in self.entries:
            if permission == AclPermissionType.ALLOW:
                self.allowed |= _allowed_bits(operation)
            else:  # what is denied implies nothing
                self.denied |= _EVERYTHING if operation == AclOperation.ALL else 1 << operation

    def has(self, operation: int, permission: int) -> bool:
        """Whether an ACL names the operation itself, or all."""
        return (operation, permission) in self.entries or (AclOperation.ALL, permission) in self.entries


_Pattern = tuple[int, str]


class Acls:
    """All ACLs, by id. Changed in the order of the metadata log."""

    def __init__(self) -> None:
        self._by_id: dict[bytes, Acl] = {}
        self._ids: dict[Acl, bytes] = {}
        #: (resource type, pattern type, name) → (principal, host) → what they may do.
        self._on: dict[tuple[int, int, str], dict[tuple[str, str], _Rules]] = {}
        #: (resource type, principal, host) → (pattern type, name) → the same.
        self._of: dict[tuple[int, str, str], dict[_Pattern, _Rules]] = {}
        #: Resource type → how many prefixed patterns have a name of this length.
        self._prefix_lengths: dict[int, Counter[int]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, acl: object) -> bool:
        return acl in self._ids

    def __iter__(self) -> Iterator[tuple[bytes, Acl]]:
        return iter(self._by_id.items())

    def add(self, acl_id: bytes, acl: Acl) -> None:
        """One more. As in Kafka, neither its id nor the same ACL may be there already."""
        if acl_id in self._by_id or acl in self._ids:  # no text is made of the thousands of a request that are good
            raise InvariantError(f"{acl} is there already")
        self._by_id[acl_id] = acl
        self._ids[acl] = acl_id
        where, who = (acl.resource_type, acl.pattern_type, acl.resource_name), (acl.principal, acl.host)
        on = self._on.get(where)
        if on is None:
            on = self._on[where] = {}
            if acl.pattern_type == PatternType.PREFIXED:
                self._prefix_lengths.setdefault(acl.resource_type, Counter())[len(acl.resource_name)] += 1
        rules = on.get(who)
        if rules is None:
            rules = on[who] = _Rules()
            self._of.setdefault((acl.resource_type, *who), {})[acl.pattern_type, acl.resource_name] = rules
        rules.change(acl, add=True)

    def remove(self, acl_id: bytes) -> None:
        """The ACL with this id, which must be there."""
        acl = self._by_id.pop(acl_id, None)
        if acl is None:
            raise InvariantError(f"there is no ACL with the id {acl_id.hex()}")
        del self._ids[acl]
        where, who = (acl.resource_type, acl.pattern_type, acl.resource_name), (acl.principal, acl.host)
        rules = self._on[where][who]
        rules.change(acl, add=False)
        if rules.entries:
            return
        del self._on[where][who]
        of = self._of[acl.resource_type, *who]
        del of[acl.pattern_type, acl.resource_name]
        if not of:
            del self._of[acl.resource_type, *who]
        if not self._on[where]:
            del self._on[where]
            if acl.pattern_type == PatternType.PREFIXED:
                lengths = self._prefix_lengths[acl.resource_type]
                lengths[len(acl.resource_name)] -= 1
                if not lengths[len(acl.resource_name)]:
                    del lengths[len(acl.resource_name)]

    def all(self) -> Iterable[Acl]:
        """Every one, in no particular order."""
        return self._by_id.values()

    def meant(self, wanted: AclFilter) -> Iterator[tuple[bytes, Acl] | None]:
        """The ACLs that a filter means, in steps: None for what was looked at besides.

        Only a filter that names no resource looks at all: thousands of filters may come in one request.
        """
        if wanted.resource_name is None:
            for acl_id, acl in self._by_id.items():
                yield (acl_id, acl) if wanted.matches(acl) else None
            return
        for kind, pattern_type, name in self._named(wanted.resource_name, wanted):
            yield None
            for (principal, host), rules in self._on.get((kind, pattern_type, name), {}).items():
                for operation, permission in rules.entries:
                    acl = Acl(kind, name, pattern_type, principal, host, operation, permission)
                    yield (self._ids[acl], acl) if wanted.matches(acl) else None

    def _named(self, name: str, wanted: AclFilter) -> Iterator[tuple[int, int, str]]:
        """The patterns in `_on`, of any that may be there, that a filter with this name means."""
        kinds = ResourceType if wanted.resource_type == ResourceType.ANY else (wanted.resource_type,)
        for kind in kinds:
            if wanted.pattern_type != PatternType.MATCH:
                yield from ((kind, each, name) for each in (PatternType.LITERAL, PatternType.PREFIXED))
                continue
            yield from ((kind, PatternType.LITERAL, each) for each in {name, WILDCARD})
            for length in self._prefix_lengths.get(kind, ()):
                if length <= len(name):
                    yield kind, PatternType.PREFIXED, name[:length]

    def find(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Finding:
        """What the ACLs say of an operation on one resource. An ACL that denies it ends the search."""
        bit = 1 << operation
        is_allowed = has_acls = False
        for rules in self._about(resource_type, name):
            has_acls = True
            for who in ((principal, host), (principal, WILDCARD), (WILDCARD_PRINCIPAL, host), _EVERYBODY):
                found = rules.get(who)
                if found is not None:
                    if found.denied & bit:
                        return Finding(True, False, True)
                    if found.allowed & bit:
                        is_allowed = True
        return Finding(False, is_allowed, has_acls)

    def _about(self, resource_type: int, name: str) -> Iterator[dict[tuple[str, str], _Rules]]:
        on = self._on
        for literal in (name, WILDCARD):
            found = on.get((resource_type, PatternType.LITERAL, literal))
            if found is not None:
                yield found
        longest = len(name)
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= longest:
                found = on.get((resource_type, PatternType.PREFIXED, name[:length]))
                if found is not None:
                    yield found

    def allow_somewhere(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there is a resource of this type on which the operation is allowed and not denied.

        As Authorizer.authorizeByResourceType has it: only ACLs with the operation itself, or ALL, count; an allowed
        pattern counts unless it is denied as a whole.
        """
        allowed: set[_Pattern] = set()
        denied: set[_Pattern] = set()
        for who in ((principal, host), (principal, WILDCARD), (WILDCARD_PRINCIPAL, host), _EVERYBODY):
            for pattern, rules in self._of.get((resource_type, *who), {}).items():
                if rules.has(operation, AclPermissionType.ALLOW):
                    allowed.add(pattern)
                if rules.has(operation, AclPermissionType.DENY):
                    denied.add(pattern)
        if _ALL_NAMES in denied:
            return False
        return _ALL_NAMES in allowed or any(not _is_denied(pattern, denied) for pattern in allowed)


_EVERYBODY: Final = (WILDCARD_PRINCIPAL, WILDCARD)
_ALL_NAMES: Final[_Pattern] = (PatternType.LITERAL, WILDCARD)


def _is_denied(pattern: _Pattern, denied: Set[_Pattern]) -> bool:
    """Whether everything that a pattern covers is denied."""
    kind, name = pattern
    if kind == PatternType.LITERAL and pattern in denied:
        return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))

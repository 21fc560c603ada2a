"""May somebody do something? Examples, and properties against the rules read naively (SPEC X3)."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ConfigError
from ottla.broker.access.acls import Acl, AclFilter, Acls, _Rules
from ottla.broker.access.authorizer import Authorizer, Rule, java_host, parse_super_users
from ottla.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from tests.broker.access import naive
from tests.broker.access.acl_worlds import NAMES, OPERATIONS, TYPES, Question, acls, questions, worlds

_T, _P, _O, _A = ResourceType, PatternType, AclOperation, AclPermissionType
READ_ORDERS = Acl(_T.TOPIC, "orders", _P.LITERAL, "User:alice", "*", _O.READ, _A.ALLOW)


def _holding(*wanted: Acl) -> Acls:
    found = Acls()
    for number, each in enumerate(wanted):
        found.add(number.to_bytes(16), each)
    return found


def _rule(operation: AclOperation, *, principal: str = "User:alice", name: str = "orders") -> Rule:
    authorizer = Authorizer(
        _holding(
            READ_ORDERS,
            Acl(_T.TOPIC, "pay", _P.PREFIXED, "User:*", "10.0.0.7", _O.ALL, _A.DENY),
            Acl(_T.TOPIC, "*", _P.LITERAL, "User:alice", "*", _O.ALTER_CONFIGS, _A.ALLOW),
        ),
        ["User:admin"],
    )
    return authorizer.decide(principal, "10.0.0.7", operation, _T.TOPIC, name).rule


def test_the_verdict_says_which_rule_decided() -> None:
    assert _rule(_O.READ) is _rule(_O.DESCRIBE) is Rule.ALLOW_ACL, "who may read may describe"
    assert _rule(_O.DESCRIBE_CONFIGS) is Rule.ALLOW_ACL, "who may change settings may see them"
    assert _rule(_O.WRITE) is Rule.NO_ALLOW_ACL
    assert _rule(_O.ALTER_CONFIGS, name="payments") is Rule.DENY_ACL, "what denies comes before what allows"
    assert _rule(_O.WRITE, principal="User:admin", name="payments") is Rule.SUPER_USER
    assert _rule(_O.READ, principal="User:bob") is Rule.NO_ALLOW_ACL


def test_everybody_may_what_no_acl_is_about_if_that_is_wanted() -> None:
    open_ = Authorizer(_holding(READ_ORDERS), allow_everyone_if_no_acl=True)
    assert open_.decide("User:bob", "h", _O.WRITE, _T.TOPIC, "other").rule is Rule.NO_ACL_ALLOWED
    assert open_.decide("User:bob", "h", _O.WRITE, _T.TOPIC, "orders").rule is Rule.NO_ALLOW_ACL


@settings(max_examples=400, deadline=None)
@given(world=worlds, asked=questions, if_no_acl=st.booleans())
def test_the_answer_is_that_of_the_rules_read_naively(world: list[Acl], asked: Question, if_no_acl: bool) -> None:
    authorizer = Authorizer(_holding(*world), allow_everyone_if_no_acl=if_no_acl)
    assert authorizer.decide(*asked).is_allowed == naive.may(world, asked, if_no_acl=if_no_acl)


@settings(max_examples=100, deadline=None)
@given(world=worlds, later=worlds, asked=questions)
def test_what_was_removed_has_never_been(world: list[Acl], later: list[Acl], asked: Question) -> None:
    found = _holding(*world)
    more = [each for each in later if each not in found]
    for number, each in enumerate(more):
        found.add(bytes([255, *number.to_bytes(15)]), each)
    for number in range(len(more)):
        found.remove(bytes([255, *number.to_bytes(15)]))
    assert sorted(acl for _, acl in found) == sorted(world)
    assert found.find(*asked) == _holding(*world).find(*asked)
    for number in range(len(world)):
        found.remove(number.to_bytes(16))
    assert vars(found) == vars(Acls()) | {"_prefix_lengths": vars(found)["_prefix_lengths"]}
    assert not any(vars(found)["_prefix_lengths"].values()), "nothing stays behind"


def _allowed_somewhere(world: list[Acl], principal: str, host: str, operation: int, resource_type: int) -> bool:
    """Whether some name is allowed: all that the ACLs' names make different, each with a new one behind it.

    An ACL that implies the operation does not count (Authorizer.authorizeByResourceType), and so is left out.
    """
    named = [each for each in world if each.operation in (_O.ALL, operation)]
    names = {each.resource_name for each in world} | {f"{each.resource_name}\x7f" for each in world} | {"\x7f"}
    return any(naive.may(named, Question(principal, host, operation, resource_type, name)) for name in names)


@settings(max_examples=400, deadline=None)
@given(world=worlds, asked=questions)
def test_somewhere_is_any_name_that_is_allowed(world: list[Acl], asked: Question) -> None:
    # Kafka does not see that a literal ACL for `*` allows nothing new where prefixes deny, so a name is there always.
    principal, host, _, resource_type, _ = asked
    authorizer = Authorizer(_holding(*world))
    somewhere = authorizer.decide_somewhere(principal, host, _O.WRITE, ResourceType(resource_type)).is_allowed
    assert somewhere == _allowed_somewhere(world, principal, host, _O.WRITE, resource_type)


def test_who_may_write_to_every_topic_may_write_somewhere_although_some_beginning_is_denied() -> None:
    write = READ_ORDERS._replace(operation=_O.WRITE, resource_name="*")
    denied = write._replace(pattern_type=_P.PREFIXED, permission_type=_A.DENY)
    authorizer = Authorizer(_holding(write, denied, denied._replace(resource_name="hard")))
    assert authorizer.decide_somewhere("User:alice", "h", _O.WRITE, _T.TOPIC).rule is Rule.ALLOW_ACL
    assert authorizer.decide_somewhere("User:bob", "h", _O.WRITE, _T.TOPIC).rule is Rule.NO_ALLOW_ACL


@settings(max_examples=200, deadline=None)
@given(world=worlds, name=st.sampled_from((*NAMES, "*", None)), kind=st.sampled_from(TYPES))
def test_the_filter_match_means_what_decides_about_a_name(world: list[Acl], name: str | None, kind: int) -> None:
    wanted = AclFilter(kind, name, _P.MATCH)
    expected = [each for each in world if (name is None and each.resource_type == kind) or _about(each, kind, name)]
    assert sorted(acl for acl in _holding(*world).all() if wanted.matches(acl)) == sorted(expected)


def _about(acl: Acl, kind: int, name: str | None) -> bool:
    return name is not None and naive.concerns(acl, kind, name)


@given(acl=acls)
def test_a_filter_means_the_acl_that_it_spells_out(acl: Acl) -> None:
    assert AclFilter(*acl).matches(acl)
    assert AclFilter().matches(acl)
    assert not AclFilter(*acl)._replace(principal="User:zoe").matches(acl)
    assert not AclFilter(*acl)._replace(host="h").matches(acl)
    assert not AclFilter(*acl)._replace(resource_name="none").matches(acl)
    other_operation = next(each for each in OPERATIONS if each != acl.operation)
    assert not AclFilter(*acl)._replace(operation=other_operation).matches(acl)
    assert not AclFilter(*acl)._replace(permission_type=5 - acl.permission_type).matches(acl)
    assert not AclFilter(*acl)._replace(pattern_type=7 - acl.pattern_type).matches(acl)


class _CountingAcls(Acls):
    """Counts the resource patterns that questions look at."""

    looked = 0

    def _about(self, resource_type: int, name: str) -> Iterator[dict[tuple[str, str], _Rules]]:
        for each in super()._about(resource_type, name):
            self.looked += 1
            yield each


def test_ten_thousand_acls_are_not_looked_at_one_by_one() -> None:
    many = _CountingAcls()
    for number in range(10_000):
        acl = Acl(_T.TOPIC, "t", _P.PREFIXED, f"User:{number}", "*", _O.READ, _A.ALLOW)
        many.add(number.to_bytes(16), acl._replace(resource_name=f"topic-{number:05}") if number % 2 else acl)
    assert many.find("User:8000", "h", _O.READ, _T.TOPIC, "topic-00001").is_allowed
    assert not many.find("User:9000", "h", _O.WRITE, _T.TOPIC, "topic-00001").is_allowed
    assert many.looked <= 2 * 2, "one pattern for each length of prefixes, whatever their number"


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users(" User:CN=a,O=b ;User:admin;; ") == ("User:CN=a,O=b", "User:admin")
    assert parse_super_users("") == ()
    with pytest.raises(ConfigError, match="'alice' is no principal; write User:name"):
        parse_super_users("User:bob;alice")


@pytest.mark.parametrize(
    ("address", "java"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("no:address", "no:address"),
    ],
)
def test_an_address_is_compared_as_java_writes_it(address: str, java: str) -> None:
    assert java_host(address) == java


@settings(max_examples=400, deadline=None)
@given(
    world=worlds,
    name=st.sampled_from((*NAMES, "*", "abcd", "zz", None)),
    kind=st.sampled_from((_T.ANY, *TYPES)),
    pattern=st.sampled_from((_P.ANY, _P.MATCH, _P.LITERAL, _P.PREFIXED)),
    like=acls,
    parts=st.sets(st.sampled_from(("principal", "host", "operation", "permission_type"))),
)
def test_what_a_filter_means_is_found_by_its_name(
    world: list[Acl], name: str | None, kind: int, pattern: int, like: Acl, parts: set[str]
) -> None:
    wanted = AclFilter(kind, name, pattern)._replace(**{part: getattr(like, part) for part in parts})
    there = _holding(*world)
    found = [meant for meant in there.meant(wanted) if meant is not None]
    assert sorted(found) == sorted(each for each in there if wanted.matches(each[1]))


def test_a_filter_with_a_name_looks_at_few_acls_however_many_there_are() -> None:
    """300 filters took 9 s of the event loop where 20,000 ACLs were there, in steps."""
    there = _holding(*(READ_ORDERS._replace(resource_name=f"t{number}") for number in range(1_000)))
    for pattern in (_P.ANY, _P.MATCH, _P.LITERAL, _P.PREFIXED):
        for kind, steps in ((_T.TOPIC, 3), (_T.ANY, 3 * len(_T))):
            looked = list(there.meant(AclFilter(kind, "t7", pattern)))
            assert len(looked) <= steps
            assert (looked.count(None) < len(looked)) is (pattern != _P.PREFIXED)

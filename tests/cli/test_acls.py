"""`ottla acls` against a broker with an authorizer, and against one without."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ottla.broker.config_keys import STANDARD_AUTHORIZER
from ottla.cli.main import main
from ottla.testing import Broker
from tests.cli.conftest import Ottla, Said


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    with Broker({"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}) as broker:
        yield broker


@pytest.fixture
def acls(guarded: Broker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Runs `ottla acls ARGUMENTS…`, with no ACLs at first."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP", guarded.bootstrap_servers)

    def run(*arguments: str) -> Said:
        return Said(main(("acls", *arguments)), *capfd.readouterr())

    assert run("remove", "--all").code == 0
    return run


def test_acls_are_added_listed_and_removed(acls: Callable[..., Said]) -> None:
    added = acls("add", "User:alice", "read", "DESCRIBE_CONFIGS", "--topic", "orders-", "--prefixed")
    assert added == (
        0,
        "",
        "User:alice may READ topic orders-*.\nUser:alice may DESCRIBE_CONFIGS topic orders-*.\n",
    )
    denied = acls("add", "User:*", "alter", "--cluster", "--deny", "--host", "::1")
    assert denied.err == "User:* may not ALTER cluster kafka-cluster from 0:0:0:0:0:0:0:1.\n"
    about = acls("list", "--topic", "orders-7", "--json").data
    assert [(each["operation"], each["pattern"]) for each in about] == [
        ("READ", "PREFIXED"),
        ("DESCRIBE_CONFIGS", "PREFIXED"),
    ]
    assert acls("list", "--topic", "other").out == "There are no such ACLs.\n"
    assert len(acls("list", "--json").data) == 3
    gone = acls("remove", "--principal", "User:alice", "--operation", "read", "--json").data
    assert gone == [
        {
            "principal": "User:alice",
            "permission": "ALLOW",
            "operation": "READ",
            "resource": "TOPIC",
            "name": "orders-",
            "pattern": "PREFIXED",
            "host": "*",
        }
    ]
    assert len(acls("remove", "--topic", "orders-", "--json").data) == 1
    assert acls("remove", "--principal", "User:zoe").out == "There are no such ACLs; nothing was removed.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "User:alice", "READ"), "on what? give --topic NAME, --group ID, --transactional-id ID or --cluster"),
        (
            ("add", "alice", "READ", "--topic", "t"),
            "'alice' is no principal; write User:alice, or User:*",
        ),
        (("add", "User:alice", "REED", "--topic", "t"), "'REED' is no operation; there are ALL, READ, WRITE"),
        (("add", "User:a", "CREATE", "--group", "g"), "nobody asks for CREATE on a group; there are ALL, READ, DELETE"),
        (("add", "User:a", "READ", "--transactional-id", "x"), "on a transactional id; there are ALL, WRITE, DESCRIBE"),
        (("add", "User:a", "READ", "--topic", "t", "--host", "localhost"), "'localhost' is no address"),
        (("add", "User:a", "READ", "--topic", "t", "--host", "10.0.0.0/8"), "'10.0.0.0/8' is no address"),
        (("add", "User:a", "READ", "--topic", "t", "--group", "g"), "one resource at a time"),
        (("add", "User:a", "READ", "--topic", "*", "--prefixed"), "--prefixed needs the beginning of names"),
        (("remove",), "which? give --principal, --operation or a resource; or --all"),
        (("remove", "--all", "--topic", "t"), "or --all, and nothing else, for all"),
    ],
)
def test_a_wrong_command_says_what_to_write(acls: Callable[..., Said], arguments: tuple[str, ...], said: str) -> None:
    refused = acls(*arguments)
    assert refused.code == 1
    assert said in refused.err


def test_without_an_authorizer_it_says_how_to_have_one(ottla: Ottla) -> None:
    refused = ottla("acls", "list")
    assert refused.code == 1
    assert "No Authorizer is configured" in refused.err
    assert "authorizer.class.name" in refused.err

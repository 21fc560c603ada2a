"""`ottla quotas`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Ottla


def test_quotas_are_set_listed_and_removed(ottla: Ottla) -> None:
    done = ottla(
        "quotas",
        "set",
        "--user",
        "cli-zoe",
        "--client-defaults",
        "producer_byte_rate=1048576",
        "request_percentage=12.5",
    )
    assert (done.code, done.err.splitlines()) == (
        0,
        [
            "user cli-zoe, client-id <default>: producer_byte_rate is 1048576 bytes a second.",
            "user cli-zoe, client-id <default>: request_percentage is 12.5 % of the broker's thread.",
        ],
    )
    listed = ottla("quotas", "list", "--user", "cli-zoe", "--json").data
    assert [(each["client_id"], each["quota"], each["value"]) for each in listed] == [
        ("<default>", "producer_byte_rate", 1048576),
        ("<default>", "request_percentage", 12.5),
    ]
    assert ottla("quotas", "list", "--ip-defaults").out == "There are no such quotas.\n"
    missing = ottla("quotas", "remove", "--user", "cli-zoe", "producer_byte_rate")
    assert (missing.code, missing.err) == (1, "ottla: user cli-zoe has no producer_byte_rate\n")
    assert ottla("quotas", "remove", "--user", "cli-zoe", "--client-defaults", "producer_byte_rate").code == 0
    gone = ottla("quotas", "remove", "--user", "cli-zoe", "--client-defaults")
    assert (gone.code, gone.err) == (0, "user cli-zoe, client-id <default>: request_percentage removed.\n")
    assert ottla("quotas", "list", "--user", "cli-zoe", "--json").data == []


def test_what_cannot_be_is_said(ottla: Ottla) -> None:
    assert "of whom? give --user NAME" in ottla("quotas", "set", "request_percentage=5").err
    assert "'many' is no number" in ottla("quotas", "set", "--user", "x", "request_percentage=many").err
    assert "a name is empty" in ottla("quotas", "set", "--user", "", "request_percentage=5").err
    both = ottla("quotas", "set", "--user", "x", "--user-defaults", "request_percentage=5")
    assert "'x' cannot be a name and the default" in both.err
    refused = ottla("quotas", "set", "--ip", "10.0.0.1", "request_percentage=5")
    assert "quotas of ip 10.0.0.1: Invalid configuration key request_percentage" in refused.err


@pytest.mark.parametrize("command", [("set", "--user", "x", "nope=1"), ("remove", "--user", "x", "nope")])
def test_what_is_no_quota_is_said_also_without_a_broker(ottla: Ottla, command: tuple[str, ...]) -> None:
    said = ottla("quotas", *command, "--bootstrap", "127.0.0.1:1", "-o", "default.api.timeout.ms=300")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("ottla: 'nope' is no quota; there are producer_byte_rate, consumer_byte_rate, request_p")

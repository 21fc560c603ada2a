"""`ottla demo --secure`: the rights that its pipeline has are those of docs/spark.md, and its secrets are its own."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from ottla import AclBinding
from ottla.broker.process import configure
from ottla.cli.demo.access import LEDGER, Names, acls, secure
from tests.cli.conftest import Ottla
from tests.house.tree import ROOT

_NAMES = Names("IN", "OUT", "GROUP", "SINK")
_PIPELINE = "User:pipeline"


def _as_the_docs_say_it(binding: AclBinding) -> set[tuple[str, ...]]:
    kind = binding.resource_type.name.lower().replace("_", "-")
    prefixed = ("--prefixed",) if binding.pattern_type.name == "PREFIXED" else ()
    return {(binding.operation.name, f"--{kind}", binding.resource_name, *prefixed)}


def _documented() -> dict[str, set[tuple[str, ...]]]:
    """What each part of a pipeline needs: operation and resource, by the part's name in the table of docs/spark.md."""
    section = (
        (ROOT / "docs" / "spark.md").read_text().partition("**Where ACLs are in force**")[2].partition("\n\n**")[0]
    )
    rows: dict[str, set[tuple[str, ...]]] = {}
    for what, needs in re.findall(r"^\| ([^|]+) \| (`[A-Z].*) \|$", section, re.MULTILINE):
        first, *more = re.findall(r"`([^`]+)`", needs)
        operations, dashes, resource = first.partition(" --")
        words = (f"{dashes.strip()}{resource}").split()
        rows[what] = {(operation, *words) for operation in [*operations.split(), *more]}
    return rows


@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly-once", "at-least-once"])
def test_x3_the_pipeline_may_do_what_the_docs_list_and_nothing_else(exactly_once: bool) -> None:
    rows = _documented()
    assert len(rows) == 6, "the table of docs/spark.md has another form"
    wanted = [rows["the source"], rows["the sink"]]
    if exactly_once:
        wanted += [rows["the source's offsets, with `kafka.group.id`"], rows["its ledger"], rows["its transactions"]]
    given = [each for each in acls(_NAMES, exactly_once=exactly_once) if each.principal == _PIPELINE]
    assert set().union(*map(_as_the_docs_say_it, given)) == set().union(*wanted)
    assert all(each.permission_type.name == "ALLOW" and each.host == "*" for each in given)


def test_x3_nobody_may_do_what_another_part_does() -> None:
    rights = acls(_NAMES, exactly_once=True)
    by_user = {each.principal: set[str]() for each in rights}
    for each in rights:
        by_user[each.principal].add(f"{each.operation.name} {each.resource_name}")
    assert by_user["User:writer"] == {"WRITE IN"}
    assert by_user["User:reader"] == {"READ OUT", "READ OUT-check"}
    assert f"WRITE {LEDGER}" in by_user[_PIPELINE]
    assert set(by_user) == {"User:writer", "User:reader", _PIPELINE}, "admin is a super user"


def test_x1_files_with_secrets_are_this_users_alone(tmp_path: Path) -> None:
    access = secure(tmp_path / "secure", 9093)
    readable = {each.name for each in (tmp_path / "secure").iterdir() if stat.S_IMODE(each.stat().st_mode) != 0o600}
    assert readable == set()
    settings = (access.admin, access.writer, access.reader)
    passwords = {each["sasl.password"] for each in settings}
    assert len(passwords) == 3
    assert not any(password in word for word in access.broker for password in passwords), "any user sees command lines"
    assert access.pipeline is not None
    assert "sasl.username=pipeline\n" in access.pipeline.read_text()
    own = [word for option, word in zip(access.broker, access.broker[1:], strict=False) if option == "-o"]
    (listener,) = configure(data_dir=tmp_path / "data", options=own).listeners
    assert (listener.name, listener.endpoint.port) == ("SASL_SSL", 9093)


def test_x1_what_cannot_be_together_is_said(ottla: Ottla, tmp_path: Path) -> None:
    alone = "--secure starts a broker of its own: leave out --bootstrap and --broker-command"
    assert alone in ottla("demo", "--secure", "--bootstrap", "127.0.0.1:1").err
    assert alone in ottla("demo", "--secure", "--broker-command", "x {port} {data_dir}").err
    file = tmp_path / "client.properties"
    file.write_text("client.id=me\n")
    assert "is for a running broker: give --bootstrap HOST:PORT" in ottla("--config", str(file), "demo").err
    assert "is for a running broker: give --bootstrap" in ottla("--config", str(file), "demo", "--secure").err

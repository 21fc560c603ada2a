"""`ottla users`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Ottla


def test_users_are_set_listed_and_deleted(ottla: Ottla, tmp_path: Path) -> None:
    file = tmp_path / "alice.password"
    file.write_text("a hunter2 word\n")
    done = ottla("users", "set", "cli-alice", "--password-file", str(file))
    assert (done.code, done.err) == (0, "cli-alice has a password for SCRAM-SHA-256 and SCRAM-SHA-512.\n")
    assert "hunter2 word" not in done.out + done.err
    listed = ottla("users", "list", "cli-alice", "--json").data
    assert listed == [
        {"user": "cli-alice", "mechanism": "SCRAM-SHA-256", "iterations": 8192},
        {"user": "cli-alice", "mechanism": "SCRAM-SHA-512", "iterations": 8192},
    ]
    assert ottla("users", "delete", "cli-alice", "--mechanism", "scram-sha-256").code == 0
    assert [each["mechanism"] for each in ottla("users", "list", "cli-alice", "--json").data] == ["SCRAM-SHA-512"]
    again = ottla("users", "delete", "cli-alice", "--mechanism", "SCRAM-SHA-256")
    assert (again.code, again.err) == (1, "ottla: cli-alice has no password for SCRAM-SHA-256\n")
    assert ottla("users", "delete", "cli-alice").code == 0
    gone = ottla("users", "list", "cli-alice")
    assert gone.code == 1
    assert "RESOURCE_NOT_FOUND" in gone.err


def test_what_cannot_be_is_said(ottla: Ottla, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    assert ottla("users", "set", "cli-bob", "--password-file", str(empty)).err == "ottla: the password is empty\n"
    missing = ottla("users", "set", "cli-bob", "--password-file", str(tmp_path / "nowhere"))
    assert "nowhere: No such file or directory" in missing.err
    file = tmp_path / "alice.password"
    file.write_text("x")
    unknown = ottla("users", "set", "cli-bob", "--password-file", str(file), "--mechanism", "PLAIN")
    assert "PLAIN is no mechanism with passwords" in unknown.err


def test_what_is_no_mechanism_is_said_also_without_a_broker(ottla: Ottla) -> None:
    nobody = ("--bootstrap", "127.0.0.1:1", "-o", "default.api.timeout.ms=300")
    for what in ("set", "delete"):
        said = ottla("users", what, "cli-bob", "--mechanism", "PLAIN", *nobody)
        assert said.err == "ottla: PLAIN is no mechanism with passwords; there are SCRAM-SHA-256 and SCRAM-SHA-512\n"

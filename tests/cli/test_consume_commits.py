"""A group's offsets never get ahead of what `ottla consume` has printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.cli.conftest import Ottla
from tests.cli.processes import line_of, ottla_process

#: Several polls, of which the first fits into a pipe and the second does not.
_LINES = [f"{number:0100d}\n" for number in range(3_000)]


@pytest.fixture
def topic(ottla: Ottla, tmp_path: Path) -> str:
    """A topic of one partition with those lines."""
    name = f"commits-{tmp_path.name}"
    assert ottla("topics", "create", name).code == 0
    (tmp_path / "lines").write_text("".join(_LINES))
    assert ottla("produce", name, "-f", str(tmp_path / "lines")).code == 0
    return name


def _rest(ottla: Ottla, topic: str) -> list[str]:
    return ottla("consume", topic, "-g", topic, "-e").out.splitlines(keepends=True)


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["lines", "json"])
def test_max_leaves_the_rest_to_the_groups_next_reader(ottla: Ottla, topic: str, form: tuple[str, ...]) -> None:
    for first in (0, 3):
        said = ottla("consume", topic, "-g", topic, "--from-beginning", "-n", "3", *form)
        assert said.code == 0
        assert len(said.out.splitlines()) == 3
        (row,) = ottla("groups", "offsets", topic, "--json").data
        assert row["offset"] == first + 3
    assert ottla("consume", topic, "-g", topic, "-e").out == "".join(_LINES[6:])


def _reader_leaves_after(first: str, topic: str, broker: Broker) -> None:
    """`consume` into a pipe whose reader goes away when it has seen the first line."""
    environment = {"OTTLA_BOOTSTRAP": broker.bootstrap_servers}
    with ottla_process("consume", topic, "-g", topic, "-e", environment=environment) as consume:
        assert consume.stdout is not None
        assert line_of(consume.stdout) == first
        consume.stdout.close()
        assert consume.wait(60) == 1
        assert consume.stderr is not None
        assert consume.stderr.read() == ""


def test_records_that_a_reader_did_not_wait_for_come_again(ottla: Ottla, topic: str, ottla_broker: Broker) -> None:
    _reader_leaves_after(_LINES[0], topic, ottla_broker)
    assert _rest(ottla, topic) == _LINES


def test_what_was_committed_before_the_reader_went_is_not_read_again(
    ottla: Ottla, topic: str, ottla_broker: Broker
) -> None:
    ottla("consume", topic, "-g", topic, "--from-beginning", "-n", "1000")
    _reader_leaves_after(_LINES[1000], topic, ottla_broker)
    assert _rest(ottla, topic) == _LINES[1000:]


def test_an_interrupted_consume_skips_nothing(ottla: Ottla, topic: str, ottla_broker: Broker) -> None:
    environment = {"OTTLA_BOOTSTRAP": ottla_broker.bootstrap_servers}
    with ottla_process("consume", topic, "-g", topic, "-e", environment=environment) as consume:
        assert consume.stdout is not None
        printed = [line_of(consume.stdout)]
        consume.send_signal(signal.SIGTERM)
        printed += consume.stdout.readlines()
        assert consume.wait(60) == 128 + signal.SIGTERM
    rest = _rest(ottla, topic)
    assert printed == _LINES[: len(printed)]
    assert rest == _LINES[len(_LINES) - len(rest) :]
    assert len(printed) + len(rest) >= len(_LINES)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full, a device without room, is Linux's")
def test_a_full_disk_skips_nothing(ottla: Ottla, topic: str, ottla_broker: Broker) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ottla", "consume", topic, "-g", topic, "-e"],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "OTTLA_BOOTSTRAP": ottla_broker.bootstrap_servers},
            text=True,
            check=False,
        )
    assert (done.returncode, "No space left on device" in done.stderr) == (1, True)
    assert _rest(ottla, topic) == _LINES


@pytest.mark.parametrize("number", ["-1", "0"])
def test_no_records_is_a_wrong_command_line(ottla: Ottla, number: str) -> None:
    assert ottla("consume", "x", "-n", number).code == 2

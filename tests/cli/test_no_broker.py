"""No broker, one that goes away, and somebody else on its port: every command says so, and what to do."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Consumer
from ottla.testing import Broker
from tests.cli.conftest import Ottla
from tests.cli.processes import line_of, line_with, ottla_process

_SHORT_ADMIN = ("-o", "default.api.timeout.ms=300")
_SHORT_PRODUCER = ("-o", "max.block.ms=300")
COMMANDS = [
    ("topics", "list", *_SHORT_ADMIN),
    ("topics", "describe", "x", *_SHORT_ADMIN),
    ("groups", "list", *_SHORT_ADMIN),
    ("groups", "describe", "g", *_SHORT_ADMIN),
    ("groups", "watch", "g", *_SHORT_ADMIN),
    ("transactions", "list", *_SHORT_ADMIN),
    ("consume", "x", *_SHORT_ADMIN),
    ("consume", "x", "--until-end", "--group", "g", *_SHORT_ADMIN),
    ("produce", "x", "--file", "one-line", *_SHORT_PRODUCER),
    ("produce", "x", "--file", "one-line", "--transactional-id", "t", *_SHORT_PRODUCER),
    ("bench", *_SHORT_ADMIN),
]


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    return "127.0.0.1:1"


@pytest.fixture(autouse=True)
def one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something to produce, in the current directory."""
    (tmp_path / "one-line").write_text("a\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("address", ["nobody", "silent"])
def test_every_command_says_what_to_do(
    ottla: Ottla, command: tuple[str, ...], address: str, request: pytest.FixtureRequest
) -> None:
    said = ottla(*command, "--bootstrap", request.getfixturevalue(address))
    assert said.code == 1
    assert "`ottla serve` starts one; --bootstrap HOST:PORT names another." in said.err
    assert said.out == ""


def test_a_broker_that_hangs_up_is_running(ottla: Ottla) -> None:
    in_time = ("-o", "default.api.timeout.ms=3000")  # it has to have hung up once by then
    with Broker({"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}) as broker:
        said = ottla("topics", "list", *in_time, "--bootstrap", broker.bootstrap_servers)
    assert said.code == 1
    assert "security.protocol is not that of its listener" in said.err
    assert "ottla serve" not in said.err


@pytest.mark.parametrize("group", [(), ("--group", "g")], ids=["alone", "in a group"])
def test_consume_says_once_that_its_broker_is_gone_and_once_that_it_is_back(
    tmp_path: Path, group: tuple[str, ...], ottla: Ottla
) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        bootstrap = ("--bootstrap", broker.bootstrap_servers)
        assert ottla("produce", "x", "--file", "one-line", *bootstrap).code == 0
        with ottla_process("consume", "x", "--from-beginning", *group, *bootstrap) as consume:
            assert line_of(consume.stdout) == "a\n"
            broker.kill()
            line_with(consume.stderr, "waiting for it to come back, Ctrl-C to stop")
            broker.start()
            line_with(consume.stderr, "ottla: it is back; reading on")
            assert ottla("produce", "x", "--file", "one-line", *bootstrap).code == 0
            assert line_of(consume.stdout) == "a\n"
            consume.send_signal(signal.SIGINT)
            assert consume.communicate(timeout=60)[0] == ""
            assert consume.returncode == 130


def test_ctrl_c_twice_does_not_wait_for_a_broker_that_is_gone(tmp_path: Path, ottla: Ottla) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        bootstrap = ("--bootstrap", broker.bootstrap_servers)
        assert ottla("produce", "x", "--file", "one-line", *bootstrap).code == 0
        with ottla_process("consume", "x", "--from-beginning", "--group", "g", *bootstrap) as consume:
            assert line_of(consume.stdout) == "a\n"
            broker.kill()
            consume.send_signal(signal.SIGINT)
            line_with(consume.stderr, "Ctrl-C to not wait for it")
            consume.send_signal(signal.SIGINT)
            assert "Traceback" not in consume.communicate(timeout=60)[1]
            assert consume.returncode == 130


@pytest.mark.slow
def test_consume_until_end_gives_up_on_a_broker_that_is_gone(tmp_path: Path, ottla: Ottla) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        bootstrap = ("--bootstrap", broker.bootstrap_servers)
        assert ottla("topics", "create", "x", *bootstrap).code == 0
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
        with Consumer(settings) as member:
            member.subscribe(["x"])
            while not member.assignment():
                member.poll(0.1)
            # It does not poll any more, so the other one waits for it to join again.
            with ottla_process("consume", "x", "--group", "g", "--until-end", *bootstrap) as consume:
                line_with(consume.stderr, "is waiting for its other members")
                broker.kill()
                line_with(consume.stderr, "`ottla serve` starts one")
                assert consume.wait(60) == 1

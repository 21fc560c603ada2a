"""SPEC X4: anything at all, on a listener of each protocol, before and after a client has said who it is.

The broker answers or closes the connection; a fault inside it would be logged as an error, and that fails the test. The
long form is `make fuzz`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.fuzz import faults_of, turns_of
from bench.turns import told
from ottla.broker.handlers.table import TABLE
from ottla.testing import AsyncBroker
from ottla.testing.ports import free_port
from tests.broker import four_listeners
from tests.broker.fuzzing import anything
from tests.broker.say_who import say_who
from tests.broker.wire_client import WireClient

_CONNECTIONS = 6


class _At(NamedTuple):
    host: str
    port: int


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates."""
    directory = tmp_path_factory.mktemp("four-listeners")
    four_listeners.make_certificates(directory)
    return directory


class _Fuzzed:
    def __init__(self, broker: AsyncBroker, protocol: str, directory: Path) -> None:
        host, _, port = broker.listener(protocol).rpartition(":")
        self._at = _At(host, int(port))
        self._asks = protocol.startswith("SASL")
        is_tls = protocol.endswith("SSL")
        self._tls = ssl.create_default_context(cafile=str(directory / "authority.pem")) if is_tls else None

    def client(self, tls: ssl.SSLContext | None = None) -> WireClient:
        return WireClient(self._at, tls=tls)

    async def take(self, content: bytes, *, inside: bool, known: bool) -> None:
        """Send this, raw or inside of TLS; `known`: after the client has said who it is."""
        async with self.client(self._tls if inside else None) as client:
            if known and self._asks:
                await say_who(client)
            try:
                await client.send_bytes(content)
            except ConnectionError:
                return  # closed before it was all sent

    async def answers(self) -> bool:
        """Whether somebody else is served."""
        async with self.client(self._tls) as client:
            if self._asks:
                await say_who(client)
            return len(await client.ask_api_versions()) == len(TABLE)


async def _fuzz(rng: random.Random, directory: Path) -> None:
    async with AsyncBroker(four_listeners.settings(directory)) as broker:
        await broker.node.topics.create("t", 2, {})
        for protocol in four_listeners.PROTOCOLS:
            fuzzed = _Fuzzed(broker, protocol, directory)
            for known in (False, True):
                await asyncio.gather(
                    *(
                        fuzzed.take(anything(rng), inside=known or rng.random() < 0.7, known=known)
                        for _ in range(_CONNECTIONS)
                    )
                )
            assert await fuzzed.answers(), protocol


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 2**32))
def test_x4_nothing_that_anybody_sends_breaks_a_listener(
    caplog: pytest.LogCaptureFixture, directory: Path, seed: int
) -> None:
    caplog.clear()
    asyncio.run(_fuzz(random.Random(seed), directory))
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.slow
def test_x4_the_long_form_says_what_it_saw() -> None:
    """For two seconds, with a few handshakes."""
    arguments = ("--hours", str(2 / 3600), "--handshakes", "16", "--seed", "1")
    command = [sys.executable, "-m", "bench.fuzz", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    seen = json.loads(done.stdout)
    assert (seen["faults"], seen["answers_at_the_end"], seen["half_open"]["handshakes"]) == ([], True, 16)
    assert seen["turns"]["sent"]
    assert set(seen["sent"]) == {
        f"{protocol} {when} authentication" for protocol in four_listeners.PROTOCOLS for when in ("before", "after")
    }


def test_negative_control_the_long_form_sees_a_fault_in_the_brokers_log() -> None:
    lines = ["2026-11-23 19:00:00,000 WARNING ottla.broker: a frame of 5 bytes"]
    assert faults_of(lines) == []
    faults = ["2026-11-23 19:00:01,000 ERROR ottla.broker: Fetch failed", "Traceback (most recent call last):"]
    assert faults_of(lines + faults) == faults


def test_negative_control_the_long_form_sees_a_turn_that_is_long() -> None:
    start = f"turn of 280 ms, 276 of CPU: {told([(276.0, 'task _serve:156'), (1.0, 'a')])}"
    reading, slices = told([(22000.0, "_SelectorSocketTransport._read_ready")]), told([(20.0, "task Slices.run:48")])
    long = f"turn of 22100 ms, 22000 of CPU: {reading}"
    assert turns_of(["a line", start, f"turn of 90 ms, 21 of CPU: {slices}", long]) == [(22000, reading), (21, slices)]


def test_x4_the_start_of_a_broker_is_no_long_turn(directory: Path) -> None:
    """A start is the first turn that is told, whatever the machine."""
    port = free_port()
    command = [sys.executable, "-m", "bench.turns", "0", "serve", "--port", str(port), "--data-dir", str(directory)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        first = next(line for line in process.stderr if line.startswith("turn of "))
        process.terminate()
        process.stderr.read()
    assert "task _serve:" in first
    assert turns_of([first]) == []

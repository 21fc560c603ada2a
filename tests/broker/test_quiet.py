"""Lines about what clients do: at the level that `ottla serve` has by itself, and at most one in a while for each."""

import logging
import struct

import pytest

from ottla.base.clock import ManualClock
from ottla.broker.quiet import MOST_THINGS, QUIET_MS, Quiet
from ottla.testing import AsyncBroker
from tests.broker.refused_records import REFUSALS, ask, prepare
from tests.broker.wire_client import WireClient


def test_one_line_in_a_while_says_how_many_were_left_out() -> None:
    clock = ManualClock()
    quiet = Quiet(clock)
    assert [quiet.turn("a"), quiet.turn("a"), quiet.turn("b"), quiet.turn("a")] == ["", None, "", None]
    clock.advance(QUIET_MS)
    assert quiet.turn("a") == " (2 more since the last such line)"
    assert quiet.turn("b") == ""


def test_thousands_of_things_take_bounded_memory_and_lines() -> None:
    clock = ManualClock()
    quiet = Quiet(clock)
    assert [quiet.turn(f"address {at}") for at in range(MOST_THINGS)] == [""] * MOST_THINGS
    assert quiet.turn("one too many") is None
    assert quiet.turn("address 0") is None
    clock.advance(QUIET_MS)
    assert quiet.turn("another one") == ""
    assert quiet.turn("address 1") == ""


_WHOLE = struct.pack(">i", 300_000_000)
_GARBAGE = struct.pack(">i", 20) + struct.pack(">hhih", 3, 12, 1, -1) + b"\xff" * 10
_UNKNOWN = struct.pack(">i", 10) + struct.pack(">hhih", 999, 0, 1, -1)


@pytest.mark.parametrize("said", [_WHOLE, _GARBAGE, _UNKNOWN, b"GET / HTTP/1.1\r\n\r\n"])
async def test_x4_whoever_sends_what_is_no_request_is_named_at_the_default_level(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    for _ in range(3):
        async with WireClient(broker) as client:
            await client.send_bytes(said)
            assert await client.is_closed()
    (line,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert line.getMessage().startswith("closing the connection of /127.0.0.1: ")


async def test_x4_whoever_sends_what_no_good_client_sends_is_named_although_it_is_answered(
    client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    await prepare(client)
    for refusal in (next(iter(REFUSALS)), *REFUSALS):
        await ask(client, refusal)
    (line,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert line.getMessage().startswith("refusing a request of /127.0.0.1 (client id ")
    assert "a batch for refused-0: " in line.getMessage()

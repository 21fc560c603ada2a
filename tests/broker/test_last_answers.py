"""The last answer of a connection reaches its client, whatever it sends behind the request."""

import asyncio
import struct
from collections.abc import Callable
from contextlib import closing

import pytest

from ottla.base.clock import ManualClock
from ottla.broker.answers import Frame, Last, Throttled
from ottla.broker.connections import Connections
from ottla.broker.listening import Listener
from tests.broker.lone_connections import LoneClient

_REQUEST = struct.pack(">i", 1) + b"x"
_NONSENSE = b"\xff" * 8


def _refuse(frame: Frame, session: object) -> Last:
    return Last(b"not you", 0)


@pytest.mark.parametrize(
    ("is_stranger", "reads"),
    [(True, (_REQUEST + _NONSENSE,)), (True, (_REQUEST, _NONSENSE)), (False, (_REQUEST, _NONSENSE))],
    ids=["of a stranger, with it", "of a stranger, after it", "of a client, after it"],
)
async def test_what_comes_behind_the_last_request_is_not_looked_at(is_stranger: bool, reads: tuple[bytes, ...]) -> None:
    clock = ManualClock()
    listener = Listener(_refuse, clock, Connections(clock, max_idle_ms=-1), name="PLAINTEXT", max_request_bytes=100)
    if is_stranger:
        listener.guard(lambda dispatch, admit: dispatch, 100)
    with closing(LoneClient(listener)) as client:
        for data in reads:
            client.send_bytes(data)
        await client.transport.ended.wait()
        client.send_bytes(_NONSENSE)  # by TLS there may be more: asyncio hands it over before `close` returns
        assert client.answers() == b"not you"
        assert not client.transport.aborted


@pytest.mark.parametrize("made", [lambda: Throttled(None, 0), lambda: Last(b"not you", 0)], ids=["throttled", "last"])
async def test_a_connection_may_be_lost_in_the_turn_in_which_its_silence_ends(
    made: Callable[[], Throttled | Last],
) -> None:
    told: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    later = made()
    loop.call_soon(later.future.cancel)  # comes before the timers of the same turn
    for _ in range(4):
        await asyncio.sleep(0)
    assert (later.future.cancelled(), told) == (True, [])

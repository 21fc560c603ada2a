"""What a connection with TLS sends, byte for byte, whatever it has to send and however the client takes it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.outbox import Piece, TlsOutbox
from ottla.broker.sockets.tls import TlsTransport
from ottla.log.memory import MemoryStorage
from ottla.log.storage import Slice
from tests.broker.sockets.ends import Peer, TlsPair, World

_CONTENT = bytes(range(251)) * 3_000
_SIZES = st.one_of(st.integers(0, 300), st.integers(16_000, 17_000), st.integers(0, 600_000))
_PIECES = st.lists(st.tuples(st.sampled_from(["bytes", "view", "file"]), st.integers(0, 250), _SIZES), max_size=6)


def _heard(peer: Peer, at_most: int) -> bytes:
    with suppress(ssl.SSLWantReadError):
        return peer.socket.recv(at_most)
    return b""


async def _send(pair: TlsPair, answers: list[list[tuple[str, int, int]]], takes: list[int], room_bytes: int) -> None:
    file = MemoryStorage().open("00000000000000000000.log", create=True)
    file.append([_CONTENT])
    world = World(pair)
    (peer,) = world.come(1)
    assert isinstance(peer.transport, TlsTransport)
    peer.transport.connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room_bytes)
    drained: list[bool] = []
    faults: list[Exception] = []
    unread: list[int] = [0]
    outbox = TlsOutbox(peer.transport, lambda: drained.append(outbox.busy), faults.append, unread.append)
    expected, heard, waits, turns = b"", b"", 0, 0

    async def hear(at_least: int) -> None:
        nonlocal heard, turns
        while len(heard) < at_least:
            await world.turn()
            heard += _heard(peer, takes[turns % len(takes)])
            turns += 1

    for pieces in answers:
        made: list[Piece] = []
        for kind, begin, size in pieces:
            part = _CONTENT[begin : begin + size]
            expected += part
            made.append(Slice(file, begin, size) if kind == "file" else part if kind == "bytes" else memoryview(part))
        was_busy = outbox.busy
        outbox.send(made)
        assert outbox.busy >= was_busy
        waits += outbox.busy and not was_busy
        assert (unread[-1] > 0) <= outbox.busy, "what is in memory is told while it waits"
        await hear(len(heard) + 1 if outbox.busy else 0)
    await hear(len(expected))
    await world.until(lambda: not outbox.busy, 100)
    assert heard == expected
    assert (unread[-1], faults, outbox.progress >= len(drained)) == (0, [], True)
    assert len(drained) <= max(waits, len(answers))
    assert not any(drained)
    assert not (waits and not drained)
    await world.end()


@settings(max_examples=60, deadline=None)
@given(
    answers=st.lists(_PIECES, min_size=1, max_size=4),
    takes=st.lists(st.integers(1_000, 300_000), min_size=1, max_size=5),
    room_bytes=st.sampled_from([4_608, 20_000, 200_000]),
)
def test_pieces_come_in_order_nothing_twice_and_nothing_lost(
    pair: TlsPair, answers: list[list[tuple[str, int, int]]], takes: list[int], room_bytes: int
) -> None:
    asyncio.run(_send(pair, answers, takes, room_bytes))

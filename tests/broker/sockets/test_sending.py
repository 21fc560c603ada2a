"""What a connection with TLS sends, to a client that takes it and to one that does not."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.base.limits import TLS_BYTES_AT_ONCE
from ottla.broker.outbox import TlsOutbox
from ottla.broker.sockets.tls import RECORD_BYTES, TlsTransport
from tests.broker.sockets.ends import Peer, TlsPair, World

_LARGE = bytes(range(256)) * 16_384


class _Sender:
    """The outbox of a connection, and what it has told."""

    def __init__(self, world: World) -> None:
        self.world = world
        (self.peer,) = world.come(1)
        assert isinstance(self.peer.transport, TlsTransport)
        self.transport = self.peer.transport
        self.unread: list[int] = []
        self.faults: list[Exception] = []
        self.drained = 0
        self.outbox = TlsOutbox(self.transport, self._drain, self.faults.append, self.unread.append)

    def _drain(self) -> None:
        self.drained += 1

    async def received(self, size_bytes: int) -> bytes:
        """So many bytes arrive, while the client takes what comes."""
        heard = b""
        while len(heard) < size_bytes:
            await self.world.turn()
            heard += self.peer.answers()
        return heard


@pytest.fixture
async def sender(tmp_path: Path) -> AsyncIterator[_Sender]:
    world = World(TlsPair(tmp_path))
    yield _Sender(world)
    await world.end()


async def test_pieces_come_whole_and_in_order_to_a_client_that_reads_late(sender: _Sender) -> None:
    sender.outbox.send((b"",))
    sender.outbox.send((b"first",))
    assert (sender.outbox.busy, sender.unread) == (False, [])
    sender.outbox.send((_LARGE,))
    sender.outbox.send((b"", b"last", b""))
    assert sender.outbox.busy
    assert len(_LARGE) - TLS_BYTES_AT_ONCE <= sender.unread[0] <= len(_LARGE) + 1_000
    for _ in range(20):
        await sender.world.turn()
    assert (sender.outbox.busy, sender.drained) == (True, 0), "nobody reads"
    expected = b"first" + _LARGE + b"last"
    assert await sender.received(len(expected)) == expected
    await sender.world.turn()
    assert (sender.outbox.busy, sender.unread[-1], sender.faults, sender.drained) == (False, 0, [], 1)


async def test_a_turn_encrypts_so_much_for_one_client(sender: _Sender) -> None:
    sender.outbox.send((_LARGE,))
    arrived: list[int] = []
    while sum(arrived) < len(_LARGE):
        await sender.world.turn()
        arrived.append(len(sender.peer.answers()))
    assert max(arrived) <= 2 * TLS_BYTES_AT_ONCE


def _records(peer: Peer) -> int:
    """How many records have come."""
    with socket.socket(fileno=peer.socket.detach()) as bare:
        bare.setblocking(False)
        sealed, count = bare.recv(1_000_000), 0
    while sealed:
        size_bytes = 5 + int.from_bytes(sealed[3:5], "big")
        sealed, count = sealed[size_bytes:], count + 1
    return count


async def test_small_pieces_are_encrypted_together(sender: _Sender) -> None:
    sender.outbox.send([b"x" * 100] * 300)
    assert _records(sender.peer) == -(-30_000 // RECORD_BYTES)


async def test_behind_a_failure_nothing_is_sent_and_nothing_is_in_the_way(sender: _Sender) -> None:
    sender.peer.socket.close()
    sender.outbox.send((_LARGE,))
    sender.outbox.send((b"more",))
    assert [isinstance(each, ConnectionError) for each in sender.faults] == [True]
    assert not sender.outbox.busy


async def test_a_connection_that_is_closed_says_goodbye(sender: _Sender) -> None:
    sender.outbox.send((b"last words",))
    sender.transport.close()
    await sender.world.turn()
    heard = b""
    with suppress(ssl.SSLWantReadError):
        while more := sender.peer.socket.recv(100):
            heard += more
    assert heard == b"last words"
    assert more == b"", "close_notify: else it would be an error, or nothing"

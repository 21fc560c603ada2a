"""Clients with TLS that send much of what is little, hear nothing, or are gone: what they cost the others."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from weakref import ref

import pytest

from ottla.base.limits import (
    HANDSHAKE_STEP_BYTES,
    IDLE_BUFFER_BYTES,
    MAX_OWN_WORDS_BYTES,
    RECEIVED_LEAST_BYTES,
    RECEIVED_TURN_BYTES,
    TLS_RECORDS_AT_ONCE,
    TLS_RECORDS_OF_HANDSHAKE,
    TLS_RECORDS_OF_PIECE,
)
from ottla.broker.answers import Frame, Later
from ottla.broker.outbox import TlsOutbox
from ottla.broker.session import Session
from ottla.broker.sockets.poller import READ, WRITE
from ottla.broker.sockets.tls import RECORD_BYTES, Handshake, Sealed, TlsTransport
from tests.broker.sockets.ends import Peer, TlsPair, World

_SMALL = struct.pack(">i", 5) + b"small"
#: A request to write, by its number: of a client that is gone only these are carried out.
_PRODUCE = struct.pack(">i", 5) + b"\0\0abc"


@pytest.fixture
async def world(pair: TlsPair) -> AsyncIterator[World]:
    world = World(pair)
    yield world
    await world.end()


def _sealed(peer: Peer) -> Sealed:
    sealed = peer.transport._sealed  # type: ignore[attr-defined]
    assert isinstance(sealed, Sealed)
    return sealed


def _one_by_one(peer: Peer, data: bytes) -> None:
    """Each byte in a record of its own."""
    for byte in data:
        assert peer.send(bytes((byte,))) == 1


# many records


async def test_so_many_records_of_one_client_are_decrypted_in_a_turn(world: World) -> None:
    (peer,) = world.come(1)
    size = 2 * TLS_RECORDS_AT_ONCE
    _one_by_one(peer, struct.pack(">i", size) + bytes(size))
    await world.until(lambda: world.sizes == [size])
    assert max(sum(turn.values()) for turn in world.received) == TLS_RECORDS_AT_ONCE


async def test_a_turn_decrypts_few_records_more_than_it_has_bytes_for_of_many_clients(world: World) -> None:
    count, size = 60, 100
    peers = world.come(count)
    for each in peers:
        _one_by_one(each, struct.pack(">i", size) + bytes(size))
    await world.until(lambda: world.sizes == [size] * count)
    most = RECEIVED_TURN_BYTES // RECEIVED_LEAST_BYTES + TLS_RECORDS_AT_ONCE + (count + 3) * TLS_RECORDS_OF_PIECE
    assert max(sum(turn.values()) for turn in world.received) <= most
    assert [each.answers() for each in peers] == [b"!"] * count


async def test_a_small_request_in_two_records_waits_for_nobody(world: World) -> None:
    (peer,) = world.come(1)
    for part in (_SMALL[:4], _SMALL[4:]):
        peer.send(part)
    assert peer.transport.ready(READ, True) < RECORD_BYTES
    assert world.sizes == [5]
    assert not world.poller._rests


async def test_of_a_large_record_a_piece_is_received_and_the_client_waits_for_the_rest(world: World) -> None:
    (peer,) = world.come(1, struct.pack(">i", 12_000) + bytes(12_000))
    assert peer.transport.ready(READ, True) == IDLE_BUFFER_BYTES
    await world.until(lambda: world.sizes == [12_000], 10)


# many records in a handshake


class _Hello:
    """A handshake, and the other end of its socket."""

    def __init__(self, world: World, pair: TlsPair) -> None:
        self.ours, self.theirs = socket.socketpair()
        for each in (self.ours, self.theirs):
            each.setblocking(False)
        self.handshake = Handshake(world.poller, self.ours)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = pair.client.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        self.said = self.next()

    def next(self) -> bytes:
        """What the client says next."""
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    async def begin(self, pair: TlsPair) -> asyncio.Task[Sealed]:
        task = asyncio.create_task(self.handshake.shake_hands(pair.server))
        await asyncio.sleep(0)
        return task

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


def _in_records(said: bytes, size_bytes: int) -> bytes:
    """One record of the handshake, in many."""
    content = said[5:]
    parts = (content[at : at + size_bytes] for at in range(0, len(content), size_bytes))
    return b"".join(said[:3] + len(part).to_bytes(2, "big") + part for part in parts)


async def test_a_hello_in_many_records_is_read_in_several_steps(world: World, pair: TlsPair) -> None:
    hello = _Hello(world, pair)
    said = _in_records(hello.said, 1)
    task = await hello.begin(pair)
    hello.theirs.send(said)
    steps = 0
    while not hello.incoming.pending:
        assert hello.handshake.ready(READ, False) == HANDSHAKE_STEP_BYTES
        steps += 1
        with suppress(BlockingIOError):
            hello.incoming.write(hello.theirs.recv(10_000))
    assert steps == -(-(len(hello.said) - 5) // TLS_RECORDS_OF_HANDSHAKE)
    hello.theirs.send(hello.next())
    await task
    hello.close()


async def test_a_hello_in_many_records_is_read_although_nothing_more_comes(world: World, pair: TlsPair) -> None:
    hello = _Hello(world, pair)
    task = await hello.begin(pair)
    hello.theirs.send(_in_records(hello.said, 1))

    def has_come() -> bool:
        with suppress(BlockingIOError):
            hello.incoming.write(hello.theirs.recv(10_000))
        return hello.incoming.pending > 0

    await world.until(has_come, 20)
    hello.theirs.send(hello.next())
    await task
    hello.close()


async def test_the_steps_of_few_handshakes_are_a_turn() -> None:
    """Each may sign: with an RSA key of 4096 bits in three milliseconds, wherever it has waited."""
    assert RECEIVED_TURN_BYTES // HANDSHAKE_STEP_BYTES <= 4


# who is not read


async def test_of_a_client_that_is_not_read_little_more_is_taken_than_there_was_room_for(world: World) -> None:
    (peer,) = world.come(1)
    sent = peer.send(struct.pack(">i", 900_000) + bytes(200_000))
    room = len(peer.connection.get_buffer(-1))
    peer.connection.buffer_updated = lambda nbytes: peer.transport.pause_reading()  # type: ignore[method-assign]
    await world.turn()
    await world.turn()
    sealed = _sealed(peer)
    assert sent > 5 * RECORD_BYTES
    assert len(sealed._come) + sealed.incoming.pending + sealed.tls.pending() <= max(RECORD_BYTES, room)


# who does not hear


async def test_who_has_tls_say_much_and_hears_nothing_is_not_read_until_it_hears(world: World) -> None:
    """As one that has its keys updated for ever."""
    (peer,) = world.come(1)
    while True:
        try:
            peer.transport.connected.send(bytes(1_000))
        except BlockingIOError:
            break
    sealed = _sealed(peer)
    sealed.unsent = bytes(MAX_OWN_WORDS_BYTES + 1)
    peer.transport.ready(WRITE, False)
    peer.send(_SMALL)
    for _ in range(5):
        await world.turn()
    assert not world.sizes
    with socket.socket(fileno=peer.socket.detach()) as bare:
        bare.setblocking(False)

        def heard() -> bool:
            with suppress(BlockingIOError):
                bare.recv(1_000_000)
            return world.sizes == [5]

        await world.until(heard)


async def test_what_tls_says_itself_keeps_no_request_waiting(world: World) -> None:
    (peer,) = world.come(1)
    _sealed(peer).unsent = _words(peer)
    peer.send(_SMALL)
    peer.transport.ready(READ, False)
    await world.until(lambda: world.sizes == [5], 5)
    await world.until(lambda: not _sealed(peer).unsent, 5)
    assert peer.answers() == b"?!"


def _words(peer: Peer) -> bytes:
    """A record that the broker's end has made."""
    sealed = _sealed(peer)
    sealed.tls.write(b"?")
    return sealed._outgoing.read()


# who is gone


async def test_one_that_is_gone_and_not_read_is_not_looked_at_until_its_request_is_answered(pair: TlsPair) -> None:
    """Its socket tells of its end in every turn, to whoever waits for room to send."""
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    later = Later(answer, lambda content: content)
    answers: list[bytes | Later] = [bytes(5_000_000), later]

    def dispatch(_frame: Frame, _session: Session) -> bytes | Later:
        return answers.pop(0) if answers else b""

    world = World(pair, dispatch)  # type: ignore[arg-type]
    (peer,) = world.come(1, 100 * _PRODUCE)
    await world.turn()
    await world.turn()
    assert not peer.transport.is_reading()
    peer.socket.close()
    await world.until(lambda: not answers)
    await world.turn()
    assert world.poller._epoll.poll(0) == []
    answer.set_result(b"")
    await world.until(lambda: peer.connection.is_lost)
    await world.end()


async def test_behind_a_send_that_failed_nothing_is_sent(world: World) -> None:
    (peer,) = world.come(1)
    sealed = _sealed(peer)
    sealed.socket.shutdown(socket.SHUT_WR)
    sealed.unsent = b"some"
    for _ in range(2):
        with pytest.raises(BrokenPipeError):
            sealed.flush()
    sealed.encrypt(memoryview(b"more"))
    with pytest.raises(BrokenPipeError):
        sealed.flush()
    assert not sealed.unsent


# who fails


async def test_a_record_that_was_changed_ends_the_connection_and_leaves_no_cycle(pair: TlsPair) -> None:
    world = World(pair)
    (peer,) = world.come(1)
    gone = ref(peer.connection)
    gc.collect()
    gc.disable()
    try:
        with socket.socket(fileno=peer.socket.detach()) as bare:
            bare.send(b"\x17\x03\x03\x00\x40" + bytes(0x40))
            await world.until(lambda: world.ended[-1] == 1)
        world.peers.clear()
        peer = None  # type: ignore[assignment]
        world.received = [{}]
        await world.turn()
        assert gone() is None
    finally:
        gc.enable()
    await world.end()


async def test_who_sends_a_record_that_was_changed_is_told(world: World) -> None:
    (peer,) = world.come(1)
    said = peer.socket.detach()
    with socket.socket(fileno=said) as bare:
        bare.send(b"\x17\x03\x03\x00\x40" + bytes(0x40))
        await world.until(lambda: world.ended[-1] == 1)
        assert len(bare.recv(1_000)) == 5 + 2 + 17, "an alert, encrypted"


# what is left


async def test_the_loop_rests_when_nothing_is_left_of_what_came(world: World) -> None:
    (peer,) = world.come(1)
    _one_by_one(peer, struct.pack(">i", 200) + bytes(200))
    await world.until(lambda: world.sizes == [200])
    for _ in range(3):
        await world.turn()
    assert world.poller._epoll.poll(0) == []


def _descriptors() -> list[Path]:
    return sorted(Path("/proc/self/fd").iterdir())


async def test_a_poller_leaves_no_descriptor(pair: TlsPair) -> None:
    before = _descriptors()
    world = World(pair)
    world.come(3, _SMALL)
    await world.turn()
    await world.end()
    assert _descriptors() == before


async def test_an_answer_of_one_record_that_is_not_taken_waits(world: World) -> None:
    (peer,) = world.come(1)
    assert isinstance(peer.transport, TlsTransport)
    with suppress(BlockingIOError):
        while True:
            peer.transport.connected.send(bytes(1_000))
    unread: list[int] = []
    drained: list[int] = []
    outbox = TlsOutbox(peer.transport, lambda: drained.append(1), lambda fault: None, unread.append)
    outbox.send((b"answer",))
    assert (outbox.busy, unread[0] > 6) == (True, True)
    with socket.socket(fileno=peer.socket.detach()) as bare:
        bare.setblocking(False)

        def heard() -> bool:
            with suppress(BlockingIOError):
                bare.recv(1_000_000)
            return drained == [1]

        await world.until(heard)
    assert (outbox.busy, unread[-1]) == (False, 0)

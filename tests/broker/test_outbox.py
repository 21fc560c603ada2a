"""What a connection sends in one turn of the loop."""

import asyncio
import socket

from ottla.base.limits import SENT_AT_ONCE_BYTES
from ottla.broker.outbox import SocketOutbox
from tests.broker.lone_connections import LoneSide


async def test_an_answer_of_one_piece_comes_whole_and_before_the_next_one() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    waiting: list[int] = []
    faults: list[Exception] = []
    drained = asyncio.Event()
    outbox = SocketOutbox(LoneSide(ours), drained.set, faults.append, waiting.append)
    outbox.send((b"",))
    outbox.send((b"first",))
    assert (outbox.busy, waiting) == (False, [])
    large = bytes(range(256)) * 16_384
    outbox.send((large,))
    outbox.send((b"last",))
    assert (outbox.busy, len(waiting)) == (True, 1)
    assert 0 < waiting[0] < len(large)
    expected = b"first" + large + b"last"
    received = bytearray()
    while len(received) < len(expected):
        received += await asyncio.wait_for(asyncio.get_running_loop().sock_recv(theirs, 1 << 20), 60)
    await asyncio.wait_for(drained.wait(), 60)
    assert bytes(received) == expected
    assert (outbox.busy, waiting[-1], faults) == (False, 0, [])
    theirs.close()
    outbox.send((b"nobody hears it",))
    assert [type(each) for each in faults] == [BrokenPipeError]
    assert not outbox.busy
    outbox.close()
    ours.close()


async def test_a_peer_that_takes_everything_gets_so_much_in_a_turn() -> None:
    """A socket of UDP takes bytes for ever: nobody has to read them."""
    ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ours.bind(("127.0.0.1", 0))
    ours.connect(ours.getsockname())
    waiting: list[int] = []
    faults: list[Exception] = []
    drained = asyncio.Event()
    outbox = SocketOutbox(LoneSide(ours), drained.set, faults.append, waiting.append)
    piece, once_bytes = bytes(120), 512 * 120
    pieces = [piece] * (3 * SENT_AT_ONCE_BYTES // len(piece))
    outbox.send(pieces)
    assert outbox.busy
    sent = len(pieces) * len(piece) - waiting[0]
    assert SENT_AT_ONCE_BYTES <= sent < SENT_AT_ONCE_BYTES + once_bytes
    await asyncio.wait_for(drained.wait(), 60)
    assert (outbox.busy, waiting[1:], faults) == (False, [0], [])
    outbox.close()
    ours.close()

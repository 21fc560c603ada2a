"""What a connection without TLS sends: to a client that reads late, and to one that is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ottla.base.limits import SENT_AT_ONCE_BYTES
from ottla.broker.outbox import SocketOutbox
from ottla.broker.sockets.poller import WRITE
from tests.broker.sockets.ends import World

_LARGE = bytes(range(256)) * 16_384


class _Sender:
    """The outbox of a connection, and what it has told."""

    def __init__(self, world: World) -> None:
        self.world = world
        (self.peer,) = world.come(1)
        self.transport = self.peer.transport
        self.unread: list[int] = []
        self.faults: list[Exception] = []
        self.drained: list[int] = []
        self.outbox = SocketOutbox(
            self.transport, lambda: self.drained.append(1), self.faults.append, self.unread.append
        )


@pytest.fixture
async def sender() -> AsyncIterator[_Sender]:
    world = World()
    yield _Sender(world)
    await world.end()


async def test_what_a_turn_sends_is_counted_in_it(sender: _Sender) -> None:
    sender.outbox.send((_LARGE,))
    heard = len(sender.peer.answers())
    while sender.outbox.busy:
        sent = sender.transport.ready(WRITE, False)
        more = len(sender.peer.answers())
        assert 0 < sent <= SENT_AT_ONCE_BYTES
        assert sent == more
        heard += more
    assert (heard, sender.unread[-1], sender.drained) == (len(_LARGE), 0, [1])


async def test_a_client_that_is_gone_is_told_once_and_nothing_of_it_waits(sender: _Sender) -> None:
    sender.outbox.send((_LARGE,))
    assert sender.unread[0] > 0
    sender.transport.pause_reading()  # else its end is received first
    sender.peer.socket.close()
    await sender.world.until(lambda: bool(sender.faults))
    sender.outbox.send((b"more",))
    assert [isinstance(each, ConnectionError) for each in sender.faults] == [True]
    assert (sender.outbox.busy, sender.unread[-1], sender.drained) == (False, 0, [1])


async def test_what_is_closed_forgets_what_it_has_not_sent(sender: _Sender) -> None:
    sender.outbox.send((_LARGE,))
    sender.outbox.close()
    assert (sender.outbox.busy, sender.unread[-1]) == (False, 0)
    sender.peer.answers()
    assert sender.transport.ready(WRITE, False) == 0

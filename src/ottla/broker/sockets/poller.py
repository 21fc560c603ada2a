"""Which sockets of the broker are ready, and how much of them one turn of the event loop does.

Theory of operation. The loop watches one descriptor, that of a Poller (epoll, with which the kernel lets one watch
another). So it is the Poller that asks for ready sockets, at most POLLED_AT_ONCE of them a turn, and no client makes a
turn long: a loop that watches the sockets itself tells of all that are ready, and receives what they have, before
anybody can stop it (ADR 0024).
A turn has so many bytes. Whoever receives or sends much takes of them. When they are used up, the sockets that follow
receive a small request only; who has more waits, and the next turns begin with those that wait, in the order in which
they came. Small requests never wait for large ones, and what one client sends waits in its own socket.
Events are told again as long as they last (level-triggered), so none can be lost, and one that does not hold any more
does no harm: nothing is received then.
"""

import asyncio
import os
import select
from functools import cached_property
from typing import Final, Protocol

from ottla.base.limits import (
    POLLED_AT_ONCE,
    RECEIVED_LEAST_BYTES,
    RECEIVED_PIECE_BYTES,
    RECEIVED_TURN_BYTES,
    TLS_BYTES_AT_ONCE,
)

#: What an epoll tells: bytes, an end or a connection have come; there is room to send. An error or a reset is both.
READ: Final = getattr(select, "EPOLLIN", 1)
WRITE: Final = getattr(select, "EPOLLOUT", 4)
BROKEN: Final = getattr(select, "EPOLLERR", 8) | getattr(select, "EPOLLHUP", 16)


class Watched(Protocol):
    """Who has a socket that is watched."""

    def ready(self, events: int, only_a_piece: bool, /) -> int:
        """Something has happened. How many bytes it took of the turn.

        With `only_a_piece` the turn has no more: whoever needs more than RECEIVED_PIECE_BYTES does what it may, says
        that it took so many, and is called again in a later turn.
        """
        ...

    def abort(self) -> None:
        """It has failed: close it."""
        ...


class Poller:
    """The sockets of one broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, turn_bytes: int = RECEIVED_TURN_BYTES) -> None:
        """RuntimeError where the loop has no sockets, as in a simulated network, or the system no epoll."""
        if not hasattr(select, "epoll"):
            raise RuntimeError("this system has no epoll")
        self._loop = loop
        self._turn_bytes = turn_bytes
        self._epoll = select.epoll()
        self._watched: dict[int, Watched] = {}
        #: Who waits for a turn that has bytes, by descriptor, with what has happened.
        self._waiting: dict[int, int] = {}
        #: Of whom something is here that the kernel does not know of. While there are any, it is told of this
        #: descriptor, which can always be read.
        self._rests: dict[int, None] = {}
        self._told_of_rests = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._tells_of_rests = False
        try:
            loop.add_reader(self._epoll.fileno(), self._look)
        except BaseException:
            self._epoll.close()
            os.close(self._told_of_rests)
            raise

    def watch(self, descriptor: int, watched: Watched, events: int, before: int = 0) -> None:
        """Tell `watched` of these events from now on, and of none if there are none; `before`, of those until now."""
        if not events:
            if before:
                self._epoll.unregister(descriptor)
            for each in (self._watched, self._waiting, self._rests):
                each.pop(descriptor, None)
        elif before:
            self._epoll.modify(descriptor, events)
        else:
            self._epoll.register(descriptor, events)
            self._watched[descriptor] = watched

    def again(self, descriptor: int) -> None:
        """It has taken a part of what it had of the kernel: it waits for the next turn that has bytes."""
        self._rests[descriptor] = None
        if not self._tells_of_rests:
            self._tells_of_rests = True
            self._epoll.register(self._told_of_rests, READ)

    @cached_property
    def shared_memory(self) -> memoryview:
        """What comes encrypted passes through it."""
        return memoryview(bytearray(TLS_BYTES_AT_ONCE))

    @property
    def some_wait(self) -> bool:
        """Whether a turn had not bytes enough for all."""
        return bool(self._waiting)

    def close(self) -> None:
        """Watch nothing any more."""
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            os.close(self._told_of_rests)
            for each in (self._watched, self._waiting, self._rests):
                each.clear()

    def _look(self) -> None:
        if self._tells_of_rests:
            self._serve_rests()
        left_bytes = self._serve_waiting() if self._waiting else self._turn_bytes
        watched, waiting = self._watched, self._waiting
        looked_at = 0
        for descriptor, events in self._epoll.poll(0, POLLED_AT_ONCE + len(waiting) + self._tells_of_rests):
            one = watched.get(descriptor)
            if one is None or descriptor in waiting:
                continue
            try:
                taken_bytes = one.ready(events, left_bytes <= 0)
            except Exception as fault:  # noqa: BLE001 - told; one client must not keep the others from their turn
                taken_bytes = self._failed(one, fault)
            if taken_bytes >= RECEIVED_PIECE_BYTES:
                if left_bytes > 0:
                    left_bytes -= max(taken_bytes, RECEIVED_LEAST_BYTES)
                elif descriptor in watched:
                    waiting[descriptor] = events
            looked_at += 1
            if looked_at == POLLED_AT_ONCE:
                break

    def _serve_waiting(self) -> int:
        """Begin with those that wait; how many bytes are left of the turn."""
        left_bytes, waiting = self._turn_bytes, self._waiting
        for _ in range(len(waiting)):
            if left_bytes <= 0 or not waiting:
                break
            descriptor = next(iter(waiting))
            events = waiting.pop(descriptor)
            one = self._watched.get(descriptor)
            if one is not None:
                left_bytes -= max(self._call(one, events, False), RECEIVED_LEAST_BYTES)
        return left_bytes

    def _serve_rests(self) -> None:
        """They wait from now on. When none is left of those before, nobody is told any more."""
        if self._rests:
            for descriptor in self._rests:
                self._waiting.setdefault(descriptor, READ)
            self._rests.clear()
        elif not self._waiting:
            self._tells_of_rests = False
            self._epoll.unregister(self._told_of_rests)

    def _call(self, one: Watched, events: int, only_a_piece: bool) -> int:
        try:
            return one.ready(events, only_a_piece)
        except Exception as fault:  # noqa: BLE001 - told; one client must not keep the others from their turn
            return self._failed(one, fault)

    def _failed(self, one: Watched, fault: Exception) -> int:
        self._loop.call_exception_handler({"message": "a connection has failed", "exception": fault})
        one.abort()
        return 0

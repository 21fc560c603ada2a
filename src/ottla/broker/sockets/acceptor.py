"""A listening address of the broker: takes the connections that come there, a few in each turn of the event loop."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from ottla.base.limits import ACCEPTED_AT_ONCE, RECEIVED_LEAST_BYTES, RECEIVED_PIECE_BYTES
from ottla.broker.sockets.poller import READ, Poller

_log = logging.getLogger(__name__)

#: How long nobody is let in when there are no more files: the same as asyncio's.
_PAUSE_S: Final = 1.0
#: What the system says of an address that this machine does not have.
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

#: Gets each connected socket, which does not block, and the address of its other end.
Take = Callable[[socket.socket, tuple[Any, ...]], None]


class Acceptor:
    """The sockets that listen at one host, of which a name may have several addresses, and one port."""

    def __init__(self, poller: Poller, name: str, take: Take, pause_s: float = _PAUSE_S) -> None:
        """`name` is the listener's, for the log. Where there are no more files nobody is let in for `pause_s`."""
        self.poller, self.name, self.take, self.pause_s = poller, name, take, pause_s
        self._listening: list[_Listening] = []

    async def bind(self, host: str, port: int, backlog: int) -> tuple[str, int]:
        """Take the address; the host and port that were bound. An empty host is every interface.

        Raises OSError when it cannot be had.
        """
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        missing: OSError | None = None
        try:
            for family, _, _, _, address in dict.fromkeys(infos):
                try:
                    self._bind(family, address, backlog)
                except OSError as fault:
                    if fault.errno not in _NOT_HERE:
                        raise
                    missing = fault  # `localhost` may be an IPv6 address, too, on a machine that has no IPv6
            if missing is not None and not self._listening:
                raise missing
        except OSError:
            self.close()
            raise
        finally:
            del missing  # its traceback has this frame
        return self._bound

    @property
    def _bound(self) -> tuple[str, int]:
        host, port = self._listening[0].socket.getsockname()[:2]
        return str(host), int(port)

    def _bind(self, family: int, address: tuple[Any, ...], backlog: int) -> None:
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # Of a port 0 the first socket decides which one it is.
            port = self._bound[1] if self._listening else address[1]
            made.bind((address[0], port, *address[2:]))
            made.setblocking(False)
        except OSError:
            made.close()
            raise
        self._listening.append(_Listening(self, made, backlog))

    def listen(self) -> None:
        """Let them come, behind `bind`. Raises OSError when another program listens there meanwhile."""
        for each in self._listening:
            each.listen()

    def close(self) -> None:
        """Let nobody come any more."""
        for each in self._listening:
            each.close()
        self._listening.clear()


class _Listening:
    """One socket that listens."""

    def __init__(self, acceptor: Acceptor, made: socket.socket, backlog: int) -> None:
        self._acceptor, self._backlog = acceptor, backlog
        self.socket = made
        self._watched = 0

    def listen(self) -> None:
        self.socket.listen(self._backlog)
        self._watch(READ)

    def close(self) -> None:
        self._watch(0)
        self.socket.close()

    def _watch(self, events: int) -> None:
        if events != self._watched:
            self._acceptor.poller.watch(self.socket.fileno(), self, events, self._watched)
            self._watched = events

    def ready(self, _events: int, only_a_piece: bool, /) -> int:
        """The poller's: take those who wait, a few at a time."""
        if only_a_piece:
            return RECEIVED_PIECE_BYTES
        for number in range(ACCEPTED_AT_ONCE):
            try:
                accepted, address = self.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return number * RECEIVED_LEAST_BYTES
            except OSError as fault:
                self._pause(fault)
                return number * RECEIVED_LEAST_BYTES
            accepted.setblocking(False)
            self._acceptor.take(accepted, address)
            if self.socket.fileno() < 0:
                break  # the broker stops
        return ACCEPTED_AT_ONCE * RECEIVED_LEAST_BYTES

    def _pause(self, fault: OSError) -> None:
        pause_s = self._acceptor.pause_s
        hint = "; raise the limit of open files (ulimit -n)" if fault.errno == errno.EMFILE else ""
        _log.error("listener %s takes no connection for %g s: %s%s", self._acceptor.name, pause_s, fault, hint)
        self._watch(0)
        asyncio.get_running_loop().call_later(pause_s, self._resume)

    def _resume(self) -> None:
        if self.socket.fileno() >= 0:
            try:
                self._watch(READ)
            except OSError as fault:  # the system has no memory for it
                self._pause(fault)

    def abort(self) -> None:
        """Taking one has failed: the next may be taken."""

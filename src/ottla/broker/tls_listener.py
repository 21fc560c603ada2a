"""The listener of connections with TLS: takes a socket, does the handshake, and then makes a connection of it.

Theory of operation. Sockets are accepted here and not by the loop's server, for three reasons: a connection counts in
`max.connections` from its first byte on and not only after its handshake; each gets the certificate that is on the
disk now; and a handshake that fails is told, here with the address it came from, and to the client by an alert.
Handshakes run in the event loop, a step for each message of the client; one that is not over after `TLS_HANDSHAKE_MS`
is given up. The first step signs, and takes longest. So a handshake begins when the client's first bytes are here, and
few begin in a turn of the loop, also where many clients that are connected already speak at one moment.
"""

import asyncio
import errno
import logging
import socket
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ottla.base.errors import OttlaError
from ottla.base.limits import HANDSHAKES_AT_ONCE, TLS_HANDSHAKE_MS
from ottla.broker.authentication.tls import ServerTls
from ottla.broker.listening import Listener
from ottla.broker.server import Connection
from ottla.broker.tls_alerts import SEND_ALERT

_log = logging.getLogger(__name__)

#: How long no socket is accepted when there are no more files: the same as asyncio's.
_PAUSE_S: Final = 1.0
#: How long, and for how many bytes, a client is heard after the alert. If the system has bytes that nobody has read
#: when a socket is closed, it resets the connection, and the client may never see the alert.
_FAREWELL_S: Final = 1.0
_FAREWELL_BYTES: Final = 1 << 16
#: What is left at least of the time for a handshake that may begin: asyncio takes no zero.
_LEAST_S: Final = 0.001
#: What the system says of an address that this machine does not have.
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class TlsListener(Listener):
    """A listening socket for connections with TLS."""

    def secure(self, tls: ServerTls, handshake_ms: int = TLS_HANDSHAKE_MS) -> "TlsListener":
        """Use this TLS. To be called before `bind`."""
        self._tls = tls
        self._handshake_s = handshake_ms / 1000
        self._sockets: list[socket.socket] = []
        self._backlog = 0
        self._handshakes: set[asyncio.Task[None]] = set()
        #: Those that may begin in this turn of the loop.
        self._may_begin = asyncio.Semaphore(HANDSHAKES_AT_ONCE)
        return self

    async def bind(self, host: str, port: int, backlog: int) -> tuple[str, int]:
        self._backlog = backlog
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        missing: OSError | None = None
        try:
            for family, _, _, _, address in dict.fromkeys(infos):
                try:
                    self._bind(family, address)
                except OSError as fault:
                    if fault.errno not in _NOT_HERE:
                        raise
                    missing = fault  # `localhost` may be an IPv6 address, too, on a machine that has no IPv6
            if missing is not None and not self._sockets:
                raise missing
        except OSError:
            for each in self._sockets:
                each.close()
            raise
        bound = self._sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    async def listen(self) -> None:
        for each in self._sockets:
            each.listen(self._backlog)
        for each in self._sockets:
            asyncio.get_running_loop().add_reader(each.fileno(), self._accept, each)

    def _bind(self, family: int, address: tuple[Any, ...]) -> None:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # Of a port 0 the first socket decides which one it is.
            port = self._sockets[0].getsockname()[1] if self._sockets else address[1]
            listening.bind((address[0], port, *address[2:]))
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
        self._sockets.append(listening)

    def stop(self) -> None:
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            if each.fileno() >= 0:
                loop.remove_reader(each.fileno())
                each.close()
        for handshake in self._handshakes:
            handshake.cancel()

    async def stopped(self) -> None:
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        """Take those who wait, a few at a time."""
        loop = asyncio.get_running_loop()
        for _ in range(HANDSHAKES_AT_ONCE):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as fault:
                _log.error("listener %s takes no connection for a second: %s", self.name, fault)
                loop.remove_reader(listening.fileno())
                loop.call_later(_PAUSE_S, self._resume, listening)
                return
            if self.connections.is_full:  # nothing is made for those who cannot stay
                self.connections.tell_refused("max.connections reached", f"/{address[0]}")
                accepted.close()
                continue
            accepted.setblocking(False)
            task = loop.create_task(self._shake_hands(accepted, f"/{address[0]}"))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def _resume(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    async def _shake_hands(self, accepted: socket.socket, client_host: str) -> None:
        connection = Connection(self)
        connection.session.client_host = client_host
        admission = connection.opened()
        told: list[socket.socket] = []
        is_handed_over = False
        try:
            if admission.delay_ms:
                await asyncio.sleep(admission.delay_ms / 1000)
            if admission.refused:
                self.connections.closed(connection)
                accepted.close()
                return
            context = await self._tls.context()
            # asyncio asks for it only where a socket names its protocol, which an accepted one does not
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            SEND_ALERT.set(partial(_send_alert, accepted, told))
            left_s = await self._begin(accepted)
            is_handed_over = True
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=context, ssl_handshake_timeout=left_s
            )
        except OSError as fault:  # ssl.SSLError and TimeoutError are of this kind
            what = f"the TLS handshake of {client_host} by listener {self.name} has failed: {fault}"
            self.connections.tell(client_host, what)
            accepted.close()
            try:
                for each in told:
                    await _see_off(each)
            finally:
                self.connections.closed(connection)
        except BaseException:
            connection.close()  # it may be made already
            if not connection.is_made:
                self.connections.closed(connection)
            if is_handed_over:  # the loop closes it, when it sees its end
                with suppress(OSError):
                    accepted.shutdown(socket.SHUT_RDWR)
            else:
                accepted.close()
            raise

    async def _begin(self, accepted: socket.socket) -> float:
        """Wait until the client has said something, and it is its turn: the seconds that are left for the handshake.

        OSError if it says nothing for so long.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._handshake_s
        has_come = loop.create_future()
        loop.add_reader(accepted.fileno(), _set, has_come)
        try:
            async with asyncio.timeout(self._handshake_s):
                await has_come
        except TimeoutError:
            raise TimeoutError(f"the client has said nothing for {self._handshake_s:g} s") from None
        finally:
            loop.remove_reader(accepted.fileno())
        await self._may_begin.acquire()
        loop.call_soon(self._may_begin.release)
        return max(until_s - loop.time(), _LEAST_S)

    def identify(self, connection: Connection, transport: asyncio.BaseTransport) -> bool:
        if self.is_guarded:
            return True  # SASL says who it is
        try:
            connection.session.principal = self._tls.principal(transport.get_extra_info("ssl_object"))
        except OttlaError as fault:
            self.connections.tell_closed(connection.session.client_host, fault)
            return False
        return True


def _set(has_come: "asyncio.Future[None]") -> None:
    if not has_come.done():
        has_come.set_result(None)


def _send_alert(accepted: socket.socket, told: list[socket.socket], alert: bytes) -> None:
    """Tell the client why its handshake fails. The loop closes `accepted` next; `told` gets one that stays open."""
    with suppress(OSError):  # it is gone, or there are no more files
        accepted.send(alert)
        told.append(accepted.dup())


async def _see_off(told: socket.socket) -> None:
    """Hear a client until it has closed its side: it has the alert then."""
    loop, heard = asyncio.get_running_loop(), 0
    with told, suppress(OSError, TimeoutError):
        told.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(_FAREWELL_S):
            while heard < _FAREWELL_BYTES and (content := await loop.sock_recv(told, _FAREWELL_BYTES)):
                heard += len(content)

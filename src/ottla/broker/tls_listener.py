"""The listener of connections with TLS: takes a socket, does the handshake, and then makes a connection of it.

Theory of operation. A connection counts in `max.connections` from its first byte on and not only after its handshake;
each gets the certificate that is on the disk now; and a handshake that fails is told, here with the address it came
from, and to the client by an alert. Handshakes run in the event loop, a step for each message of the client; one that
is not over after `TLS_HANDSHAKE_MS` is given up. The first step signs, and takes longest. So a handshake begins when
the client's first bytes are here, and few begin in a turn of the loop, also where many clients that are connected
already speak at one moment.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ottla.base.errors import ConfigError, OttlaError
from ottla.base.limits import HANDSHAKES_AT_ONCE, TLS_HANDSHAKE_MS
from ottla.broker.authentication.tls import ServerTls
from ottla.broker.listening import Listener, send_at_once
from ottla.broker.server import Connection
from ottla.broker.sockets.poller import Poller
from ottla.broker.sockets.tls import Handshake, Sealed, TlsTransport

_log = logging.getLogger(__name__)

#: How long, and for how many bytes, a client is heard after the alert. If the system has bytes that nobody has read
#: when a socket is closed, it resets the connection, and the client may never see the alert.
_FAREWELL_S: Final = 1.0
_FAREWELL_BYTES: Final = 1 << 16


class TlsListener(Listener):
    """A listening socket for connections with TLS."""

    def secure(self, tls: ServerTls, handshake_ms: int = TLS_HANDSHAKE_MS) -> "TlsListener":
        """Use this TLS. To be called before `bind`."""
        self._tls = tls
        self._handshake_s = handshake_ms / 1000
        self._handshakes: set[asyncio.Task[None]] = set()
        #: Those that may begin in this turn of the loop.
        self._may_begin = asyncio.Semaphore(HANDSHAKES_AT_ONCE)
        return self

    async def bind(self, host: str, port: int, backlog: int) -> tuple[str, int]:
        if self.connections.poller() is None:
            raise ConfigError(f"listener {self.name}: TLS needs a system that has epoll, as Linux")
        return await super().bind(host, port, backlog)

    def stop(self) -> None:
        super().stop()
        for handshake in self._handshakes:
            handshake.cancel()

    async def stopped(self) -> None:
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _taker(self, poller: Poller) -> Callable[[socket.socket, tuple[Any, ...]], None]:
        def take(accepted: socket.socket, address: tuple[Any, ...]) -> None:
            if self.connections.is_full:  # nothing is made for those who cannot stay
                self.connections.tell_refused("max.connections reached", f"/{address[0]}")
                accepted.close()
                return
            task = asyncio.get_running_loop().create_task(self._shake_hands(poller, accepted, address))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

        return take

    async def _shake_hands(self, poller: Poller, accepted: socket.socket, address: tuple[Any, ...]) -> None:
        connection, client_host = Connection(self), f"/{address[0]}"
        connection.session.client_host = client_host
        admission = connection.opened()
        handshake = Handshake(poller, accepted)
        try:
            if admission.delay_ms:
                await asyncio.sleep(admission.delay_ms / 1000)
            if admission.refused:
                self.connections.closed(connection)
                accepted.close()
                return
            context = await self._tls.context()
            send_at_once(accepted)
            sealed = await self._agree(handshake, context)
        except OSError as fault:  # ssl.SSLError and TimeoutError are of this kind
            what = f"the TLS handshake of {client_host} by listener {self.name} has failed: {fault}"
            self.connections.tell(client_host, what)
            try:
                if isinstance(fault, ssl.SSLError):
                    await _see_off(accepted)
            finally:
                accepted.close()
                self.connections.closed(connection)
        except BaseException:
            self.connections.closed(connection)
            accepted.close()
            raise
        else:
            TlsTransport(poller, sealed, address).begin(connection)

    async def _agree(self, handshake: Handshake, context: ssl.SSLContext) -> Sealed:
        """Begin when the client has said something, and it is its turn. OSError if it takes too long, or fails."""
        loop, has_spoken = asyncio.get_running_loop(), False
        try:
            async with asyncio.timeout(self._handshake_s):
                await handshake.hello()
                has_spoken = True
                await self._may_begin.acquire()
                loop.call_soon(self._may_begin.release)
                return await handshake.shake_hands(context)
        except TimeoutError:
            what = "it is not over after" if has_spoken else "the client has said nothing for"
            raise TimeoutError(f"{what} {self._handshake_s:g} s") from None

    def identify(self, connection: Connection, transport: asyncio.BaseTransport) -> bool:
        if self.is_guarded:
            return True  # SASL says who it is
        try:
            connection.session.principal = self._tls.principal(transport.get_extra_info("ssl_object"))
        except OttlaError as fault:
            self.connections.tell_closed(connection.session.client_host, fault)
            return False
        return True


async def _see_off(told: socket.socket) -> None:
    """Hear a client until it has closed its side: it has the alert then."""
    loop, heard = asyncio.get_running_loop(), 0
    with suppress(OSError, TimeoutError):
        told.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(_FAREWELL_S):
            while heard < _FAREWELL_BYTES and (content := await loop.sock_recv(told, _FAREWELL_BYTES)):
                heard += len(content)

"""The alert that tells a client why its TLS handshake has failed (RFC 8446, section 6.2).

asyncio and uvloop close the socket of a failed handshake, and never send the alert that OpenSSL has made. By then the
client's side of a TLS 1.3 handshake is over: a client without a certificate would see nothing but a lost connection,
and come again and again. So the alert is taken where the handshake fails, and sent at once.
"""

import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, TypeAlias

#: The alert "unexpected message": OpenSSL makes none for a client whose first bytes are not TLS. A client of Kafka sees
#: no answer in it, and ours knows what it is; and a listener without TLS answers one to a client that begins with TLS.
UNEXPECTED_MESSAGE: Final = b"\x15\x03\x03\x00\x02\x02\x0a"

#: Gets the bytes of the alert, before the socket is closed.
SendAlert: TypeAlias = Callable[[bytes], None]

#: Who sends the alert of the handshake that begins in this context. There is one task for each handshake.
SEND_ALERT: Final[ContextVar[SendAlert | None]] = ContextVar("SEND_ALERT", default=None)


class _Handshake(ssl.SSLObject):
    """One side of a connection. What it has to say when it fails is in `outgoing`."""

    outgoing: ssl.MemoryBIO
    send_alert: SendAlert | None = None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.send_alert is not None:
                self.send_alert(self.outgoing.read() or UNEXPECTED_MESSAGE)
            raise


class AlertingContext(ssl.SSLContext):
    """A context whose handshakes tell the client why they fail, through what `SEND_ALERT` holds when they begin."""

    sslobject_class = _Handshake

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, _Handshake)
        made.outgoing, made.send_alert = outgoing, SEND_ALERT.get()
        return made

"""Who is at the other end of a connection."""

from typing import Final

#: Who has not said who he is (Kafka's `KafkaPrincipal.ANONYMOUS`).
ANONYMOUS: Final = "User:ANONYMOUS"


class Session:
    """A connection, as handlers see it: where it comes from, by which listener, and who speaks."""

    __slots__ = ("client_host", "is_gone", "is_known", "listener", "principal")

    def __init__(self, listener: str, client_host: str, principal: str = ANONYMOUS) -> None:
        """`listener` is its name in capitals, `client_host` the address as Kafka tells it (`/127.0.0.1`)."""
        self.listener = listener
        self.client_host = client_host
        self.principal = principal
        #: False until the client has said who it is, on a listener where it has to.
        self.is_known = True
        #: Whether the connection is closed.
        self.is_gone = False

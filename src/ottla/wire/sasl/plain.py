"""PLAIN (RFC 4616): user and password as they are. So use it over TLS only."""

from ottla.base.secret import Secret
from ottla.wire.sasl import SaslError


class PlainClient:
    """The client's half."""

    def __init__(self, username: str, password: Secret) -> None:
        """Raises SaslError for a NUL character, which separates the parts of the message."""
        if "\0" in username or "\0" in password.reveal():
            raise SaslError("a user name or a password with a NUL character cannot be sent by PLAIN")
        self._username = username
        self._password = password

    def start(self) -> bytes:
        return f"\0{self._username}\0{self._password.reveal()}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise SaslError(f"the broker has answered PLAIN by {len(challenge)} bytes, where there are none")
        return None

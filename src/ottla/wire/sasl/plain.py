"""PLAIN (RFC 4616): user and password as they are. So use it over TLS only."""

from collections.abc import Callable

from ottla.base.limits import MAX_SASL_MESSAGE_BYTES
from ottla.base.secret import Secret
from ottla.wire.sasl import SaslError, SaslRefusedError


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


class PlainServer:
    """The broker's half."""

    def __init__(self, is_password: Callable[[str, Secret], bool]) -> None:
        """`is_password` says whether a user has this password. It must take as long for a user who does not exist."""
        self._is_password = is_password
        self.user: str | None = None

    def answer(self, message: bytes) -> bytes:
        if self.user is not None:
            raise SaslError("PLAIN is over after one message")
        if len(message) > MAX_SASL_MESSAGE_BYTES:
            raise SaslError(f"a message of {len(message)} bytes; PLAIN's have {MAX_SASL_MESSAGE_BYTES} at most")
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise SaslError(f"PLAIN has three parts, separated by NUL; the client has sent {len(parts)}")
        try:
            other, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise SaslError("a user name or a password is not UTF-8") from None
        if not user or not password:
            raise SaslRefusedError("Authentication failed: username or password not specified")
        if not self._is_password(user, Secret(password)):
            who = SaslError(f"there is no user {user[:50]!a} with this password")  # for the broker's log alone
            raise SaslRefusedError("Authentication failed: Invalid username or password") from who
        if other not in ("", user):
            raise SaslRefusedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = user
        return b""

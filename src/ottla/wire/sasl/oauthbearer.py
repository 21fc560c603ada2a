"""OAUTHBEARER (RFC 7628, KIP-255): a token that somebody else has issued. So use it over TLS only."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.base.errors import kept
from ottla.base.limits import MAX_SASL_MESSAGE_BYTES, MAX_TOKEN_BYTES
from ottla.base.secret import Secret
from ottla.wire.sasl import SaslError, SaslRefusedError

_SEPARATOR = "\x01"
#: RFC 6750, section 2.1.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
#: RFC 7628, section 3.1: what is printable, and white space.
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
#: How much of the broker's words is shown.
_SHOWN = 200


class OAuthBearerClient:
    """The client's half."""

    def __init__(self, token: Secret, extensions: Mapping[str, str] | None = None) -> None:
        """Raises SaslError for a token or an extension that cannot be sent."""
        if not _TOKEN.fullmatch(token.reveal()):
            raise SaslError("the token is not one of RFC 6750: letters, digits, '-._~+/', and '=' at its end")
        for name, value in (extensions or {}).items():
            if not _EXTENSION_NAME.fullmatch(name) or name == "auth":
                raise SaslError(f"the extension's name {name!r} is not allowed: use letters, and not auth")
            if not _EXTENSION_VALUE.fullmatch(value):
                raise SaslError(f"the value of the extension {name} is empty, or has characters that are not allowed")
        self._token = token
        self._extensions = dict(extensions or {})
        self._refused: str | None = None

    def start(self) -> bytes:
        pairs = [
            f"auth=Bearer {self._token.reveal()}",
            *(f"{name}={value}" for name, value in self._extensions.items()),
        ]
        return ("n,," + _SEPARATOR + _SEPARATOR.join(pairs) + _SEPARATOR * 2).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """An answer with words in it is a refusal. The client has to send one byte more, and is told the error then.

        If the broker says nothing of an error after that, this raises SaslError.
        """
        if self._refused is not None:
            raise SaslError(f"the broker has refused the token: {self._refused}")
        if not challenge:
            return None
        self._refused = _why(challenge)
        return _SEPARATOR.encode()


def _why(challenge: bytes) -> str:
    """The broker's reason, from RFC 7628's JSON if it is that."""
    try:
        said = json.loads(challenge)
        return str(said["status"])[:_SHOWN]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ascii(challenge[:_SHOWN].decode("utf-8", "replace"))


class Accepted(NamedTuple):
    """Whose token it is, and until when it counts, in UTC milliseconds."""

    user: str
    expires_ms: int


#: What stands before the pairs: RFC 5801's name, with "," and "=" as =2C and =3D.
_HEADER: Final = re.compile(r"n,(?:a=(?P<name>(?:[^,=\x00]|=2C|=3D)+))?,")
_BEARER: Final = re.compile(r"bearer +(?P<token>[A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)
#: What a refused client is told, and no more.
_INVALID: Final = '{"status":"invalid_token"}'


class OAuthBearerServer:
    """The broker's half. A refused client hears so twice, by RFC 7628: as an answer, and after its word as an error."""

    def __init__(self, check: Callable[[str], Accepted]) -> None:
        """`check` says whose a token is, or raises SaslError."""
        self._check = check
        self._refused: SaslError | None = None
        self.user: str | None = None
        #: Until when the token counts, in UTC milliseconds.
        self.expires_ms: int | None = None

    def answer(self, message: bytes) -> bytes:
        if self.user is not None:
            raise SaslError("OAUTHBEARER is over after the token")
        if self._refused is not None:
            raise SaslRefusedError(_INVALID) from self._refused
        if len(message) > MAX_TOKEN_BYTES + MAX_SASL_MESSAGE_BYTES:
            raise SaslError(f"a message of {len(message)} bytes; tokens have {MAX_TOKEN_BYTES} at most")
        try:
            header, *pairs = message.decode().split(_SEPARATOR)
        except UnicodeDecodeError:
            raise SaslError("the client's message is not UTF-8") from None
        said, token = _HEADER.fullmatch(header), _token_of(pairs)
        if said is None or token is None:
            raise SaslError("the client's message is not one of OAUTHBEARER (RFC 7628)")
        try:
            accepted = self._check(token)
        except SaslError as fault:
            self._refused = kept(fault)
            return _INVALID.encode()
        name = (said["name"] or accepted.user).replace("=2C", ",").replace("=3D", "=")
        if name != accepted.user:
            raise SaslRefusedError(
                "Authentication failed: Client requested an authorization id that is different from "
                "the token's principal name"
            )
        self.user, self.expires_ms = accepted
        return b""


def _token_of(pairs: Sequence[str]) -> str | None:
    """The token of RFC 7628's key/value pairs (section 3.1): each ends with a separator, and so does the last one."""
    if len(pairs) < 3 or pairs[-2:] != ["", ""] or "" in pairs[:-2]:
        return None
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name.lower() == "auth":
            found = _BEARER.fullmatch(value)
            return None if found is None else found["token"]
    return None

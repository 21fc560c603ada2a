"""OAUTHBEARER (RFC 7628, KIP-255): a token that somebody else has issued. So use it over TLS only."""

import json
import re
from collections.abc import Mapping

from ottla.base.secret import Secret
from ottla.wire.sasl import SaslError

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

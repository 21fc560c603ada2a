"""Fetches tokens from an OIDC server by client credentials (KIP-768; RFC 6749, section 4.4), and keeps them.

All of this blocks: an authentication asks for its token in a thread. A token is kept for four fifths of its life, for
all clients of the process that ask the same server as the same client, as Java's logins do.
"""

import base64
import binascii
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit
from urllib.request import url2pathname

from ottla.base.errors import OttlaError
from ottla.base.pem import unfolded, why
from ottla.base.secret import Secret
from ottla.client.config.oidc import TokenEndpoint

#: The part of its life after which a token is fetched anew (Java's sasl.login.refresh.window.factor).
_KEPT: Final = 0.8
_MOST_BYTES: Final = 1_048_576
_SHOWN: Final = 200
#: What another attempt cannot change: the request, or who asks, is wrong.
_FINAL: Final = frozenset({400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505})


class TokenError(OttlaError):
    """No token could be had. Never holds a secret."""


class Tokens:
    """The tokens of a process."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic, wait: Callable[[float], None] = time.sleep) -> None:
        self._now_s = now_s
        self._wait = wait
        self._lock = threading.Lock()
        self._locks: dict[TokenEndpoint, threading.Lock] = {}
        self._kept: dict[TokenEndpoint, tuple[Secret, float]] = {}
        self._asked: set[TokenEndpoint] = set()

    def is_asking(self, endpoint: TokenEndpoint) -> bool:
        """Whether its answer is waited for now."""
        return endpoint in self._asked

    def token(self, endpoint: TokenEndpoint) -> Secret:
        """One that is fresh enough; blocks while it is fetched. Raises TokenError."""
        if endpoint.url.startswith("file:"):
            return _from_file(endpoint.url)
        with self._lock:
            of_endpoint = self._locks.setdefault(endpoint, threading.Lock())
        with of_endpoint:  # one question for all connections that open at a time
            kept = self._kept.get(endpoint)
            if kept is not None and self._now_s() < kept[1]:
                return kept[0]
            asked_s = self._now_s()
            self._asked.add(endpoint)
            try:
                answer = self._fetch(endpoint)
            finally:
                self._asked.discard(endpoint)
            token = _token_in(endpoint, answer)
            life_s = _life_s(token, answer)
            if life_s > 0:
                self._kept[endpoint] = token, asked_s + life_s * _KEPT
            return token

    def _fetch(self, endpoint: TokenEndpoint) -> Any:
        """Ask, and ask again while that may help and `sasl.login.retry.backoff.max.ms` are not over."""
        end_s = self._now_s() + endpoint.backoff_max_ms / 1000
        pause_s = endpoint.backoff_ms / 1000
        while True:
            try:
                status, body = _post(endpoint)
            except (OSError, http.client.HTTPException) as fault:
                problem = f"{where(endpoint)} cannot be asked for a token: {fault}"
                is_final = isinstance(fault, ssl.SSLCertVerificationError)
            else:
                if status == http.HTTPStatus.OK:
                    return _json(endpoint, body)
                problem = f"{where(endpoint)} gives no token: status {status}, {_reason(body)}"
                is_final = status in _FINAL or 300 <= status < 400
            if is_final or self._now_s() + pause_s > end_s:
                raise TokenError(problem)
            self._wait(pause_s)
            pause_s *= 2


#: Those of this process.
TOKENS: Final = Tokens()


def where(endpoint: TokenEndpoint) -> str:
    """The endpoint without what may be secret in its URL."""
    url = urlsplit(endpoint.url)
    return f"{url.scheme}://{url.hostname}{f':{url.port}' if url.port else ''}{url.path}"


def _post(endpoint: TokenEndpoint) -> tuple[int, bytes]:
    url, timeout_s = urlsplit(endpoint.url), endpoint.timeout_ms / 1000
    assert url.hostname is not None
    connection: http.client.HTTPConnection
    if url.scheme == "https":
        context = _tls_context(endpoint)
        connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=timeout_s)
    scope = f"&scope={quote_plus(endpoint.scope)}" if endpoint.scope else ""
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {_basic(endpoint)}",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    try:
        connection.request("POST", path, f"grant_type=client_credentials{scope}", headers)
        answer = connection.getresponse()
        body = answer.read(_MOST_BYTES + 1)
    finally:
        connection.close()
    if len(body) > _MOST_BYTES:
        raise TokenError(f"{where(endpoint)} answers with more than {_MOST_BYTES} bytes: that is no token")
    return answer.status, body


def _tls_context(endpoint: TokenEndpoint) -> ssl.SSLContext:
    """It trusts the authorities that are given, and those of the system only where none are, as for brokers."""
    try:
        return ssl.create_default_context(cafile=endpoint.ca_file, cadata=unfolded(endpoint.ca_pem))
    except (OSError, ValueError) as fault:
        source = endpoint.ca_file or "ssl.ca.pem"
        problem = f"the authorities to trust cannot be read ({source}): {why(fault)}"
        raise TokenError(f"{where(endpoint)} cannot be asked for a token: {problem}") from None


def _basic(endpoint: TokenEndpoint) -> str:
    secret = "" if endpoint.client_secret is None else endpoint.client_secret.reveal()
    words = [quote_plus(word) if endpoint.url_encode else word for word in (endpoint.client_id, secret)]
    return base64.b64encode(":".join(words).encode()).decode()


def _json(endpoint: TokenEndpoint, body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise TokenError(f"{where(endpoint)} answers with something that is not JSON") from None


def _reason(body: bytes) -> str:
    """What the server says is wrong (RFC 6749, section 5.2)."""
    try:
        said = json.loads(body)
        words = [str(said[name]) for name in ("error", "error_description") if said.get(name)]
    except (ValueError, AttributeError, RecursionError):
        words = []
    return ascii(": ".join(words))[1:-1][:_SHOWN] if words else "and no reason"


def _token_in(endpoint: TokenEndpoint, answer: Any) -> Secret:
    for name in ("access_token", "id_token"):
        token = answer.get(name) if isinstance(answer, dict) else None
        if isinstance(token, str) and token.strip():
            return Secret(token.strip())
    raise TokenError(f"{where(endpoint)} answers without access_token")


def _life_s(token: Secret, answer: Any) -> float:
    """How long it is good: as the answer says, or the token itself if it is a JWT; 0 when nobody says."""
    said = answer.get("expires_in")
    if isinstance(said, int | float) and not isinstance(said, bool):
        return float(said)
    parts = token.reveal().split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"]) - float(claims["iat"])
    except (ValueError, KeyError, IndexError, TypeError, RecursionError, binascii.Error):
        return 0.0


def _from_file(url: str) -> Secret:
    path = url2pathname(urlsplit(url).path)
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 - a URL's path
            token = file.read(_MOST_BYTES).strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise TokenError(f"the token in {path} cannot be read: {fault}") from None
    if not token:
        raise TokenError(f"{path} is empty: it should hold a token")
    return Secret(token)

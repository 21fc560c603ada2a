"""The keys by which tokens are verified: a JWKS in a file or from an HTTP server, read again and again (KIP-768).

It is read at the start, every `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and soon after somebody has shown a token of
a key that is not there, but not more often than every ten seconds: strangers must not make the broker ask all the time.
A thread waits for files and servers. Where one fails, the keys from before stay.
"""

import asyncio
import logging
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ottla.base.errors import ConfigError, OttlaError
from ottla.broker.authentication.tokens import TokenKey, read_keys

_log = logging.getLogger(__name__)

_MOST_BYTES: Final = 1_048_576
_TIMEOUT_S: Final = 10.0
#: Between two times that the keys are read.
_LEAST_PAUSE_S: Final = 10.0


class KeysError(OttlaError):
    """Keys cannot be read."""


class Endpoint(NamedTuple):
    """`sasl.oauthbearer.jwks.endpoint.…`."""

    url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int

    def check(self) -> "Endpoint":
        """Itself. ConfigError for a URL that cannot be used."""
        try:
            parts = urlsplit(self.url)
            is_file = parts.scheme == "file" and bool(parts.path)
            is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # brackets that do not close, a port that is no number
            is_file = is_server = False
        if not is_file and not is_server:
            # What it is is not shown: it may hold a password.
            raise ConfigError("sasl.oauthbearer.jwks.endpoint.url: expected https://…, http://…, or file:///path")
        return self


def fetch(url: str) -> bytes:
    """What is there; blocks. KeysError where nothing is."""
    try:
        if url.startswith("file:"):
            with Path(url2pathname(urlsplit(url).path)).open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        else:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
                data = answer.read(_MOST_BYTES + 1)
    except (OSError, ValueError, HTTPException) as fault:
        raise KeysError(f"the keys of tokens cannot be read from {_shown(url)}: {fault}") from None
    if len(data) > _MOST_BYTES:
        raise KeysError(f"{_shown(url)} has more than {_MOST_BYTES} bytes: these are no keys of tokens")
    return bytes(data)


class Jwks:
    """The keys of one endpoint. `keys` are those that were read last."""

    def __init__(
        self, endpoint: Endpoint, read: Callable[[str], bytes] = fetch, *, least_pause_s: float = _LEAST_PAUSE_S
    ) -> None:
        self.keys: tuple[TokenKey, ...] = ()
        self._endpoint = endpoint
        self._read = read
        self._least_pause_s = least_pause_s
        self._wanted = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the keys, and go on reading them. KeysError for a file that cannot be used.

        A server that does not answer is asked again: until then no token is accepted.
        """
        if self._endpoint.url.startswith("http:"):
            _log.warning(
                "sasl.oauthbearer.jwks.endpoint.url is http: whoever can change what comes from %s can let anybody in; "
                "use https",
                _shown(self._endpoint.url),
            )
        try:
            await self._load()
        except KeysError as fault:
            if self._endpoint.url.startswith("file:"):
                raise
            _log.error("%s; until that works nobody can authenticate by OAUTHBEARER", fault)
            self._wanted.set()
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Read them no more."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running

    def look_again(self) -> None:
        """A token names a key that is not there."""
        self._wanted.set()

    async def _run(self) -> None:
        backoff_s = self._endpoint.retry_backoff_ms / 1000
        pause_s = backoff_s if self._wanted.is_set() else self._least_pause_s
        while True:
            await asyncio.sleep(pause_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), max(self._endpoint.refresh_ms / 1000 - pause_s, 0))
            try:
                await self._load()
            except KeysError as fault:
                _log.warning("%s", fault)
                self._wanted.set()
                pause_s = backoff_s
                backoff_s = min(backoff_s * 2, max(self._endpoint.retry_backoff_max_ms / 1000, backoff_s))
            else:
                pause_s, backoff_s = self._least_pause_s, self._endpoint.retry_backoff_ms / 1000

    async def _load(self) -> None:
        self._wanted.clear()
        data = await asyncio.get_running_loop().run_in_executor(None, self._read, self._endpoint.url)
        try:
            self.keys = read_keys(data, partial(_log.warning, "%s: %s", _shown(self._endpoint.url)))
        except ValueError as fault:
            raise KeysError(f"{_shown(self._endpoint.url)} has no keys of tokens: {fault}") from None


def _shown(url: str) -> str:
    """The URL without what may be secret in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"

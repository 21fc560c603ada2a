"""One connection to one broker: it sends requests, and gives each answer to its request.

A broker answers the requests of a connection in their order. So the requests that wait are a queue, and an answer
belongs to the first of them. If its correlation id is another one, bytes were lost, and the connection is closed. It is
also closed when a request is not answered in time, as in Kafka's own clients: a late answer must not be taken for the
answer to a newer request, and a new connection often helps when a broker does not answer.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, cast

from ottla.base.limits import MAX_RESPONSE_BYTES, MAX_SPARE_BYTES
from ottla.base.version import VERSION
from ottla.client.core.negotiation import BrokerVersions
from ottla.client.core.throttle import Throttle
from ottla.client.errors import ClientError, DisconnectedError, KafkaError, RequestTimeoutError, raise_for
from ottla.client.net.tls import ALERT, handshake_failed, speaks_tls
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import Buffer, UnwritableTextError, WireError
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import FrameBuffer, decode_response, encode_request_pieces
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.spare_memory import SpareMemory

log = logging.getLogger("ottla.client")

_MAX_CORRELATION_ID = 2**31 - 1
#: Of large answers to all connections of this process, which are decoded one after the other.
_SPARE = SpareMemory(MAX_SPARE_BYTES)
#: Where the correlation id is in a request's frame: behind the length, the API key and the version.
_CORRELATION_ID_AT = slice(8, 12)
#: A connection that is lost after so few requests may have been closed because of what it is.
_FEW_REQUESTS = 2
_HINT = ". A broker also closes connections whose security.protocol is not that of its listener"
#: Where the error code is in an answer to ApiVersions: behind the correlation id, in every version.
_API_VERSIONS_ERROR_AT = 4


#: Called once with the decoded answer, or with the error (DisconnectedError, RequestTimeoutError) and no answer.
Heard = Callable[[Any, Exception | None], object]


@dataclass(slots=True)
class _Waiting:
    api: ApiKey
    version: int
    correlation_id: int
    heard: Heard
    deadline_s: float
    timeout_ms: float


class Connection(asyncio.BufferedProtocol):
    """A connection. Make one with `connect`; after that `versions` is set."""

    def __init__(self, client_id: str, name: str) -> None:
        self.name = name
        self.versions = BrokerVersions({}, {})
        #: What `choose` has found.
        self._chosen: dict[tuple[ApiKey, int | None, int | None], int] = {}
        self.last_used_s = 0.0
        #: Called once, when nothing can be sent here any more. After that the requests that wait fail.
        self.on_lost: Callable[[], object] | None = None
        #: Keeps the connection authenticated (KIP-368); ends with it.
        self.renewal: asyncio.Task[None] | None = None
        self._client_id = client_id
        self._frames = FrameBuffer(MAX_RESPONSE_BYTES, spare=_SPARE)
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._lost: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._throttle = Throttle()
        #: Frames that wait until the broker's throttle time, or an authentication, is over.
        self._held: list[list[Buffer]] = []
        self._authenticating = False
        #: The request that is written now belongs to the authentication, and does not wait for its end.
        self._ahead = False
        self._release_timer: asyncio.TimerHandle | None = None
        #: For the first deadline of the requests that wait, or for one before it.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0
        self._paused = False
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answers."""
        return len(self._waiting)

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and self._lost is None

    @property
    def is_writable(self) -> bool:
        """Whether the socket accepts more bytes now, and no throttle time runs."""
        return self._writable.is_set()

    def choose(self, api: ApiKey, cap: int | None, least: int | None) -> int:
        """`versions.choose`, which takes a while, remembered. After the handshake. Raises UnsupportedVersionError."""
        version = self._chosen.get((api, cap, least))
        if version is None:
            version = self._chosen[api, cap, least] = self.versions.choose(api, cap, least)
        return version

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.last_used_s = self._loop.time()

    def get_buffer(self, sizehint: int) -> Any:
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.commit(nbytes):
                self._answered(frame)
        except WireError as error:
            reason: ClientError = DisconnectedError(
                f"{self.name} has sent bytes that are not Kafka's protocol: {error}"
            )
            if self._frames.begun.startswith(ALERT):
                reason = speaks_tls(self.name)
            reason.__cause__ = error
            self.abort(reason)

    def pause_writing(self) -> None:
        self._paused = True
        self._writable.clear()

    def resume_writing(self) -> None:
        self._paused = False
        if not self._held:
            self._writable.set()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):  # with TLS 1.3 a broker refuses a client's certificate after the handshake
            self._fail(handshake_failed(self.name, exc))
            return
        hint = _HINT if self._correlation_id <= _FEW_REQUESTS else ""
        self._fail(DisconnectedError(f"connection to {self.name} was lost{f': {exc}' if exc else ''}{hint}"))

    # what clients call

    def send(self, api: ApiKey, version: int, message: tuple[Any, ...], timeout_ms: float) -> "asyncio.Future[Any]":
        """Send a request; the future gets the decoded answer, DisconnectedError or RequestTimeoutError.

        While a throttle time runs, the request waits here. Then `timeout_ms` begins after the throttle time.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        self.ask(api, version, message, timeout_ms, partial(_settle, future))
        return future

    def ask(self, api: ApiKey, version: int, message: tuple[Any, ...], timeout_ms: float, heard: Heard) -> None:
        """The same; `heard` is called with what the future would get, at once: in the turn that receives the answer.

        A request that cannot be sent calls it before this returns.
        """
        if self._transport is None or self._lost is not None:
            heard(None, self._lost or DisconnectedError(f"not connected to {self.name}"))
            return
        correlation_id = self._next_correlation_id()
        try:
            pieces = encode_request_pieces(api, version, correlation_id, self._client_id, message)
        except UnwritableTextError as fault:
            heard(None, KafkaError.of(ErrorCode.INVALID_REQUEST, f"{API[api].name} cannot be sent: {fault}"))
            return
        wait_s = self._write(pieces)
        deadline_s = self.last_used_s + wait_s + timeout_ms / 1000
        self._waiting.append(_Waiting(api, version, correlation_id, heard, deadline_s, timeout_ms))
        if self._timer is None or deadline_s < self._timer_at_s:
            self._arm(deadline_s)

    def send_ahead(
        self, api: ApiKey, version: int, message: tuple[Any, ...], timeout_ms: float
    ) -> "asyncio.Future[Any]":
        """Like `send`, but before the requests that are held: for the authentication itself."""
        held = {int.from_bytes(frame[0][_CORRELATION_ID_AT]) for frame in self._held if frame}
        self._ahead = True
        try:
            future = self.send(api, version, message, timeout_ms)
        finally:
            self._ahead = False
        if not future.done():  # its answer comes before those of the requests that it has overtaken
            ours = self._waiting.pop()
            self._waiting.insert(sum(each.correlation_id not in held for each in self._waiting), ours)
        return future

    @contextmanager
    def held(self) -> Iterator[None]:
        """A block in which requests wait here: during an authentication a broker accepts no other requests."""
        self._authenticating = True
        self._held.append([])  # whoever writes sees that something waits
        self._writable.clear()
        try:
            yield
        finally:
            self._authenticating = False
            if self._release_timer is None:
                self._release()

    def send_without_answer(self, api: ApiKey, version: int, message: tuple[Any, ...]) -> None:
        """Send a request that the broker does not answer (Produce with acks=0)."""
        if self._transport is None or self._lost is not None:
            raise self._lost or DisconnectedError(f"not connected to {self.name}")
        self._write(encode_request_pieces(api, version, self._next_correlation_id(), self._client_id, message))

    async def drained(self) -> None:
        """Wait until `is_writable`, or until the connection is lost."""
        await self._writable.wait()

    def abort(self, reason: Exception) -> None:
        """Close now; every request that waits fails with `reason`."""
        try:
            self._fail(reason)
        finally:  # a Ctrl-C where somebody hears of it: the others hear when the connection is lost
            if self._transport is not None:
                self._transport.abort()

    def close(self) -> None:
        """Close as soon as the bytes that were written have been sent."""
        try:
            self._fail(DisconnectedError(f"connection to {self.name} was closed"))
        finally:
            if self._transport is not None:
                self._transport.close()

    async def handshake(self, timeout_ms: float) -> None:
        """Ask the broker for its versions and features (KIP-35, KIP-511, KIP-584)."""
        api = API[ApiKey.API_VERSIONS]
        request = ApiVersionsRequest("ottla", VERSION)
        answer: ApiVersionsResponse = await self.send(ApiKey.API_VERSIONS, api.max_version, request, timeout_ms)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            theirs = {key.api_key: key.max_version for key in answer.api_keys}
            version = min(theirs.get(ApiKey.API_VERSIONS, 0), api.max_version)
            answer = await self.send(ApiKey.API_VERSIONS, version, request, timeout_ms)
        raise_for(answer.error_code)
        self.versions = BrokerVersions(
            {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys},
            {feature.name: feature.max_version_level for feature in answer.finalized_features},
        )

    # inside

    def _write(self, frame: list[Buffer]) -> float:
        """Write the pieces of a frame, or hold them while a throttle time runs. Returns for how many seconds."""
        assert self._transport is not None
        self.last_used_s = self._loop.time()
        wait_s = self._throttle.left_s(self.last_used_s)
        if (wait_s == 0.0 and not self._held) or self._ahead:
            self._transport.writelines(frame)
            return 0.0
        self._held.append(frame)
        self._writable.clear()
        if self._release_timer is None and not self._authenticating:
            log.debug("%s throttles this client: the next request is sent after %.3f s", self.name, wait_s)
            self._release_timer = self._loop.call_later(wait_s, self._release)
        return wait_s

    def _release(self) -> None:
        """Write the frames that were held, unless a later answer has made the throttle time longer."""
        self._release_timer = None
        if self._authenticating:
            return
        wait_s = self._throttle.left_s(self._loop.time())
        if wait_s > 0.0:
            self._release_timer = self._loop.call_later(wait_s, self._release)
            return
        frames, self._held = self._held, []
        if self._transport is not None and self._lost is None:
            self._transport.writelines([piece for frame in frames for piece in frame])
        if not self._paused:
            self._writable.set()

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & _MAX_CORRELATION_ID
        return self._correlation_id

    def _answered(self, frame: Buffer) -> None:
        if not self._waiting:
            raise WireError("an answer without a request")
        waiting = self._waiting.popleft()
        try:
            correlation_id, message = decode_response(waiting.api, _version_of(waiting, frame), frame)
            if correlation_id != waiting.correlation_id:
                raise WireError(f"an answer to request {correlation_id} instead of {waiting.correlation_id}")
        except Exception:
            self._waiting.appendleft(waiting)  # so that it fails together with the others
            raise
        silence_s = self._throttle.answered(message, self._loop.time())
        if silence_s > 0.0:
            for other in self._waiting:  # on their way, or held: the broker does not read them before
                other.deadline_s += silence_s
        waiting.heard(message, None)

    def _arm(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = at_s
        self._timer = self._loop.call_at(at_s, self._it_is_time)

    def _it_is_time(self) -> None:
        """Abort if a request has waited too long; the request that this timer was for may have been answered."""
        self._timer = None
        if not self._waiting:
            return
        first = min(self._waiting, key=_deadline_s)
        if first.deadline_s > self._timer_at_s:
            self._arm(first.deadline_s)
            return
        self.abort(RequestTimeoutError(f"{self.name} did not answer {first.api.name} within {first.timeout_ms:.0f} ms"))

    def _fail(self, reason: Exception) -> None:
        if self._lost is None:
            self._lost = reason
        self._held.clear()
        renewal, self.renewal = self.renewal, None
        if renewal is not None and renewal is not _current_task():
            renewal.cancel()
        for timer in (self._release_timer, self._timer):
            if timer is not None:
                timer.cancel()
        self._release_timer = self._timer = None
        self._writable.set()
        on_lost, self.on_lost = self.on_lost, None
        if on_lost is not None:
            on_lost()
        while self._waiting:
            self._waiting.popleft().heard(None, reason)


_deadline_s = attrgetter("deadline_s")


def _settle(future: "asyncio.Future[Any]", answer: Any, error: Exception | None) -> None:
    if future.done():  # its caller may have been cancelled
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None


def _version_of(waiting: _Waiting, frame: Buffer) -> int:
    """The version of an answer: that of its request. But if a broker does not know the version of an ApiVersions
    request, it answers in version 0."""
    if waiting.api is ApiKey.API_VERSIONS and waiting.version:
        code = int.from_bytes(frame[_API_VERSIONS_ERROR_AT : _API_VERSIONS_ERROR_AT + 2], "big", signed=True)
        return 0 if code == ErrorCode.UNSUPPORTED_VERSION else waiting.version
    return waiting.version


async def connect(
    host: str,
    port: int,
    client_id: str,
    setup_timeout_ms: float,
    request_timeout_ms: float,
    tls: ssl.SSLContext | None = None,
) -> Connection:
    """Open a connection and ask for the broker's versions. Without `tls` it is plain text.

    Raises DisconnectedError, RequestTimeoutError, or SslAuthenticationError.
    """
    loop = asyncio.get_running_loop()
    name = f"{host}:{port}"
    try:
        async with asyncio.timeout(setup_timeout_ms / 1000):
            _, connection = await loop.create_connection(lambda: Connection(client_id, name), host, port, ssl=tls)
    except TimeoutError:
        raise DisconnectedError(f"no connection to {name} within {setup_timeout_ms:.0f} ms") from None
    except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError) as error:
        if tls is None:
            raise DisconnectedError(f"cannot connect to {name}: {error}") from error
        raise handshake_failed(name, error) from error
    except (OSError, UnicodeError) as error:  # UnicodeError: no host can have this name
        raise DisconnectedError(f"cannot connect to {name}: {error}") from error
    try:
        await connection.handshake(request_timeout_ms)
    except BaseException:
        connection.close()
        raise
    return connection

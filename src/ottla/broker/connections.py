"""All connections of a broker, whichever listener they came by: how many there are, and which are closed in time."""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, Protocol

from ottla.base.clock import Clock
from ottla.base.errors import ConfigError
from ottla.base.limits import (
    MAX_CONNECTION_DELAY_MS,
    MAX_KEPT_BYTES,
    MAX_LAST_BYTES,
    MAX_RECEIVED_BYTES,
    MAX_STRANGERS_BYTES,
    MAX_UNREAD_BYTES,
    POLLED_AT_ONCE,
    RECEIVED_TURN_BYTES,
)
from ottla.base.words import one_line
from ottla.broker.config import BrokerConfig
from ottla.broker.frame_memory import FrameMemory
from ottla.broker.last_frames import LastFrames
from ottla.broker.quiet import Quiet
from ottla.broker.quotas.connections import (
    NO_LIMIT,
    Admission,
    ConnectionLimits,
    Limits,
    ListenerLimits,
    plain_address,
)
from ottla.broker.quotas.rates import Windows
from ottla.broker.session import Session
from ottla.broker.sockets.poller import Poller
from ottla.broker.turn import Turn
from ottla.broker.unread import UnreadAnswers

_log: Final = logging.getLogger(__name__)

#: Why a connection is closed that nobody uses.
IDLE: Final = "connections.max.idle.ms"


class Managed(Protocol):
    """A connection, as this module needs it."""

    session: Session

    @property
    def active_ms(self) -> int:
        """When its client has said or heard something last, by the clock that never steps."""
        ...

    def overdue(self, now_ms: int, max_idle_ms: int) -> str:
        """Why it is time to close it; empty if it is not."""
        ...

    def rest(self, now_ms: int) -> None:
        """Give up the memory of its buffer if that has long not been used."""
        ...

    def close(self) -> None:
        """Close it now."""
        ...


class Connections:
    """The connections of all listeners, and the memory that their frames share."""

    def __init__(
        self,
        clock: Clock,
        *,
        max_connections: int = NO_LIMIT,
        max_idle_ms: int,
        max_queued_bytes: int = -1,
        max_kept_bytes: int = MAX_KEPT_BYTES,
        max_turn_bytes: int = RECEIVED_TURN_BYTES,
        limits: Limits | None = None,
    ) -> None:
        """The limits are `max.connections`, `connections.max.idle.ms` and `queued.max.request.bytes`; where the last is
        -1, MAX_RECEIVED_BYTES. `max_kept_bytes` is of all buffers when no frame needs them, `max_turn_bytes` of what is
        received in one turn of the loop. `limits` has all about the number of connections, and comes before
        `max_connections`."""
        self._max_queued_bytes = max_queued_bytes if max_queued_bytes > 0 else MAX_RECEIVED_BYTES
        self.memory = FrameMemory(self._max_queued_bytes)
        #: Of whole frames that wait for their turn.
        self.waiting_bytes = 0
        self._max_kept_bytes = max_kept_bytes
        #: Of all buffers, beyond what each connection begins with.
        self.kept_bytes = 0
        #: The same for those who have not said who they are: they must not take it from the others.
        self.strangers_memory = FrameMemory(MAX_STRANGERS_BYTES)
        self.unread = UnreadAnswers(MAX_UNREAD_BYTES, self.tell_closed)
        #: Of the requests of all of them.
        self.turn = Turn()
        self._max_turn_bytes = max_turn_bytes
        self._poller: Poller | None = None
        self.last_frames = LastFrames(MAX_LAST_BYTES, self.turn, clock)
        self._clock = clock
        self.limits = ConnectionLimits(limits or Limits(max_connections))
        self._max_idle_ms = max_idle_ms
        #: With the listener and address by which each is counted; None for one that is refused, and not closed yet.
        self._open: dict[Managed, tuple[str, str] | None] = {}
        #: Whether nobody may come any more.
        self.is_closing = False
        self._one_has_gone = asyncio.Event()
        self._quiet = Quiet(clock)
        #: What connections that are gone had received of large frames.
        self._to_free: deque[object] = deque()
        #: When one that is closed was active last.
        self._active_ms = clock.monotonic_ms()

    def poller(self) -> Poller | None:
        """What looks at the sockets of all listeners; None where the loop has none, as in a simulated network."""
        if self._poller is None:
            with suppress(RuntimeError):
                self._poller = Poller(asyncio.get_running_loop(), self._max_turn_bytes)
        return self._poller

    def opened(self, connection: Managed) -> Admission:
        """Take a new connection. Whoever calls serves it, or closes it if it is refused, after the delay."""
        session = connection.session
        at = session.listener, plain_address(session.client_host.removeprefix("/"))
        if self.is_closing:
            admission = Admission(0, "the broker stops")
        else:
            admission = self.limits.admit(*at, self._clock.monotonic_ms())
            if admission.refused:
                self.tell_refused(admission.refused, session.client_host)
        self._open[connection] = None if admission.refused else at
        return admission

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits, of all of them, that none should have more than one frame waiting."""
        return self.waiting_bytes > self._max_queued_bytes

    @property
    def keeps_much(self) -> bool:
        """Whether buffers have so much memory that none should stay larger than what is in it."""
        return self.kept_bytes > self._max_kept_bytes

    @property
    def is_full(self) -> bool:
        """Whether the next connection would be one too many."""
        return self.limits.is_full

    def closed(self, connection: Managed) -> None:
        """Forget a connection. No-op for one that is forgotten already."""
        at = self._open.pop(connection, None)
        if at is not None:
            self.limits.gone(*at)
        self._one_has_gone.set()
        self._active_ms = max(self._active_ms, connection.active_ms)

    def let_go(self, frames: object) -> None:
        """Free what is here of a large frame that will never be whole. For 100 MB the system needs ten milliseconds:
        where one client goes with many, they go one by one, each in a turn of the loop."""
        self._to_free.append(frames)
        if len(self._to_free) == 1:
            asyncio.get_running_loop().call_soon(self._free_next)

    def _free_next(self) -> None:
        self._to_free.popleft()
        if self._to_free:
            asyncio.get_running_loop().call_soon(self._free_next)

    def tell_refused(self, why: str, client_host: str) -> None:
        """A line at the first refusal for this reason, and then at most one in a while."""
        more = self._quiet.turn(why)
        if more is not None:
            _log.warning("%s: refusing %s%s", why, client_host, more)

    def tell_closed(self, client_host: str, why: object) -> None:
        """A line about a connection that is closed for what its client has done."""
        self.tell(client_host, f"closing the connection of {client_host}: {why}")

    def tell(self, client_host: str, what: str) -> None:
        """A line about what a client has done; at most one in a while for each address."""
        more = self._quiet.turn(client_host)
        if more is not None:
            _log.warning("%s%s", one_line(what), more)

    def close(self) -> None:
        """Close every connection. Those that come from now on are closed at once."""
        self.is_closing = True
        for connection in list(self._open):
            connection.close()
        self.last_frames.stop()

    async def ended(self) -> None:
        """Behind `close`: wait until none is open any more.

        One that was accepted just before is made in the next turn.
        """
        await asyncio.sleep(0)
        while self._open:
            self._one_has_gone.clear()
            await self._one_has_gone.wait()
        if self._poller is not None:
            self._poller.close()
            self._poller = None

    @property
    def active_ms(self) -> int:
        """When a client has said or heard something last, by the clock that never steps."""
        return max((each.active_ms for each in self._open), default=self._active_ms)

    def close_idle(self) -> None:
        """Close the connections that were silent for `connections.max.idle.ms`, or whose frame takes too long.

        Called by a timer.
        """
        self._close_overdue(iter(list(self._open)))

    def _close_overdue(self, rest: Iterator[Managed]) -> None:
        """Where thousands are idle at one moment, so many are closed in a turn of the loop."""
        now_ms, closed = self._clock.monotonic_ms(), 0
        for connection in rest:
            why = connection.overdue(now_ms, self._max_idle_ms)
            if why == IDLE:
                _log.info("closing the connection of %s: %s", connection.session.client_host, why)
            elif why:
                self.tell_closed(connection.session.client_host, why)
            if why:
                connection.close()
                closed += 1
                if closed == POLLED_AT_ONCE:
                    asyncio.get_running_loop().call_soon(self._close_overdue, rest)
                    return
            elif self.keeps_much:
                connection.rest(now_ms)


def limits_of(config: BrokerConfig) -> Limits:
    """What the configuration says about the number of connections. ConfigError for what makes no sense."""
    listeners = {}
    for each in config.listeners:
        own = [config.own_of_listener(each, key) for key in ("max.connections", "max.connection.creation.rate")]
        listeners[each.name] = ListenerLimits(*(value if isinstance(value, int) else NO_LIMIT for value in own))
    overrides = _overrides(config.text("max.connections.per.ip.overrides") or "")
    per_ip = config.int("max.connections.per.ip")
    if not per_ip and not overrides:
        raise ConfigError("max.connections.per.ip is 0, so nobody could connect but max.connections.per.ip.overrides")
    return Limits(
        max_connections=config.int("max.connections"),
        max_connections_per_ip=per_ip,
        per_ip_overrides=overrides,
        creation_rate=config.int("max.connection.creation.rate"),
        listeners=listeners,
        windows=Windows(config.int("quota.window.num"), config.int("quota.window.size.seconds") * 1000),
        max_delay_ms=MAX_CONNECTION_DELAY_MS,
    )


def _overrides(text: str) -> dict[str, int]:
    """`address:number`, separated by commas. As in Kafka, a host name counts for the address that it has now."""
    found = {}
    for part in text.split(","):
        if not part.strip():
            continue
        host, colon, number = part.strip().rpartition(":")
        if not (colon and host and number.strip().isascii() and number.strip().isdigit()):
            raise ConfigError(f"max.connections.per.ip.overrides: {part.strip()!r} is not address:number")
        name = host.strip().strip("[]")
        try:
            address = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0]
        except OSError as fault:
            raise ConfigError(f"max.connections.per.ip.overrides: there is no {name}: {fault.strerror}") from None
        found[plain_address(str(address))] = int(number)
    return found

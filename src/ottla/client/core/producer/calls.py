"""Requests of the producer other than Produce: one at a time, in order, each repeated until it succeeds.

The requests of a transaction must not overtake each other, and two of them at once would save no time. So they wait in
a queue. Each attempt has its own ticket: an answer to an earlier attempt changes nothing. When the producer gives up on
a call, the shell has to give up on it, too (`GiveUp`). If it sent the request later, that could end the next
transaction, or fence this producer.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.base.rng import Rng
from ottla.client.core.backoff import short_backoff
from ottla.client.core.intents import (
    COORDINATOR_MOVED,
    AnyBroker,
    Ask,
    AskVersions,
    Coordinator,
    ForgetCoordinator,
    GiveUp,
    Message,
    RefreshMetadata,
)
from ottla.client.errors import ClientError, KafkaError, RequestTimeoutError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode


@dataclass(slots=True, eq=False)
class Call:
    """One request. Each attempt calls `make` for the message. With None as `api` it asks which versions there are."""

    what: str
    to: AnyBroker | Coordinator
    api: ApiKey | None
    make: Callable[[], Message]
    #: The error code of an answer, and what it is about.
    error_of: Callable[[Any], tuple[int, str]]
    done: Callable[[Any, float], None]
    failed: Callable[[ClientError, float], None]
    timeout_ms: float
    cap: int | None = None
    #: The lowest version that says what the message says.
    least: int | None = None
    #: The user's call that it is made for.
    user: Any = None
    deadline_s: float = 0.0


class CallTicket:
    """The ticket of one attempt of a call."""

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        self.call = call


class Calls:
    """The queue of calls. `timeout_ms` of a call begins when its turn comes."""

    def __init__(self, intend: Callable[[object], None], rng: Rng, request_timeout_ms: float) -> None:
        self._intend = intend
        self._rng = rng
        self._request_timeout_ms = request_timeout_ms
        self._queue: deque[Call] = deque()
        self._running: Call | None = None
        self._backoff = short_backoff(rng)
        #: The attempt whose answer has not come yet.
        self._asked: CallTicket | None = None
        self._retry_at_s: float | None = None
        self._last_error: ClientError | None = None
        #: Whether a request got no answer: it may still arrive, after later ones. Who makes sure that it does no harm
        #: sets this to False.
        self.has_stray = False

    @property
    def idle(self) -> bool:
        """Whether there is no call."""
        return self._running is None

    @property
    def wake_at_s(self) -> float | None:
        """When `woken` has something to do."""
        if self._running is None:
            return None
        return self._running.deadline_s if self._retry_at_s is None else min(self._retry_at_s, self._running.deadline_s)

    def add(self, call: Call, now_s: float) -> None:
        """Make this call when the calls before it are done."""
        self._queue.append(call)
        self._next(now_s)

    def drop(self, user: Any, now_s: float) -> None:
        """Give up on the requests of this call of the user. Neither `done` nor `failed` is called."""
        self._queue = deque(call for call in self._queue if call.user is not user)
        if self._running is not None and self._running.user is user:
            self._end()
            self._next(now_s)

    def answered(self, ticket: CallTicket, answer: Any, now_s: float) -> None:
        """An answer has come."""
        call = self._current(ticket)
        if call is None:
            return
        code, about = call.error_of(answer)
        if code == ErrorCode.NONE:
            self._end()
            call.done(answer, now_s)
            self._next(now_s)
            return
        if code in COORDINATOR_MOVED and isinstance(call.to, Coordinator):
            self._intend(ForgetCoordinator(call.to.kind, call.to.key))
        self._refused(call, KafkaError.of(code, about), now_s)

    def failed(self, ticket: CallTicket, error: ClientError, now_s: float) -> None:
        """No answer will come."""
        call = self._current(ticket)
        if call is None:
            return
        if not isinstance(error, KafkaError):
            self.has_stray |= call.api is not None
            if error.retriable:
                self._intend(RefreshMetadata())
        self._refused(call, error, now_s)

    def woken(self, now_s: float) -> None:
        """Repeat the call if it is due; give up on it if it has taken too long."""
        call = self._running
        if call is None:
            return
        if now_s >= call.deadline_s:
            why = f": {self._last_error}" if self._last_error is not None else ""
            error = RequestTimeoutError(f"{call.what} did not succeed within {call.timeout_ms:.0f} ms{why}")
            error.__cause__ = self._last_error
            self._fail(call, error, now_s)
        elif self._retry_at_s is not None and now_s >= self._retry_at_s:
            self._ask(call)

    # inside

    def _current(self, ticket: CallTicket) -> Call | None:
        """The call, if `ticket` is its present attempt, which is over now; None for an earlier attempt."""
        if ticket is not self._asked:
            return None
        self._asked = None
        return ticket.call

    def _next(self, now_s: float) -> None:
        if self._running is not None or not self._queue:
            return
        call = self._running = self._queue.popleft()
        call.deadline_s = now_s + call.timeout_ms / 1000
        self._backoff.succeeded()
        self._last_error = None
        self._ask(call)

    def _ask(self, call: Call) -> None:
        self._retry_at_s = None
        ticket = self._asked = CallTicket(call)
        if call.api is None:
            self._intend(AskVersions(ticket))
        else:
            message = call.make()
            ask = Ask(ticket, call.to, call.api, message, self._request_timeout_ms, call.cap, least=call.least)
            self._intend(ask)

    def _refused(self, call: Call, error: ClientError, now_s: float) -> None:
        if not error.retriable:
            self._fail(call, error, now_s)
            return
        self._last_error = error
        self._retry_at_s = now_s + self._backoff.next_ms() / 1000

    def _fail(self, call: Call, error: ClientError, now_s: float) -> None:
        self._end()
        call.failed(error, now_s)
        self._next(now_s)

    def _end(self) -> None:
        if self._asked is not None and self._asked.call.api is not None:
            self._intend(GiveUp(self._asked))
            self.has_stray = True
        self._running = self._asked = None
        self._retry_at_s = None

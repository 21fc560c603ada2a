"""Heartbeats of a member (SPEC G8): one on its way at a time, in the era of the membership."""

from collections.abc import Iterator
from itertools import repeat

from ottla.client.core import intents
from ottla.client.core.consumer.era import Call
from ottla.client.core.consumer.group.classic.member import ClassicMember
from ottla.client.core.consumer.shared import Shared
from ottla.client.errors import ClientError
from ottla.wire.apis import ApiKey
from ottla.wire.messages.heartbeat import HeartbeatRequest

_FIRST_PAUSE_MS = 50


class Heartbeats:
    """Sends heartbeats, and knows when the next one is due."""

    def __init__(self, shared: Shared, member: ClassicMember) -> None:
        self._shared = shared
        self._member = member
        self._pauses: Iterator[float] | None = None
        self._due_s: float | None = None
        #: When the coordinator last answered.
        self.heard_s = 0.0

    @property
    def are_sent(self) -> bool:
        """Whether this member sends heartbeats now."""
        return self._pauses is not None

    def start(self, now_s: float) -> None:
        """A generation has begun."""
        self._pauses = _pauses_s(self._shared.config.heartbeat_interval_ms)
        self.heard_s = now_s
        self._due_s = now_s + next(self._pauses)

    def stop(self) -> None:
        """The member joins or leaves, or the group goes on without it."""
        self._pauses = None
        self._due_s = None

    def advance(self, now_s: float) -> float | None:
        """Send a heartbeat if it is due. Returns when the next one is due."""
        if self._due_s is not None and now_s >= self._due_s:
            self._due_s = None  # until this one has been answered
            shared = self._shared
            timeout_ms = min(shared.config.request_timeout_ms, shared.config.session_timeout_ms)
            ticket = shared.eras.of_member(Call.HEARTBEAT)
            request = HeartbeatRequest(*self._member.metadata)
            shared.ask_coordinator(ticket, ApiKey.HEARTBEAT, request, timeout_ms=timeout_ms)
        return self._due_s

    def answered(self, now_s: float) -> None:
        """Let the next heartbeat follow after the pause, whatever the answer says."""
        self.heard_s = now_s
        if self._pauses is not None:
            self._due_s = now_s + next(self._pauses)

    def unanswered(self, error: ClientError, now_s: float) -> None:
        """Find the coordinator again, and send the next heartbeat soon."""
        self._shared.say(intents.DEBUG, "group %s: heartbeat failed: %s", self._shared.group_id, error)
        self._shared.find_coordinator()
        if self._pauses is not None:
            self._due_s = now_s + self._shared.config.retry_backoff_ms / 1000


def _pauses_s(interval_ms: int) -> Iterator[float]:
    """Pauses before the heartbeats of a new generation: short at first, then `heartbeat.interval.ms`.

    Other members often join right after a group was formed. A member that hears of it early does not let them wait.
    """
    pause_ms = _FIRST_PAUSE_MS
    while pause_ms < interval_ms:
        yield pause_ms / 1000
        pause_ms *= 2
    yield from repeat(interval_ms / 1000)

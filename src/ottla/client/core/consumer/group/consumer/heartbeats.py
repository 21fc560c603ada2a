"""Heartbeats of the consumer protocol (KIP-848): what they say, and when they are sent.

One is on its way at a time. The first one, and the first one after an error, says everything. Every other one says only
what has changed since the last one that was answered without an error. It is sent as soon as there is something to say,
else after the pause that the coordinator has named.

The coordinator gives a partition to another member as soon as a heartbeat says partitions and leaves this one out. So
one that says everything also names what the member has been given and has not taken over yet: the user may take it over
while the heartbeat is on its way.
"""

from collections.abc import Callable
from typing import NamedTuple

from ottla.client.core import intents
from ottla.client.core.consumer.era import Call
from ottla.client.core.consumer.group.consumer.member import ConsumerMember
from ottla.client.core.consumer.group.consumer.target import Held
from ottla.client.core.consumer.shared import Shared
from ottla.client.errors import ClientError
from ottla.wire.apis import ApiKey
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

#: Until the coordinator has named the pause. Apache Kafka's brokers name 5 s.
_FIRST_INTERVAL_S = 5.0
#: How many pauses to wait for an answer. A session lasts for nine by default, so there is time to try again.
_PATIENCE = 3
#: At least so long: our coordinator names a fraction of a second while the group settles, and may be busy then.
_LEAST_PATIENCE_S = 5.0
#: From this version on a heartbeat can hold a pattern.
FIRST_VERSION_WITH_PATTERN = 1


class Said(NamedTuple):
    """What the coordinator has to know of this member."""

    topics: tuple[str, ...]
    #: A pattern that the broker matches; None if there never was one, "" if there is none any more.
    pattern: str | None
    held: Held
    #: How often the member has reconciled a target: each time is acknowledged, even if it has what it had before.
    reconciled: int


class Heartbeats:
    """Sends heartbeats, and knows when the next one is due."""

    def __init__(self, shared: Shared, member: ConsumerMember, counted_on: Callable[[], Held]) -> None:
        """`counted_on`: what the member has or may take over, which a heartbeat that says everything names."""
        self._shared = shared
        self._member = member
        self._counted_on = counted_on
        #: See `Said`.
        self.reconciled = 0
        self._backoff = shared.backoff()
        self._interval_s = _FIRST_INTERVAL_S
        #: What the coordinator knows; None if that is not certain.
        self._known: Said | None = None
        #: What the heartbeat says that is on its way; None if none is.
        self._on_its_way: Said | None = None
        #: When to send the next one; None while the member sends none.
        self._due_s: float | None = None
        self._not_before_s = 0.0
        self._has_said_pattern = False
        #: A static member may take the place of one that subscribed to a pattern, which is the group's until somebody
        #: says "". Not so where brokers know no patterns.
        self._denies_patterns = member.group_instance_id is not None
        #: When the coordinator last answered.
        self.heard_s = 0.0

    @property
    def are_sent(self) -> bool:
        """Whether this member sends heartbeats now."""
        return self._due_s is not None

    def start(self, at_s: float) -> None:
        """The member joins."""
        self._known = self._on_its_way = None
        self._has_said_pattern = False
        self._due_s = self._not_before_s = at_s
        self.heard_s = at_s

    def stop(self) -> None:
        """The member leaves, or the group goes on without it."""
        self._known = self._on_its_way = self._due_s = None

    def advance(self, held: Held, now_s: float) -> float | None:
        """Send a heartbeat if it is due. Returns when the next one is due."""
        if self._due_s is None or self._on_its_way is not None:
            return None
        said = self._what_to_say(held)
        due_s = self._due_s if said == self._known else self._not_before_s
        if now_s < due_s:
            return due_s
        self._send(said)
        return None

    def _what_to_say(self, held: Held) -> Said:
        subscription = self._shared.subscription
        pattern = subscription.broker_pattern
        if pattern is None and (self._has_said_pattern or self._denies_patterns):
            pattern = ""
        topics = () if subscription.broker_pattern is not None else tuple(sorted(subscription.topics))
        return Said(topics, pattern, held, self.reconciled)

    def _send(self, said: Said) -> None:
        shared, member, known = self._shared, self._member, self._known
        self._on_its_way = said
        config = shared.config
        is_whole = known is None
        if known is None:
            held: Held | None = self._counted_on()
        else:
            held = said.held if known.reconciled != said.reconciled else None
        request = ConsumerGroupHeartbeatRequest(
            member.group_id,
            member.member_id,
            member.epoch,
            member.group_instance_id,
            config.client_rack or None if is_whole else None,
            config.max_poll_interval_ms if is_whole else -1,
            said.topics if known is None or known.topics != said.topics else None,
            said.pattern if known is None or known.pattern != said.pattern else None,
            config.group_remote_assignor if is_whole else None,
            None if held is None else held.for_the_wire(),
        )
        self._has_said_pattern = self._has_said_pattern or bool(said.pattern)
        timeout_ms = min(config.request_timeout_ms, max(_PATIENCE * self._interval_s, _LEAST_PATIENCE_S) * 1000)
        ticket = shared.eras.of_member(Call.CONSUMER_HEARTBEAT, said.reconciled)
        least = FIRST_VERSION_WITH_PATTERN if said.pattern is not None else None
        shared.ask_coordinator(ticket, ApiKey.CONSUMER_GROUP_HEARTBEAT, request, timeout_ms=timeout_ms, least=least)

    def answered(self, interval_ms: int, now_s: float) -> None:
        """The coordinator knows what was said. The next heartbeat follows after the pause that it has named."""
        self._backoff.succeeded()
        self._known, self._on_its_way = self._on_its_way, None
        if interval_ms > 0:
            self._interval_s = interval_ms / 1000
        self.heard_s = self._not_before_s = now_s
        self._due_s = now_s + self._interval_s

    def not_in_yet(self, now_s: float) -> None:
        """The coordinator has taken note of the member, and has no epoch for it yet: say everything after the pause."""
        self._known = self._on_its_way = None
        self._due_s = self._not_before_s = now_s + self._interval_s

    def refused(self, now_s: float) -> None:
        """The coordinator has refused a heartbeat, for now: say everything after a pause."""
        self._known = self._on_its_way = None
        self._due_s = self._not_before_s = now_s + self._backoff.next_ms() / 1000

    def unanswered(self, error: ClientError, now_s: float) -> None:
        """Find the coordinator again, and say everything after a pause."""
        self._shared.say(intents.DEBUG, "group %s: heartbeat failed: %s", self._shared.group_id, error)
        self._shared.find_coordinator()
        self.refused(now_s)

    def say_less(self, now_s: float) -> bool:
        """The coordinator is too old for what a heartbeat said. Returns whether another one can do without it."""
        if self._due_s is None or not self._denies_patterns or self._has_said_pattern:
            return False
        self._denies_patterns = False
        self._known = self._on_its_way = None
        self._due_s = self._not_before_s = now_s
        return True

    def acknowledge(self, now_s: float) -> None:
        """The member has reconciled its target: the next heartbeat says what it has, at once."""
        self.reconciled += 1
        self.soon(now_s)

    def soon(self, now_s: float) -> None:
        """The next heartbeat is due at once."""
        if self._due_s is not None:
            self._due_s = max(now_s, self._not_before_s)

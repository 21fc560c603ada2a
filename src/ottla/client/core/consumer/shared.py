"""What all parts of the consumer's core share: state, and the ways to send requests."""

from collections.abc import Callable
from typing import Any

from ottla.assign import Assignor
from ottla.base.rng import Rng
from ottla.client.config.consumer import ConsumerConfig
from ottla.client.core import intents
from ottla.client.core.backoff import Backoff
from ottla.client.core.consumer.connections import Connections
from ottla.client.core.consumer.era import Call, Eras, Ticket
from ottla.client.core.consumer.events import ConsumerEvents
from ottla.client.core.consumer.failures import Failures
from ottla.client.core.consumer.fetch_buffer import FetchBuffer
from ottla.client.core.consumer.intents import CallUser, WakePoll
from ottla.client.core.consumer.polling import PollWatch
from ottla.client.core.consumer.positions import Positions
from ottla.client.core.consumer.subscription import Subscription
from ottla.client.core.intents import Coordinator, CoordinatorKind
from ottla.client.core.metadata import ClusterSnapshot, old_metadata_s
from ottla.client.core.refreshing import Refreshing
from ottla.wire.apis import ApiKey

#: The ticket of a user's callback when no part of the core waits for its end.
NOBODY_WAITS = None
#: Requests that change the group. When the member has changed, they must not be sent any more: a late JoinGroup would
#: bring a member into the group that has left it, or fence the static member that this consumer is now.
_CHANGE_THE_GROUP = frozenset({Call.JOIN, Call.SYNC, Call.LEAVE, Call.CONSUMER_HEARTBEAT})


class Shared:
    """The state that several parts use, and methods that make intents."""

    def __init__(
        self,
        config: ConsumerConfig,
        assignors: list[Assignor],
        rng: Rng,
        intend: Callable[[object], None],
        say: Callable[..., None],
        member_id: str = "",
    ) -> None:
        """`member_id` is the name of this member, where members name themselves (KIP-848)."""
        self.config = config
        self.assignors = assignors
        self.rng = rng
        self.intend = intend
        self.say = say
        self.member_id = member_id
        self.subscription = Subscription(brokers_match=config.group_protocol == "consumer")
        self.positions = Positions()
        self.buffer = FetchBuffer()
        self.eras = Eras(self.positions)
        self.failures = Failures()
        self.events = ConsumerEvents()
        self.watch = PollWatch(config.max_poll_interval_ms)
        self.snapshot = ClusterSnapshot()
        self.connections = Connections()
        #: How many snapshots had another leader, or leader epoch, of a partition that is assigned.
        self.news = 0
        self._wants_metadata = False
        self._refreshing = Refreshing(self.backoff())
        #: Tickets of the requests that change the group and have no answer yet.
        self._changing: list[Ticket] = []

    @property
    def group_id(self) -> str:
        """`group.id`, for code that runs only if there is one."""
        return self.config.group_id or ""

    @property
    def old_metadata_s(self) -> float:
        """For how long metadata may be out of date, and a leader that was deposed may not know of it."""
        return old_metadata_s(self.config.request_timeout_ms)

    def backoff(self) -> Backoff:
        """A back-off from `retry.backoff.ms` to `retry.backoff.max.ms`."""
        return Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, self.rng)

    def fail(self, error: Exception) -> None:
        """Let poll raise `error`."""
        self.failures.add(error)
        self.wake_poll()

    def wake_poll(self) -> None:
        """Wake poll, so that it looks again."""
        self.intend(WakePoll())

    def call_user(self, ticket: Any, function: Callable[..., object], *arguments: Any) -> None:
        """Let the user's poll call `function`."""
        self.intend(CallUser(ticket, function, arguments))

    # asking

    def ask_coordinator(
        self,
        ticket: Ticket,
        api: ApiKey,
        message: tuple[Any, ...],
        *,
        timeout_ms: float | None = None,
        cap: int | None = None,
        least: int | None = None,
        channel: intents.Channel = intents.Channel.COORDINATOR,
    ) -> None:
        """Ask the group's coordinator."""
        if ticket.call in _CHANGE_THE_GROUP:
            self._changing.append(ticket)
        to = Coordinator(CoordinatorKind.GROUP, self.group_id, channel)
        timeout_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        self.intend(intents.Ask(ticket, to, api, message, timeout_ms, cap, least=least))

    def heard(self, ticket: Ticket) -> None:
        """A request was answered, or has failed."""
        self._changing = [other for other in self._changing if other is not ticket]

    def give_up_old(self) -> None:
        """Give up requests of an older era that change the group, so that none is sent after a newer one."""
        for ticket in [ticket for ticket in self._changing if not self.eras.holds(ticket)]:
            self.heard(ticket)
            self.intend(intents.GiveUp(ticket))

    def ask_leader(
        self, ticket: Ticket, broker: intents.Broker, api: ApiKey, message: tuple[Any, ...], timeout_ms: float
    ) -> None:
        """Send a request to a broker, as soon as it is connected."""
        for intent in self.connections.ask(broker, intents.Ask(ticket, broker, api, message, timeout_ms)):
            self.intend(intent)

    def find_coordinator(self) -> None:
        """Find the coordinator again before the next request: it may have moved."""
        self.intend(intents.ForgetCoordinator(CoordinatorKind.GROUP, self.group_id))

    # metadata

    def learn(self, snapshot: ClusterSnapshot) -> None:
        """There is a new snapshot of the cluster."""
        before, self.snapshot = self.snapshot, snapshot
        changed = [s for s in self.positions if before.leadership(s.tp) != snapshot.leadership(s.tp)]
        for state in changed:
            state.led_elsewhere()
        if changed:
            self.news += 1
            if self._refreshing.is_slow:
                self._refreshing.news()

    def refresh(self) -> None:
        """Ask for metadata soon. While it brings nothing new, the pauses between requests grow."""
        self._wants_metadata = True

    def advance(self, now_s: float) -> float | None:
        """Ask for metadata if that is due. Returns when it will be."""
        if not self._wants_metadata:
            return None
        due_s = self._refreshing.due_s(now_s)
        if now_s < due_s:
            return due_s
        self._wants_metadata = False
        self._refreshing.asked(now_s)
        self.intend(intents.RefreshMetadata())
        return None

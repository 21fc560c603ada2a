"""The consumer's core decides about membership, positions, fetches and commits. The shell carries that out.

The shell calls the events on one thread, each with the time as its last argument, and carries out the intents. All
answers come to `answered` or `failed`, with their tickets. There the rule of `era` is applied, and `_hear` and `_miss`
pass the answer on to the part that has asked. After every event `_advance` lets each part do what is due.

The user's thread (in the blocking consumer) may call `polled` and `can_take`, and take from `buffer`, while the loop
handles an event. That needs no lock: they look only at single numbers and at a deque.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from ottla.assign import Assignor
from ottla.base.rng import Rng
from ottla.base.types import TopicPartition
from ottla.client.config.consumer import ConsumerConfig
from ottla.client.core import intents
from ottla.client.core.consumer.answers import Next, meaning_of
from ottla.client.core.consumer.commits import Offsets, OnCommit
from ottla.client.core.consumer.era import Call, Ticket
from ottla.client.core.consumer.fetched import Decoding
from ottla.client.core.consumer.fetching import Fetching
from ottla.client.core.consumer.group.kinds import MEMBERSHIPS
from ottla.client.core.consumer.group.membership import Membership
from ottla.client.core.consumer.intents import FollowAllTopics
from ottla.client.core.consumer.member import GroupMember
from ottla.client.core.consumer.offset_reset import OffsetReset
from ottla.client.core.consumer.positions import UNKNOWN_EPOCH, PartitionState
from ottla.client.core.consumer.resets import Resets
from ottla.client.core.consumer.shared import Shared
from ottla.client.core.consumer.subscription import Kind
from ottla.client.core.consumer.validation import Validation
from ottla.client.core.intents import Channel, Core
from ottla.client.core.metadata import ClusterSnapshot
from ottla.client.errors import ClientError, KafkaError


class ConsumerCore(Core):
    """One consumer. Only `polled` and `can_take` may be called from a second thread."""

    def __init__(
        self,
        config: ConsumerConfig,
        assignors: list[Assignor],
        decoding: Decoding,
        rng: Rng,
        *,
        on_reset: Callable[[OffsetReset], object] | None = None,
        member_id: str = "",
    ) -> None:
        """The user's poll calls `on_reset` with every position that was replaced.

        `member_id`: the name of this consumer in its group, for `group.protocol=consumer`; nobody else may have it.
        """
        super().__init__()
        shared = self._shared = Shared(config, assignors, rng, self.intend, self.say, member_id)
        self.subscription = shared.subscription
        self.positions = shared.positions
        self.buffer = shared.buffer
        self.failures = shared.failures
        self.events = shared.events
        self.watch = shared.watch
        self.membership: Membership[Any] = MEMBERSHIPS[config.group_protocol](shared, self._retrack)
        self._commits = self.membership.commits
        self._resets = Resets(shared, self.member, on_reset)
        self._validation = Validation(shared, self._resets.happened, self._resets.replace)
        self._fetching = Fetching(shared, decoding, self._resets.out_of_range)
        self._tracked: frozenset[str] = frozenset()
        self._begun = False

    @property
    def member(self) -> GroupMember:
        """Who this consumer is in its group."""
        member: GroupMember = self.membership.member
        return member

    @property
    def state(self) -> Enum:
        """The state of the membership."""
        return self.membership.state

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are subscribed. If the broker matches the pattern, those of which this member has a part."""
        subscription = self.subscription
        return subscription.topics if subscription.broker_pattern is None else self.membership.topics

    @property
    def rejoin_reason(self) -> str | None:
        """Why the next poll joins again; None if it need not."""
        return self.membership.rejoin_reason

    def holds(self, ticket: Ticket) -> bool:
        """Whether an answer to `ticket` would still count."""
        return self._shared.eras.holds(ticket)

    # what the user's thread may ask

    def polled(self, now_s: float) -> int | None:
        """The user calls poll. If it comes too late, returns once how many ms it has taken; otherwise None."""
        return self.watch.polled(now_s)

    def can_take(self, now_s: float) -> bool:
        """Whether poll only has to return records."""
        due_s = self._commits.due_s
        return (
            bool(self.buffer)
            and not self.failures
            and not self.membership.is_pending
            and not self.watch.exceeded
            and (due_s is None or now_s < due_s)
        )

    @property
    def holds_back(self) -> bool:
        """Whether poll must not return records now, because their partitions may go to another member soon."""
        return self.membership.holds_back

    # what the user does

    def poll(self, now_s: float) -> None:
        """The user waits in poll, so nobody takes records."""
        self._resets.look_again()
        self.membership.poll(now_s)
        self._advance(now_s)

    def look(self, now_s: float) -> None:
        """The user has changed something, or waits for something: see what can be done."""
        self._resets.look_again()
        self._advance(now_s)

    def taken(self, now_s: float) -> None:
        """Records were taken: fetch more. Every poll does this, so it looks only at what can have changed."""
        self.watch.returned(now_s)
        if self._validation.waits_for_taker:
            self._advance(now_s)
            return
        times = (self.wake_at_s, self._fetching.taken(now_s), self._shared.advance(now_s))
        self.wake_at_s = min((at_s for at_s in times if at_s is not None), default=None)

    def subscribed(self, now_s: float) -> None:
        """The user has changed the subscription."""
        self._want()
        self.intend(FollowAllTopics(self.subscription.pattern is not None))
        self._retrack()
        self.intend(intents.RefreshMetadata())
        self.membership.resubscribed("the subscription changed")
        self._shared.wake_poll()
        self._advance(now_s)

    def assigned(self, partitions: Iterable[TopicPartition], now_s: float) -> None:
        """The user has assigned partitions by hand."""
        self.positions.assign(partitions)
        self._retrack()
        self.positions_chosen(now_s)

    def positions_chosen(self, now_s: float) -> None:
        """The user has set positions."""
        self.buffer.drop_void()
        self.failures.positions_chosen()
        self.look(now_s)

    def commit(self, call: object, offsets: Offsets | None, timeout_ms: float, now_s: float) -> None:
        """Commit `offsets`, or what poll has returned. `call` ends when that has succeeded or failed."""
        self._commits.sync(call, offsets, timeout_ms, now_s)
        self._advance(now_s)

    def commit_async(self, offsets: Offsets | None, callback: OnCommit | None, now_s: float) -> None:
        """Commit in the background, once; `callback` is called by a later poll."""
        self._commits.in_background(offsets, callback, now_s)
        self._advance(now_s)

    def called(self, ticket: Any, error: Exception | None, now_s: float) -> None:
        """poll has made the call of a `CallUser`. `error` is what it raised, or None."""
        if not self.membership.called(ticket, error, now_s) and error is not None:
            self._shared.fail(error)
        self._advance(now_s)

    def unsubscribe(self, call: object, now_s: float) -> None:
        """Read nothing: give up all partitions, and leave the group. Then `call` ends."""
        if self.subscription.by_group:
            self.membership.leave(call, "the consumer unsubscribed", now_s)
        else:
            self.positions.assign(())
            self.intend(intents.Finish(call))
        self._advance(now_s)

    def unsubscribed(self, now_s: float) -> None:
        """`unsubscribe` is over: forget the subscription."""
        self.subscription.clear()
        self._want()
        self.intend(FollowAllTopics(False))
        self._retrack()
        self._advance(now_s)

    def close(self, call: object, leave_group: bool, now_s: float) -> None:
        """End: commit, give up all partitions, and tell the coordinator only if `leave_group`. Then `call` ends."""
        if self.subscription.by_group:
            self.membership.leave(call, "the consumer was closed", now_s, tell=leave_group)
        else:
            self._commits.before_leaving(lambda now_s: self.intend(intents.Finish(call)), now_s)
        self._advance(now_s)

    def depart(self, call: object, now_s: float) -> None:
        """End a client that nobody closed: leave the group without a commit and without a callback."""
        if self.subscription.by_group:
            self.membership.depart(call, "the consumer was not closed", now_s)
        else:
            self.intend(intents.Finish(call))
        self._advance(now_s)

    # events of the shell

    def metadata(self, before: ClusterSnapshot, after: ClusterSnapshot, now_s: float) -> None:
        """There is a new snapshot of the cluster."""
        shared = self._shared
        shared.learn(after)
        if shared.subscription.match(after, exclude_internal=shared.config.exclude_internal_topics):
            self.membership.resubscribed("other topics match the pattern")
        for topic in shared.subscription.topics & after.topic_errors.keys():
            code = after.topic_errors[topic]
            if before.topic_errors.get(topic) != code and meaning_of(Call.LIST, code) is Next.FAIL:
                shared.fail(KafkaError.of(code, f"topic {topic}"))
        self.membership.metadata(now_s)
        self._validation.metadata()
        self._advance(now_s)

    def woken(self, now_s: float) -> None:
        """Something is due."""
        self._advance(now_s)

    def abandoned(self, call: object, now_s: float) -> None:
        """The caller has stopped waiting. A commit is not tried again; a member that was leaving still leaves."""
        self._commits.abandoned(call)
        self._advance(now_s)

    def connected(self, node_id: int, channel: Channel, now_s: float) -> None:
        """A connection that was asked for is open."""
        for ask in self._shared.connections.connected(node_id, channel):
            self.intend(ask)
        self._advance(now_s)

    def unreachable(self, node_id: int, channel: Channel, error: ClientError, now_s: float) -> None:
        """A connection that was asked for could not be opened."""
        for ask in self._shared.connections.unreachable(node_id, channel):
            self.failed(ask.ticket, error, now_s)
        if channel is Channel.FETCH:
            self._fetching.unreachable(node_id, error, now_s)
        self._advance(now_s)

    def disconnected(self, node_id: int, channel: Channel, now_s: float) -> None:
        """A connection has been lost or closed."""
        self._shared.connections.closed(node_id, channel)
        self._advance(now_s)

    # answers: the rule of `era`

    def answered(self, ticket: Ticket, answer: Any, now_s: float) -> None:
        """A request was answered."""
        self._shared.heard(ticket)
        if ticket.call is Call.FETCH:
            self._fetching.counted(ticket, answer)
        if ticket.call is Call.COMMIT:
            self._commits.answered(ticket, answer, now_s)
        elif self._shared.eras.holds(ticket):
            self._hear(ticket, answer, now_s)
        else:
            self.say(intents.DEBUG, "an answer to %s belongs to an older era and changes nothing", ticket.call.value)
        self._advance(now_s)

    def failed(self, ticket: Ticket, error: ClientError, now_s: float) -> None:
        """A request got no answer."""
        self._shared.heard(ticket)
        if ticket.call is Call.FETCH:
            self._fetching.lost(ticket, error, now_s)
        if ticket.call is Call.COMMIT:
            self._commits.unanswered(ticket, error, now_s)
        elif self._shared.eras.holds(ticket):
            self._miss(ticket, error, now_s)
        self._advance(now_s)

    def _hear(self, ticket: Ticket, answer: Any, now_s: float) -> None:
        if ticket.call is Call.FETCH:
            self._fetching.answered(ticket, answer, now_s)
            return
        states = self._shared.eras.current(ticket)
        match ticket.call:
            case Call.COMMITTED:
                self._resets.committed(states, answer, now_s)
            case Call.LIST:
                self._resets.listed(states, answer, now_s)
            case Call.CLOCK:
                self._resets.clock_read(states, answer, now_s)
            case Call.EPOCH_END:
                self._validation.answered(ticket, states, answer, now_s)
            case _:
                self.membership.answered(ticket, answer, now_s)

    def _miss(self, ticket: Ticket, error: ClientError, now_s: float) -> None:
        states = self._shared.eras.current(ticket)
        match ticket.call:
            case Call.FETCH:
                self._fetching.unanswered(error)
            case Call.COMMITTED | Call.LIST:
                self._resets.unanswered(states, error, now_s)
            case Call.EPOCH_END:
                self._validation.unanswered(states, error, now_s)
            case _:
                self.membership.unanswered(ticket, error, now_s)

    # inside

    def _advance(self, now_s: float) -> None:
        """Let each part do what is due. The order matters: what one part finds, a later part uses at once."""
        if not self._begun:
            self._begun = True
            self.watch.last_s = now_s
            self._commits.begin(now_s)
        if self.watch.in_poll:
            self._commits.automatic(now_s, is_stable=self.membership.is_stable or not self.subscription.by_group)
        self._commits.advance(now_s)  # the membership may wait for a commit that this settles
        times = [
            self.membership.advance(now_s),
            self._commits.advance(now_s),
            self._validation.advance(now_s),
            self._resets.advance(now_s),
            self._fetching.advance(now_s),
            self._shared.advance(now_s),
        ]
        self._shared.give_up_old()
        due_s = self._commits.due_s
        if due_s is not None and self.watch.in_poll and due_s > now_s:
            times.append(due_s)
        self.wake_at_s = min((at_s for at_s in times if at_s is not None), default=None)

    def _want(self) -> None:
        """What the user does not name any more is not read any more, even while the group knows nothing of it."""
        subscription = self.subscription
        self.positions.want(subscription.topics if subscription.kind is Kind.TOPICS else None)

    def _retrack(self) -> None:
        """Ask for metadata of the topics that are needed now, and of no others."""
        wanted = self.membership.topics | {state.tp.topic for state in self.positions}
        if self.subscription.pattern is None:
            wanted |= self.subscription.topics
        wanted -= {""}  # other members may subscribe to anything, even to an empty name
        if wanted - self._tracked:
            self.intend(intents.Track(wanted - self._tracked))
        if self._tracked - wanted:
            self.intend(intents.Untrack(self._tracked - wanted))
        self._tracked = wanted
        for state in self.positions:
            _know_leader(state, self._shared.snapshot)


def _know_leader(state: PartitionState, snapshot: ClusterSnapshot) -> None:
    """Note the leader epoch of a partition that has just come: a later one means that the leader has changed."""
    if state.leader_epoch == UNKNOWN_EPOCH:
        state.leader_epoch = snapshot.leader_epoch(state.tp)

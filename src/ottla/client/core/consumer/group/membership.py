"""The membership in a group, as the rest of the consumer's core sees it: the port that every kind of group fills.

`classic` and `consumer` (KIP-848) are the two kinds so far. Each is an automaton with a table of its own, beside the
other; neither knows the other. What is here is what they have in common: who waits until the member has left, what
happens when poll comes too late, and that partitions are given up and taken over in the user's poll.

An event from the coordinator, the user or the clock becomes an input of the automaton. The work of the new state is
done at once, or by `advance`, which runs after every event and sends what is due. While the user waits in poll, when
nobody takes records, `advance` also changes the assignment.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, TypeVar

from ottla.client.core import intents
from ottla.client.core.consumer.commits import Commits
from ottla.client.core.consumer.era import Call, Ticket
from ottla.client.core.consumer.events import Expelled, Rebalanced
from ottla.client.core.consumer.group.giving_up import GivingUp
from ottla.client.core.consumer.group.leavers import Leavers
from ottla.client.core.consumer.group.taking import Taking
from ottla.client.core.consumer.member import GroupMember
from ottla.client.core.consumer.shared import Shared
from ottla.client.errors import ClientError, FencedInstanceIdError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

LEAVE_TIMEOUT_S = 5.0
MemberT = TypeVar("MemberT", bound=GroupMember)


class Membership(ABC, Generic[MemberT]):
    """One consumer's membership."""

    def __init__(self, shared: Shared, member: MemberT, retrack: Callable[[], None]) -> None:
        """`retrack` is called when metadata of other topics may be needed."""
        self._shared = shared
        self.member = member
        self.commits = Commits(shared, member, lambda code, now_s: self.heard(Call.COMMIT, code, now_s))
        self._retrack = retrack
        self._giving_up = GivingUp(shared, member, self.commits, self._given_up)
        self._taking = Taking(shared, retrack, self._taken)
        self._leavers = Leavers(shared)
        #: Why the next poll has to join; None when it need not.
        self.rejoin_reason: str | None = "the consumer is new"
        #: Why this member must not join again.
        self._fenced: FencedInstanceIdError | None = None
        #: While the member leaves: until when to wait for the coordinator's answer.
        self._leave_until_s: float | None = None
        #: Since when the assignment is about to change.
        self._changing_since_s: float | None = None

    # what `consumer.events()` tells

    def _changes(self, now_s: float) -> None:
        """A rebalance begins; or one that has begun goes on."""
        if self._changing_since_s is None:
            self._changing_since_s = now_s

    def _has_changed(self, now_s: float) -> None:
        """The new assignment is taken over."""
        since_s, self._changing_since_s = self._changing_since_s, None
        if since_s is not None and self.member.in_generation:
            self._shared.events.add(Rebalanced(self.member.generation_id, now_s - since_s))

    def _was_expelled(self, reason: str) -> None:
        self._shared.events.add(Expelled(reason))

    # what the core asks

    @property
    @abstractmethod
    def state(self) -> Enum:
        """The state of the automaton."""

    @property
    @abstractmethod
    def is_out(self) -> bool:
        """Whether this consumer is not in its group, and does not join or leave it either."""

    @property
    @abstractmethod
    def is_stable(self) -> bool:
        """Whether this is a member with an assignment that does not change now."""

    @property
    @abstractmethod
    def is_pending(self) -> bool:
        """Whether poll has to do more than return records."""

    @property
    @abstractmethod
    def holds_back(self) -> bool:
        """Whether poll must not return records now, because their partitions may go to another member soon."""

    @property
    @abstractmethod
    def topics(self) -> frozenset[str]:
        """Topics whose metadata the membership needs, beside those that are subscribed or assigned."""

    # events

    @abstractmethod
    def poll(self, now_s: float) -> None:
        """The user calls poll: begin what has to begin there."""

    @abstractmethod
    def resubscribed(self, reason: str) -> None:
        """The user wants other topics, or other topics match the user's pattern."""

    @abstractmethod
    def metadata(self, now_s: float) -> None:
        """There is a new snapshot of the cluster."""

    @abstractmethod
    def answered(self, ticket: Ticket, answer: Any, now_s: float) -> None:
        """A request of the membership was answered, in its era."""

    @abstractmethod
    def unanswered(self, ticket: Ticket, error: ClientError, now_s: float) -> None:
        """A request of the membership got no answer, in its era."""

    @abstractmethod
    def heard(self, call: Call, code: ErrorCode, now_s: float) -> bool:
        """A heartbeat or a commit was refused. Returns whether that says anything about the membership as it is."""

    def called(self, ticket: object, error: Exception | None, now_s: float) -> bool:
        """A callback has run. Returns whether it was one of the membership's."""
        return self._giving_up.called(ticket, error, now_s) or self._taking.called(ticket, error, now_s)

    # what a kind of group has to add

    @abstractmethod
    def _leaves(self) -> None:
        """The user leaves: give this to the automaton."""

    @abstractmethod
    def _departs(self) -> None:
        """The member leaves at once: give this to the automaton."""

    @abstractmethod
    def _has_left(self) -> None:
        """The member has left: give this to the automaton."""

    @abstractmethod
    def _send_leave(self, reason: str, now_s: float, *, tell: bool, even_static: bool = False) -> None:
        """Forget the membership, and tell the coordinator if that is due; without that the member has left."""

    @property
    @abstractmethod
    def _is_counted_on(self) -> bool:
        """Whether the coordinator counts on this member: it sends heartbeats, and poll must come in time."""

    @abstractmethod
    def _change_assignment(self, now_s: float) -> None:
        """Go on with giving up and taking over. Nobody takes records now."""

    @abstractmethod
    def _given_up(self, error: Exception | None, now_s: float) -> None:
        """The partitions that had to go have been given up; the user's callback has raised `error`, or nothing."""

    @abstractmethod
    def _taken(self, error: Exception | None, now_s: float) -> None:
        """The new assignment has been taken over; the user's callback has raised `error`, or nothing."""

    @abstractmethod
    def _work(self, now_s: float) -> list[float | None]:
        """Send what is due. Returns when to look again."""

    # leaving

    def leave(self, call: object, reason: str, now_s: float, *, tell: bool = True) -> None:
        """Give up all partitions, then leave, and `tell` the coordinator (SPEC G10, G15)."""
        self._leavers.add(call, reason, told=tell)
        self._taking.stop()
        self._leave_until_s = None
        self._leaves()
        self._giving_up.begin(self._shared.positions.assignment, now_s, leaving=True)

    def depart(self, call: object, reason: str, now_s: float) -> None:
        """Leave at once, without a commit and without a callback."""
        self._leavers.add(call, reason, told=True)
        self._giving_up.stop()
        self._taking.stop()
        self._depart(reason, now_s)

    def _depart(self, reason: str, now_s: float, *, even_static: bool = False) -> None:
        self._departs()
        self._send_leave(reason, now_s, tell=True, even_static=even_static)

    def _ask_to_leave(self, api: ApiKey, request: tuple[Any, ...], now_s: float) -> None:
        """Tell the coordinator. The era is that of a member who has gone, so nothing else that is asked counts."""
        self._leave_until_s = now_s + LEAVE_TIMEOUT_S
        ticket = self._shared.eras.of_member(Call.LEAVE)
        self._shared.ask_coordinator(ticket, api, request, timeout_ms=LEAVE_TIMEOUT_S * 1000)

    def left(self) -> None:
        """The coordinator has answered that the member has left, or will not answer."""
        self._leave_until_s = None
        self._has_left()

    def _settle_leavers(self) -> None:
        if self._leavers and self.is_out and not self._is_calling:
            self._shared.positions.assign(())
            self._leavers.settle()

    @property
    def _is_calling(self) -> bool:
        return self._giving_up.is_calling or self._taking.is_calling

    # time

    def advance(self, now_s: float) -> float | None:
        """Do what is due. Returns when to look again."""
        watch = self._shared.watch
        if self._leave_until_s is not None and now_s >= self._leave_until_s:
            self.left()
        deadline_s = watch.deadline_s(now_s)
        if self._is_counted_on and not self._leavers and now_s >= deadline_s:
            self._poll_came_too_late(now_s, deadline_s)
        if watch.in_poll or self._leavers:
            self._change_assignment(now_s)
        times = self._work(now_s)
        self._settle_leavers()
        if self._is_counted_on and not self._leavers:
            times.append(watch.deadline_s(now_s))
        times.append(self._leave_until_s)
        return min((at_s for at_s in times if at_s is not None), default=None)

    def _poll_came_too_late(self, now_s: float, deadline_s: float) -> None:
        """The user has not polled for too long: leave, so that others get the partitions (SPEC G9)."""
        shared = self._shared
        reason = f"no poll() within max.poll.interval.ms ({shared.config.max_poll_interval_ms})"
        shared.watch.exceed(now_s, deadline_s)
        self._was_expelled(reason)
        shared.say(intents.WARNING, "group %s: %s, so the consumer leaves the group", shared.group_id, reason)
        self._depart(reason, now_s)
        shared.wake_poll()

    # what poll does in every kind of group

    @property
    def _poll_is_needed(self) -> bool:
        """Whether the user's poll can begin something now."""
        shared = self._shared
        return not (not shared.subscription.by_group or shared.watch.exceeded or self._leavers or self._is_calling)

    def _raise_fenced(self, now_s: float) -> None:
        """Another consumer uses this one's `group.instance.id`: poll raises that, and what is left is lost."""
        if self._fenced is not None:
            self._shared.fail(self._fenced)
        if not self._giving_up.is_running:
            self._giving_up.begin(self._shared.positions.assignment, now_s)

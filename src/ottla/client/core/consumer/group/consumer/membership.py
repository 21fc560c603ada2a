"""This consumer as a member of a group that speaks the consumer protocol. It carries out the automaton of `states`.

The coordinator divides the partitions; a heartbeat's answer brings the target (`target`), and the next heartbeat says
what the member has made of it (`heartbeats`). A newer target that comes while the user's callbacks run waits until they
have run and the coordinator has heard of it (KIP-848).
"""

from collections.abc import Callable
from typing import Any

from ottla.client.core import intents
from ottla.client.core.consumer.answers import Next, meaning_of
from ottla.client.core.consumer.era import Call, Ticket
from ottla.client.core.consumer.group.consumer.heartbeats import Heartbeats
from ottla.client.core.consumer.group.consumer.member import LEAVE_EPOCH, ConsumerMember
from ottla.client.core.consumer.group.consumer.refusals import explained, refusal
from ottla.client.core.consumer.group.consumer.states import Input, State, next_state
from ottla.client.core.consumer.group.consumer.target import NOTHING, ByTopicId, Held, named, read_target
from ottla.client.core.consumer.group.membership import LEAVE_TIMEOUT_S, Membership
from ottla.client.core.consumer.shared import Shared
from ottla.client.errors import ClientError, FencedInstanceIdError, UnsupportedVersionError, code_of
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

#: In these states poll has something to do, and returns no records.
_OF_POLL = frozenset(
    {State.OUT, State.GIVING_UP, State.YIELDING, State.TAKING, State.RETURNING, State.LEAVING, State.FENCED}
)
#: In these states the member looks whether the target is what it has.
_LOOKING = frozenset({State.JOINING, State.RESOLVING, State.STABLE})
#: In these states the member has an assignment that stays for now.
_SETTLED = frozenset({State.RESOLVING, State.ACKNOWLEDGING, State.STABLE})


class ConsumerMembership(Membership[ConsumerMember]):
    """The automaton, and what its states need."""

    def __init__(self, shared: Shared, retrack: Callable[[], None]) -> None:
        super().__init__(shared, ConsumerMember(shared), retrack)
        self._heartbeats = Heartbeats(shared, self.member, self._counted_on)
        self._state = State.OUT
        self._backoff = shared.backoff()
        #: The earliest time to join after an expulsion.
        self._not_before_s = 0.0
        #: The last target; None until the first one has come.
        self._target: ByTopicId | None = None
        #: What the member has, as the next heartbeat says it; None until the user has been told of the first target.
        self._held: Held | None = None
        #: What it is about to have; whether the work of YIELDING, and that of TAKING, has begun.
        self._next = NOTHING
        self._yields = self._takes = False
        #: Topics of the target whose names are not known, and when to ask for them.
        self._unknown: frozenset[bytes] = frozenset()
        self._ask_at_s = 0.0
        self._asking = shared.backoff()

    # what the core asks

    @property
    def state(self) -> State:
        """The state of the automaton."""
        return self._state

    @property
    def is_out(self) -> bool:
        return self._state is State.OUT

    @property
    def is_stable(self) -> bool:
        return self._state in _SETTLED

    @property
    def is_pending(self) -> bool:
        return self._state in _OF_POLL and self._shared.subscription.by_group

    @property
    def holds_back(self) -> bool:
        return self.is_pending

    @property
    def topics(self) -> frozenset[str]:
        """Of the target: if the broker matches the pattern, only the coordinator knows them."""
        return named(self._target or {}, self._shared.snapshot, self._held or NOTHING).names

    def poll(self, now_s: float) -> None:
        """Join if this is no member."""
        shared = self._shared
        if not self._poll_is_needed:
            return
        if self._state is State.FENCED:
            self._raise_fenced(now_s)
        elif self._state is State.OUT:
            self._move(Input.JOIN)
            shared.say(intents.INFO, "group %s: joining (%s)", shared.group_id, self.rejoin_reason)
            self._giving_up.begin(shared.positions.assignment, now_s)

    def resubscribed(self, reason: str) -> None:
        """The next heartbeat says so, at once."""
        self._shared.say(intents.DEBUG, "group %s: %s", self._shared.group_id, reason)

    def metadata(self, now_s: float) -> None:
        if self._state in _LOOKING:
            self._look(now_s)

    # answers

    def answered(self, ticket: Ticket, answer: Any, now_s: float) -> None:
        match ticket.call:
            case Call.CONSUMER_HEARTBEAT:
                self._beaten(ticket, answer, now_s)
            case Call.LEAVE if self._state is State.LEAVING:
                self.left()

    def unanswered(self, ticket: Ticket, error: ClientError, now_s: float) -> None:
        match ticket.call:
            case Call.CONSUMER_HEARTBEAT if error.retriable:
                self._heartbeats.unanswered(error, now_s)
            case Call.CONSUMER_HEARTBEAT:
                if not (isinstance(error, UnsupportedVersionError) and self._heartbeats.say_less(now_s)):
                    self._refused(explained(error))
            case Call.LEAVE if self._state is State.LEAVING:
                self.left()

    def _beaten(self, ticket: Ticket, answer: ConsumerGroupHeartbeatResponse, now_s: float) -> None:
        code = code_of(answer.error_code)
        if code is not ErrorCode.NONE:
            self._heartbeats.refused(now_s)
            self._not_taken(code, answer.error_message, now_s)
            return
        if answer.member_epoch <= 0:
            self._heartbeats.not_in_yet(now_s)
            return
        self._heartbeats.answered(answer.heartbeat_interval_ms, now_s)
        self.member.at_epoch(answer.member_epoch)
        self._backoff.succeeded()
        self._not_before_s = 0.0
        self.rejoin_reason = None
        if self._state is State.RETURNING:
            return
        if answer.assignment is not None:
            self._target = read_target(answer.assignment.topic_partitions)
        if self._state is State.ACKNOWLEDGING and ticket.about == self._heartbeats.reconciled:
            self._move(Input.ACKNOWLEDGED)
        if self._state in _LOOKING:
            self._look(now_s)

    def _not_taken(self, code: ErrorCode, message: str | None, now_s: float) -> None:
        """The coordinator has refused a heartbeat."""
        shared = self._shared
        match meaning_of(Call.CONSUMER_HEARTBEAT, code):
            case Next.FIND_COORDINATOR:
                shared.find_coordinator()
            case Next.START_OVER:
                self._expelled(Call.CONSUMER_HEARTBEAT, code, now_s)
            case Next.FAIL if code is ErrorCode.GROUP_ID_NOT_FOUND and self.member.in_generation:
                # it was expelled, and members of the classic protocol have made the group anew: whether they let it
                # join again, the answer to epoch 0 says
                self._expelled(Call.CONSUMER_HEARTBEAT, code, now_s)
            case Next.COMPLAIN:
                shared.fail(refusal(code, message, shared))
            case Next.FAIL:
                self._refused(refusal(code, message, shared))

    def heard(self, call: Call, code: ErrorCode, now_s: float) -> bool:
        match meaning_of(call, code):
            case Next.FIND_COORDINATOR:
                self._shared.find_coordinator()
            case Next.LEARN_EPOCH:
                self._heartbeats.soon(now_s)
            case Next.START_OVER if self._state is State.JOINING:
                return False
            case Next.START_OVER:
                self._expelled(call, code, now_s)
        return True

    # the target

    def _look(self, now_s: float) -> None:
        """See whether the target is what the member has, and begin to reconcile it if not."""
        if self._target is None:
            return
        known = named(self._target, self._shared.snapshot, self._held or NOTHING)
        unknown = self._target.keys() - known.topics.keys()
        if unknown != self._unknown:
            self._unknown, self._ask_at_s = frozenset(unknown), now_s
            self._asking.succeeded()
        self._retrack()
        is_first = self._held is None and (known.topics or not unknown)
        if is_first or known != (self._held or NOTHING):
            self._yields = self._takes = False
            self._move(Input.TARGET)
            self._changes(now_s)
            self._shared.wake_poll()
        elif unknown:
            self._move(Input.UNKNOWN_TOPICS)
        else:
            if self._state is State.RESOLVING:  # what it waited for has gone to others, who wait for this word
                self._heartbeats.acknowledge(now_s)
            self._move(Input.RECONCILED)

    def _counted_on(self) -> Held:
        """What this member has, is about to take over, or has been given: no other member may have it yet."""
        if self._target is None:
            return NOTHING
        return (self._held or NOTHING).joined_with(self._next.by_topic_id).joined_with(self._target)

    def _ask_for_names(self, now_s: float) -> float | None:
        """Ask for the names of unknown topics, again and again: a broker may hear of a topic late."""
        if not self._unknown or not self._heartbeats.are_sent:
            return None
        if now_s >= self._ask_at_s:
            self._ask_at_s = now_s + self._asking.next_ms() / 1000
            self._shared.intend(intents.LearnTopics(self._unknown))
        return self._ask_at_s

    # giving up and taking, in the user's poll

    def _change_assignment(self, now_s: float) -> None:
        shared = self._shared
        if self._state is State.YIELDING and not self._yields:
            self._yields = True
            before = self._held or NOTHING
            self._next = named(self._target or {}, shared.snapshot, before)
            going = shared.positions.assignment - self._next.kept(before) if self.member.in_generation else ()
            self._giving_up.begin(going, now_s)
        self._giving_up.advance(now_s)
        if self._state is State.TAKING and not self._takes:
            self._takes = True
            assigned = self._next.partitions
            text = "group %s: epoch %d, %d partitions"
            shared.say(intents.INFO, text, shared.group_id, self.member.generation_id, len(assigned))
            self._taking.begin(assigned, now_s)

    def _given_up(self, error: Exception | None, now_s: float) -> None:
        self._leavers.callback_raised(error)
        before = self._state
        self._move(Input.CUT_OFF if before is State.YIELDING and not self.member.in_generation else Input.GIVEN_UP)
        if self._state is before:
            return
        if self._state is State.JOINING:
            self._join(now_s)
        elif self._state is State.LEAVING:
            self._send_leave(self._leavers.reason, now_s, tell=self._leavers.told)

    def _taken(self, error: Exception | None, now_s: float) -> None:
        self._leavers.callback_raised(error)
        is_member = self.member.in_generation
        self._move(Input.TAKEN if is_member or self._state is not State.TAKING else Input.CUT_OFF)
        if self._state is State.ACKNOWLEDGING:
            self._held = self._next
            self._heartbeats.acknowledge(now_s)
        self._has_changed(now_s)
        self._shared.wake_poll()

    # joining, leaving

    def _join(self, now_s: float) -> None:
        self._next = NOTHING
        self._heartbeats.start(max(now_s, self._not_before_s))

    def _leaves(self) -> None:
        self._move(Input.LEAVE)

    def _departs(self) -> None:
        self._move(Input.DEPART)

    def _has_left(self) -> None:
        self._move(Input.LEFT)

    def _send_leave(self, reason: str, now_s: float, *, tell: bool, even_static: bool = False) -> None:
        member = self.member
        is_static = member.group_instance_id is not None
        # A static member says that it goes even when it stays in the group: it will be back (KIP-1092).
        told = self._heartbeats.are_sent and (tell or is_static)
        request = self._leave_request(LEAVE_EPOCH if even_static else member.leave_epoch)
        self._forget(reason)
        if told:
            self._ask_to_leave(ApiKey.CONSUMER_GROUP_HEARTBEAT, request, now_s)
        else:
            self._move(Input.LEFT)

    def _leave_request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        member = self.member
        return ConsumerGroupHeartbeatRequest(
            member.group_id, member.member_id, epoch, member.group_instance_id, topic_partitions=None
        )

    # time

    @property
    def _is_counted_on(self) -> bool:
        return self._heartbeats.are_sent

    def _work(self, now_s: float) -> list[float | None]:
        return [self._heartbeats.advance(self._held or NOTHING, now_s), self._ask_for_names(now_s)]

    # the end of a membership

    def _expelled(self, call: Call, code: ErrorCode, now_s: float) -> None:
        before, shared = self._state, self._shared
        self._move(Input.EXPELLED)
        text = "group %s: expelled (%s was answered %s); the last answer to a heartbeat before came %.1f s ago"
        shared.say(intents.INFO, text, shared.group_id, call.value, code.name, now_s - self._heartbeats.heard_s)
        self._not_before_s = now_s + self._backoff.next_ms() / 1000
        self._was_expelled(f"{call.value} was answered {code.name}")
        self._forget(f"{call.value} was answered {code.name}")
        if before is State.JOINING:
            self._join_anew(now_s)
        shared.wake_poll()

    def _join_anew(self, now_s: float) -> None:
        """The coordinator has this member already, in a later epoch, whose answer was lost: leave, then join again.

        Who answers so to epoch 0 would go on until the session of the member that it knows is over. Apache Kafka 4.3
        does not: it takes epoch 0 of every dynamic member that it knows.
        """
        ticket = self._shared.eras.of_member(Call.LEAVE)
        request = self._leave_request(LEAVE_EPOCH)
        api, timeout_ms = ApiKey.CONSUMER_GROUP_HEARTBEAT, LEAVE_TIMEOUT_S * 1000
        self._shared.ask_coordinator(ticket, api, request, timeout_ms=timeout_ms)
        self._join(now_s)

    def _refused(self, error: ClientError) -> None:
        """The error is final: poll raises it."""
        if isinstance(error, FencedInstanceIdError):
            self._fenced = error
            self._was_expelled(str(error))
            self._move(Input.FENCED)
        else:
            self._move(Input.REFUSED)
        self._forget("the last attempt to join failed")
        self._shared.fail(error)

    def _forget(self, reason: str) -> None:
        """The group goes on without this member."""
        self.member.forgotten()
        self._heartbeats.stop()
        self._target = self._held = None
        self._unknown = frozenset()
        self.rejoin_reason = reason

    def _move(self, what: Input) -> bool:
        """Give `what` to the automaton. Returns whether the state takes it."""
        target = next_state(self._state, what)
        if target is None:
            self._shared.say(intents.DEBUG, "group %s: %s is refused in %s", self._shared.group_id, what, self._state)
            return False
        if target is State.OUT and self._state is not target:
            self._shared.wake_poll()  # the next join is poll's to begin
        self._state = target
        return True

"""This consumer as a member of a classic group. It carries out the automaton of `states` (SPEC G3–G15)."""

from collections.abc import Callable
from typing import Any

from ottla.assign import Assignor, RebalanceProtocol
from ottla.base.types import TopicPartition
from ottla.client.core import intents
from ottla.client.core.consumer.answers import Next, meaning_of
from ottla.client.core.consumer.era import Call, Ticket
from ottla.client.core.consumer.group.classic.group_protocol import (
    Division,
    hand_over,
    read_assignment,
    read_subscriptions,
    rebalance_protocol,
)
from ottla.client.core.consumer.group.classic.heartbeats import Heartbeats
from ottla.client.core.consumer.group.classic.joining import (
    counts_assigned_by,
    join_request,
    leave_request,
    rebalance_timeout_ms,
    sync_request,
)
from ottla.client.core.consumer.group.classic.leading import Leading
from ottla.client.core.consumer.group.classic.member import ClassicMember
from ottla.client.core.consumer.group.classic.refusals import refusal
from ottla.client.core.consumer.group.classic.states import Input, State, next_state
from ottla.client.core.consumer.group.membership import Membership
from ottla.client.core.consumer.member import NO_GENERATION
from ottla.client.core.consumer.shared import Shared
from ottla.client.errors import AssignorError, ClientError, FencedInstanceIdError, KafkaError, code_of
from ottla.wire.apis import ApiKey
from ottla.wire.codec import WireError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupRequestAssignment, SyncGroupResponse

#: In these states the member joins the next generation: answers about the generation before mean nothing.
_ENTERING = frozenset({State.JOINING, State.LEADING, State.SYNCING})


class ClassicMembership(Membership[ClassicMember]):
    """The automaton, and what its states need."""

    def __init__(self, shared: Shared, retrack: Callable[[], None]) -> None:
        super().__init__(shared, ClassicMember(shared), retrack)
        self._heartbeats = Heartbeats(shared, self.member)
        self._protocol = rebalance_protocol(shared.assignors)
        self._backoff = shared.backoff()
        self._leading = Leading()
        self._state = State.OUT
        #: JOINING: when to send JoinGroup, None when it was sent; and the earliest time for it after an expulsion.
        self._join_at_s: float | None = None
        self._not_before_s = 0.0
        self._assignor: Assignor | None = None
        #: The assignment from SyncGroup; whether the work of YIELDING, and that of TAKING, has begun.
        self._assigned: frozenset[TopicPartition] = frozenset()
        #: The generation of that.
        self._assigned_in = NO_GENERATION
        self._yields = self._takes = False

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
        return self._state is State.STABLE

    @property
    def is_pending(self) -> bool:
        pending = self._state is not State.STABLE or self.rejoin_reason is not None
        return pending and self._shared.subscription.by_group

    @property
    def holds_back(self) -> bool:
        if not self._shared.subscription.by_group or self._state is State.STABLE:
            return False
        return self._protocol is RebalanceProtocol.EAGER or self._state not in _ENTERING

    @property
    def topics(self) -> frozenset[str]:
        """Of all members, if this one leads."""
        return self._leading.topics

    def poll(self, now_s: float) -> None:
        """Begin a rebalance if one is needed."""
        shared = self._shared
        if not self._poll_is_needed:
            return
        if self._state is State.FENCED:
            self._raise_fenced(now_s)
        elif self._state is State.OUT or (self._state is State.STABLE and self.rejoin_reason is not None):
            self._move(Input.REBALANCE)
            self._changes(now_s)
            shared.say(intents.INFO, "group %s: joining (%s)", shared.group_id, self.rejoin_reason)
            self._give_up_before_joining(now_s)

    def resubscribed(self, reason: str) -> None:
        self.rejoin(reason)

    def rejoin(self, reason: str) -> None:
        """Let the next poll join again, for this reason."""
        if self.rejoin_reason is None:
            self.rejoin_reason = reason
            self._shared.wake_poll()

    # answers

    def answered(self, ticket: Ticket, answer: Any, now_s: float) -> None:
        match ticket.call:
            case Call.HEARTBEAT:
                self._beaten(answer, now_s)
            case Call.JOIN:
                self._joined(answer, now_s)
            case Call.SYNC:
                self._synced(answer, now_s)
            case Call.MATCH if self._state is State.JOINING:  # now the topics that match the pattern are known
                self._join(now_s)
            case Call.LEAD:
                self._lead(now_s)
            case Call.DIVIDE:
                self._divided(answer, now_s)
            case Call.DESCRIBE:
                self._described(answer, now_s)
            case Call.LEAVE:
                self.left()

    def unanswered(self, ticket: Ticket, error: ClientError, now_s: float) -> None:
        match ticket.call:
            case Call.HEARTBEAT:
                self._heartbeats.unanswered(error, now_s)
            case Call.JOIN | Call.SYNC | Call.MATCH | Call.LEAD:
                self._not_joined(ticket, error, now_s)
            case Call.DIVIDE if self._state is State.LEADING:
                self._broken(error, now_s)
            case Call.LEAVE:
                self.left()

    # leaving

    def _leaves(self) -> None:
        self._move(Input.LEAVE)

    def _departs(self) -> None:
        self._move(Input.DEPART)

    def _has_left(self) -> None:
        self._move(Input.LEFT)

    def _send_leave(self, reason: str, now_s: float, *, tell: bool, even_static: bool = False) -> None:
        member = self.member
        told = tell and bool(member.member_id) and (member.group_instance_id is None or even_static)
        request = leave_request(member, reason)
        # The group still counts on a static member. If that member joins again with its id, it can want other topics.
        # Without the id it would count as restarted and get its old assignment, of which it may read only a part.
        self._forget(reason, keep_member_id=not told)
        if told:
            self._ask_to_leave(ApiKey.LEAVE_GROUP, request, now_s)
        else:
            self._move(Input.LEFT)

    # time

    @property
    def _is_counted_on(self) -> bool:
        return self._heartbeats.are_sent

    def _work(self, now_s: float) -> list[float | None]:
        if self._state is State.JOINING and self._join_at_s is not None and now_s >= self._join_at_s:
            self._join_at_s = None
            self._match_or_join(now_s)
        times = [self._heartbeats.advance(now_s)]
        if self._state is State.JOINING:
            times.append(self._join_at_s)
        if self._state is State.STABLE:
            if self._leading.owners_are_late(now_s):
                self.rejoin("partitions were held back for a member, and it has not given them up")
            times.append(self._leading.owners_have_until_s)
        return times

    # giving up and taking, in the user's poll

    def _give_up_before_joining(self, now_s: float) -> None:
        owned = self._shared.positions.assignment
        if self.member.in_generation and self._protocol is RebalanceProtocol.COOPERATIVE:
            owned = frozenset(tp for tp in owned if tp.topic not in self._shared.subscription.topics)
        self._giving_up.begin(owned, now_s)

    def _change_assignment(self, now_s: float) -> None:
        if self._state is State.YIELDING and not self._yields:
            self._yields = True
            # the user may want other topics by now; a static member gets its assignment from before its restart
            wanted = self._shared.subscription.topics
            self._assigned = frozenset(tp for tp in self._assigned if tp.topic in wanted)
            going = self._shared.positions.assignment - self._assigned
            if going:
                self.rejoin("partitions were given up, and other members wait for them")
            self._giving_up.begin(going, now_s)
        self._giving_up.advance(now_s)
        if self._state is State.TAKING and not self._takes:
            self._takes = True
            shared, assigned = self._shared, self._assigned
            text = "group %s: generation %d, %d partitions"
            shared.say(intents.INFO, text, shared.group_id, self.member.generation_id, len(assigned))
            self._taking.begin(assigned, now_s)

    def _given_up(self, error: Exception | None, now_s: float) -> None:
        self._leavers.callback_raised(error)
        before, in_generation = self._state, self.member.in_generation
        if before is State.GIVING_UP and not in_generation and self._shared.positions.assignment:
            self._giving_up.begin(self._shared.positions.assignment, now_s)  # expelled meanwhile: the rest is lost
            return
        self._move(Input.CUT_OFF if before is State.YIELDING and not in_generation else Input.GIVEN_UP)
        if self._state is before:
            return
        if self._state is State.JOINING:
            self._join_at_s = max(now_s, self._not_before_s)
        elif self._state is State.LEAVING:
            self._send_leave(self._leavers.reason, now_s, tell=self._leavers.told)

    def _taken(self, error: Exception | None, now_s: float) -> None:
        self._leavers.callback_raised(error)
        is_member = self.member.in_generation
        self._move(Input.TAKEN if is_member or self._state is not State.TAKING else Input.CUT_OFF)
        self._has_changed(now_s)
        self.metadata(now_s)
        self._shared.wake_poll()

    # joining

    def _match_or_join(self, now_s: float) -> None:
        if self._shared.subscription.pattern is None:
            self._join(now_s)
            return
        ticket = self._shared.eras.of_member(Call.MATCH)
        self._shared.intend(intents.RefreshMetadata(ticket, self._shared.config.request_timeout_ms))

    def _join(self, now_s: float) -> None:
        reason, self.rejoin_reason = self.rejoin_reason, None
        self._heartbeats.stop()
        self.member.joining()
        try:
            request = join_request(self._shared, self.member, reason)
        except AssignorError as error:
            self._broken(error, now_s)
        else:
            self._ask_to_wait(Call.JOIN, ApiKey.JOIN_GROUP, request)

    def _ask_to_wait(self, call: Call, api: ApiKey, request: tuple[object, ...]) -> None:
        """Send JoinGroup or SyncGroup. The answers wait for the other members."""
        shared = self._shared
        timeout_ms = rebalance_timeout_ms(shared.config)
        ticket = shared.eras.of_member(call)
        shared.ask_coordinator(ticket, api, request, timeout_ms=timeout_ms, channel=intents.Channel.JOIN)

    def _joined(self, answer: JoinGroupResponse, now_s: float) -> None:
        """JoinGroup was answered."""
        code = code_of(answer.error_code)
        if code is not ErrorCode.NONE:
            self._not_yet(Call.JOIN, code, now_s, answer.member_id)
            return
        member, shared = self.member, self._shared
        missed = member.missed(answer.generation_id, answer.leader)
        if missed and shared.positions.assignment:
            self._dropped(missed, now_s, keep_member_id=True)
            return
        member.joined(answer.member_id, answer.generation_id, answer.protocol_name or "", answer.leader)
        self._heartbeats.start(now_s)
        self._assignor = next((a for a in shared.assignors if a.name == member.protocol), None)
        try:
            if self._assignor is None:
                what = f"group {shared.group_id} uses the assignor {member.protocol!r}, which this consumer lacks"
                raise KafkaError.of(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, what)
            self._leading.begin(read_subscriptions(answer.members) if member.is_leader else {})
        except (ClientError, WireError) as error:
            self._broken(error, now_s)
            return
        self._retrack()
        if member.is_leader and not answer.skip_assignment:
            self._move(Input.ELECTED)
        else:
            self._move(Input.JOINED)
            self._sync((), now_s)
        if member.is_leader:
            ticket = shared.eras.of_member(Call.LEAD)
            shared.intend(intents.RefreshMetadata(ticket, shared.config.request_timeout_ms))

    def _not_yet(self, call: Call, code: ErrorCode, now_s: float, member_id: str = "") -> None:
        """JoinGroup or SyncGroup was answered with an error."""
        match meaning_of(call, code):
            case Next.TAKE_ID:
                self.member.named(member_id)
                self._again(now_s)
            case Next.REJOIN:
                self._again(now_s)
            case Next.START_OVER:
                keeps_id = code is ErrorCode.ILLEGAL_GENERATION
                self._dropped(f"{call.value} was answered {code.name}", now_s, keep_member_id=keeps_id)
            case Next.FAIL:
                self._refused(refusal(code, self._shared))
            case meaning:
                self._again_after_pause(meaning, now_s)

    def _again(self, now_s: float) -> None:
        self._move(Input.AGAIN)
        self._join_at_s = now_s

    def _again_after_pause(self, meaning: Next, now_s: float) -> None:
        if meaning is Next.FIND_COORDINATOR:
            self._shared.find_coordinator()
        self._move(Input.AGAIN)
        self._join_at_s = now_s + self._backoff.next_ms() / 1000

    def _not_joined(self, ticket: Ticket, error: ClientError, now_s: float) -> None:
        """JoinGroup, SyncGroup or the metadata for them got no answer."""
        shared = self._shared
        if ticket.call is Call.LEAD and self._state is not State.LEADING:
            self._lead(now_s)
        elif not error.retriable:
            self._refused(error)
        else:
            shared.say(intents.DEBUG, "group %s: %s failed: %s", shared.group_id, ticket.call.value, error)
            self._again_after_pause(Next.FIND_COORDINATOR, now_s)

    # leading

    def _lead(self, now_s: float) -> None:
        """The metadata that the leader waited for has come."""
        shared = self._shared
        if self._state is State.LEADING and self._assignor is not None:
            work = self._leading.division(self._assignor, shared.snapshot, self._protocol)
            if self._leading.takes_long(self._assignor):
                shared.intend(intents.Work(shared.eras.of_member(Call.DIVIDE), work))
                return
            try:
                division = work()
            except AssignorError as error:
                self._broken(error, now_s)
            else:
                self._divided(division, now_s)
        elif self._state is not State.RETURNING:
            # a static leader that came back: it has not divided the partitions, but the coordinator knows who has which
            self._leading.came_back(shared.snapshot)
            ticket = shared.eras.of_member(Call.DESCRIBE)
            shared.ask_coordinator(ticket, ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest((shared.group_id,)))

    def _divided(self, division: Division, now_s: float) -> None:
        """The leader's assignor has divided the partitions. The user may have left meanwhile."""
        if self._state is State.LEADING:
            self._leading.divided(division, now_s + self._shared.config.max_poll_interval_ms / 1000)
            self._move(Input.DIVIDED)
            self._sync(division.assignments, now_s)

    def _described(self, answer: DescribeGroupsResponse, now_s: float) -> None:
        """The members' assignments show the partition counts that they were made from."""
        counts = counts_assigned_by(answer, self._leading.topics)
        if counts is not None:
            self._leading.assigned_by(counts)
            self.metadata(now_s)

    def metadata(self, now_s: float) -> None:
        """The leader joins again when topics have other partitions than were assigned, so that the group gets them."""
        if self._state is State.STABLE and self.member.is_leader and self._leading.is_outdated(self._shared.snapshot):
            self.rejoin("topics have other partitions than were assigned")

    def _broken(self, error: Exception, now_s: float) -> None:
        """This member cannot take part in the rebalance: poll raises the error, and the others go on without it."""
        self._shared.fail(error)
        self._depart(f"it cannot take part in the rebalance: {error}", now_s, even_static=True)

    # syncing

    def _sync(self, assignments: tuple[SyncGroupRequestAssignment, ...], now_s: float) -> None:
        self._ask_to_wait(Call.SYNC, ApiKey.SYNC_GROUP, sync_request(self.member, assignments))

    def _synced(self, answer: SyncGroupResponse, now_s: float) -> None:
        """SyncGroup was answered."""
        code = code_of(answer.error_code)
        if code is not ErrorCode.NONE:
            self._not_yet(Call.SYNC, code, now_s)
            return
        try:
            assignment = read_assignment(answer.assignment)
        except WireError as error:
            self._broken(error, now_s)
            return
        if self._assignor is not None:
            hand_over(self._assignor, assignment, self.member.generation_id, self._shared.fail)
        assigned = frozenset(assignment.partitions)
        if self._was_let_in_anew(assigned):
            self._dropped("the coordinator had forgotten it, and lets it in anew", now_s, keep_member_id=True)
            return
        self._assigned, self._assigned_in = assigned, self.member.generation_id
        self.member.has_partitions()
        self._backoff.succeeded()
        self._not_before_s = 0.0
        self._yields = self._takes = False
        self._move(Input.SYNCED)
        self._shared.wake_poll()

    def _was_let_in_anew(self, assigned: frozenset[TopicPartition]) -> bool:
        """Whether others may have had partitions that this member has kept over its JoinGroup.

        A group with members of the consumer protocol (KIP-848) lets in whoever joins by the classic one, also with the
        id of a member whose session is over, and raises its generation. A member that it knows stays in its generation
        as long as it has something to give up. So a later generation without a partition that this one has kept is that
        of a new member, which must neither commit nor go on with what it read as the one before.
        """
        if not self.member.is_in_mixed_group or self.member.generation_id == self._assigned_in:
            return False
        known = self._shared.snapshot.topics
        return any(tp.topic in known for tp in self._shared.positions.assignment - assigned)

    # what answers say of the membership

    def _beaten(self, answer: HeartbeatResponse, now_s: float) -> None:
        """A heartbeat was answered."""
        code = code_of(answer.error_code)
        if code is not ErrorCode.NONE:
            self.heard(Call.HEARTBEAT, code, now_s)
        self._heartbeats.answered(now_s)

    def heard(self, call: Call, code: ErrorCode, now_s: float) -> bool:
        match meaning_of(call, code):
            case Next.FIND_COORDINATOR:
                self._shared.find_coordinator()
            case Next.REJOIN if self._state in _ENTERING:
                return False
            case Next.REJOIN:
                self.rejoin(f"{call.value} was answered {code.name}")
            case Next.START_OVER if self._state is State.JOINING:
                return False
            case Next.START_OVER:
                self._expelled(call, code, now_s)
            case Next.FAIL if call is Call.HEARTBEAT:
                self._refused(refusal(code, self._shared))
        return True

    def _expelled(self, call: Call, code: ErrorCode, now_s: float) -> None:
        before, heard_s = self._state, now_s - self._heartbeats.heard_s
        self._move(Input.EXPELLED)
        text = "group %s: expelled (%s was answered %s); the last answer to a heartbeat before came %.1f s ago"
        self._shared.say(intents.INFO, text, self._shared.group_id, call.value, code.name, heard_s)
        self._was_expelled(f"{call.value} was answered {code.name}")
        self._forget(f"{call.value} was answered {code.name}", keep_member_id=code is ErrorCode.ILLEGAL_GENERATION)
        if self._state is State.GIVING_UP and before is not State.GIVING_UP:
            self._lose(now_s)
        self._shared.wake_poll()

    def _dropped(self, why: str, now_s: float, *, keep_member_id: bool) -> None:
        self._move(Input.DROPPED)
        self._was_expelled(why)
        self._forget(why, keep_member_id=keep_member_id)
        self._lose(now_s)

    def _lose(self, now_s: float) -> None:
        """Give up what is left as lost: it may belong to others by now. JoinGroup follows after a pause."""
        self._not_before_s = now_s + self._backoff.next_ms() / 1000
        self._giving_up.begin(self._shared.positions.assignment, now_s, leaving=bool(self._leavers))

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

    def _forget(self, reason: str, *, keep_member_id: bool = False) -> None:
        """The group goes on without this member."""
        self.member.forgotten(keep_member_id=keep_member_id)
        self._heartbeats.stop()
        self._leading.forget()
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

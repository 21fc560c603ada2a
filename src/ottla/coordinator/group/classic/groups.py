"""The classic groups of a shard: their requests, timers and records.

An input on a group works on a `Draft`. Without records its outcome takes the group's place at once. With records it
is *prepared*: `apply` puts it in place when it sees the record, a failed append forgets it. At recovery nothing is
prepared and `apply` builds groups from their records: a Stable group goes on with its generation, each member's
session starting anew (G17).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

from ottla.base.limits import CLASSIC_MEMBERS_PER_STEP
from ottla.base.require import require
from ottla.base.steps import result_of
from ottla.coordinator.decision import NOTHING, Decision, LogRecord, Reply, SetTimer, Timer, in_steps
from ottla.coordinator.facts import GroupFacts
from ottla.coordinator.group.classic import describe, join, leave, rebalance, sync
from ottla.coordinator.group.classic.arrivals import Arrivals
from ottla.coordinator.group.classic.draft import HEARTBEAT, JOIN, SYNC, Draft, join_error, sync_error
from ottla.coordinator.group.classic.heartbeat import check_heartbeat, session_ended
from ottla.coordinator.group.classic.join import Join
from ottla.coordinator.group.classic.records import group_from_record, group_tombstone
from ottla.coordinator.group.classic.state import Group, GroupState
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.kinds import AnyGroup, Appending, Failure, Groups, answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.sync_group import SyncGroupRequest
from ottla.wire.offsets_records import GROUP_METADATA_KEY, GroupMetadataKey, decode_group_metadata_value, decode_key

#: The states in which members that come now are in the group's first generation.
_AWAITS: Final = (GroupState.EMPTY, GroupState.PREPARING_REBALANCE)


class ClassicGroups:
    """See the module."""

    record_types: Final = frozenset({GROUP_METADATA_KEY})
    timers: Final = frozenset({HEARTBEAT, JOIN, SYNC})

    def __init__(
        self, config: GroupConfig, groups: Groups, appending: Appending, max_record_bytes: Callable[[], int]
    ) -> None:
        self._config = config
        self._groups = groups
        self._appending = appending
        self._max_record_bytes = max_record_bytes
        self._arrivals = Arrivals()

    def find(self, group_id: str) -> Group | None:
        """The classic group with this id."""
        group = self._groups.get(group_id)
        return group if isinstance(group, Group) else None

    def describe(self, group_id: str, *, report_missing: bool) -> Generator[None, None, DescribedGroup]:
        """DescribeGroups for one group, in steps."""
        group = self.find(group_id)
        if group is None:
            return describe.describe_missing(group_id, exists=group_id in self._groups, report_missing=report_missing)
        return (yield from describe.describe(group))

    def coordinator_asked(self, group_id: str, now_ms: int) -> None:
        """A client asks where the group is coordinated: it may be about to join."""
        group = self._groups.get(group_id)
        if group is None or (isinstance(group, Group) and group.state in _AWAITS):
            self._arrivals.asked(group_id, now_ms)

    # -- requests

    def join_group(
        self,
        token: int,
        request: JoinGroupRequest,
        context: RequestContext,
        now_ms: int,
        *,
        unique_id: str,
        member_id_required: bool,
        skip_assignment: bool,
        displaced: Sequence[LogRecord] = (),
    ) -> Decision:
        """JoinGroup. `displaced`: tombstones of an empty group of another kind that gives way."""
        error = self._check_join(request)
        if error is not ErrorCode.NONE:
            return answer(token, join_error(error, request.member_id))
        group = self.find(request.group_id)
        is_new = group is None
        if group is None:
            group = Group(request.group_id, state_timestamp_ms=now_ms)
        draft = Draft(group, self._config, now_ms)
        draft.on_their_way = self._arrivals.on_their_way(group.group_id, now_ms)
        if draft.on_their_way and request.member_id not in group.members:
            draft.on_their_way -= 1
        member_id = join.new_member_id(request, context, unique_id)
        asked = Join(token, request, context, member_id, member_id_required, skip_assignment)
        join.join(draft, asked, is_new_group=is_new)
        draft.records[:0] = displaced
        if len(draft.group.members) > len(group.members):
            self._arrivals.joined(group.group_id)
        return self._decide(draft, lambda e: answer(token, join_error(e, request.member_id)))

    def _check_join(self, request: JoinGroupRequest) -> ErrorCode:
        config = self._config
        if request.group_id == "":
            return ErrorCode.INVALID_GROUP_ID
        low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if request.member_id != "" and self.find(request.group_id) is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def sync_group(self, token: int, request: SyncGroupRequest, now_ms: int) -> Decision:
        """SyncGroup. A failed append sends the whole generation back to rejoin, as in Apache Kafka."""
        group = self.find(request.group_id)
        if group is None or group.state is GroupState.EMPTY or not request.group_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
            return answer(token, sync_error(error))
        draft = Draft(group, self._config, now_ms)
        sync.sync(draft, token, request, self._max_record_bytes())

        def failure(error: ErrorCode) -> Decision:
            again = Draft(group, self._config, now_ms)
            sync.append_failed(again, token, request.member_id, error)
            return self._decide(again, _unexpected)

        return self._decide(draft, failure)

    def heartbeat(self, token: int, request: HeartbeatRequest) -> Decision:
        """Heartbeat: keeps the member's session alive, and tells the member about a rebalance."""
        group = self.find(request.group_id)
        if group is None or not request.group_id:  # the group without a name has no members, at most offsets
            error = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        else:
            error = check_heartbeat(group, request)
        timers: tuple[Timer, ...] = ()
        if group is not None and error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            timers = session(group, request.member_id)
        return Decision(replies=(Reply(token, HeartbeatResponse(error_code=error)),), timers=timers)

    def leave_group(self, token: int, request: LeaveGroupRequest, now_ms: int) -> Decision:
        """LeaveGroup. In a group that does not exist every member is unknown."""
        group = self.find(request.group_id)
        if request.group_id == "":
            return answer(token, leave.refused(request, ErrorCode.INVALID_GROUP_ID))
        draft = Draft(Group(request.group_id) if group is None else group, self._config, now_ms)
        leave.leave(draft, token, request)
        if group is None:
            return Decision(replies=tuple(draft.replies))
        return self._decide(draft, lambda e: answer(token, leave.refused(request, e)))

    # -- what the shard asks of every kind

    def timer(self, key: tuple[str, ...], now_ms: int) -> Decision:
        """One of the timers of `timers` has fired."""
        group = self.find(key[1])
        if group is None:
            return NOTHING
        draft = Draft(group, self._config, now_ms)
        if key[0] == HEARTBEAT:
            session_ended(draft, key[2])
        elif key[0] == JOIN and group.state is GroupState.PREPARING_REBALANCE:
            rebalance.join_timer(draft)
        elif key[0] == SYNC and group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            rebalance.sync_timer(draft)
        retry = Decision(timers=(SetTimer(key, self._config.append_retry_ms),))
        return self._decide(draft, lambda _: retry)

    def apply(self, record: LogRecord, target: AnyGroup | None) -> None:
        """A GroupMetadata record is in the log. Its tombstone deletes no group of another kind that has its id now."""
        key = decode_key(record.key)
        require(isinstance(key, GroupMetadataKey), "only GroupMetadata records are for classic groups")
        if not isinstance(key, GroupMetadataKey):
            return
        if record.value is None:
            if self.find(key.group) is not None:
                del self._groups[key.group]
        elif isinstance(target, Group):
            self._groups[key.group] = target
        else:
            self._groups[key.group] = group_from_record(key.group, decode_group_metadata_value(record.value))

    def loaded(self, now_ms: int) -> Iterator[list[Timer]]:
        """Sessions count from now on."""
        for group in [each for each in self._groups.values() if isinstance(each, Group)]:
            draft = Draft(group, self._config, now_ms)
            for member in group.members.values():
                draft.expect_heartbeat(member.member_id, member.session_timeout_ms)
            if len(group.members) > self._config.group_max_size:
                # `group.max.size` was lowered meanwhile: all members rejoin, and the last ones are refused.
                rebalance.prepare(draft, "the group is larger than group.max.size")
            elif group.members and group.state_timestamp_ms is None:
                # It was a consumer group, and the rebalance that followed had not ended: a partition may be nobody's.
                rebalance.prepare(draft, "the coordinator was loaded before the group had rebalanced")
            self._groups[group.group_id] = draft.group
            yield draft.timers

    def unloaded(self) -> list[Reply]:
        """Whoever waits is sent to find the new coordinator."""
        replies: list[Reply] = []
        for group in [each for each in self._groups.values() if isinstance(each, Group)]:
            for member in group.members.values():
                if member.join_token is not None:
                    replies.append(Reply(member.join_token, join_error(ErrorCode.NOT_COORDINATOR, member.member_id)))
                if member.sync_token is not None:
                    replies.append(Reply(member.sync_token, sync_error(ErrorCode.NOT_COORDINATOR)))
        return replies

    def tombstones(self, group: AnyGroup) -> list[LogRecord]:
        """The record that deletes the group."""
        return [group_tombstone(group.group_id)]

    def _decide(self, draft: Draft, failure: Failure) -> Decision:
        """What the draft has come to; where very many members are concerned, in steps, as its rest."""
        if draft.rest is None:
            return self._decided(draft, failure)
        steps = self._in_steps(draft, failure)
        return result_of(steps) if len(draft.group.members) <= CLASSIC_MEMBERS_PER_STEP else in_steps(steps)

    def _in_steps(self, draft: Draft, failure: Failure) -> Generator[None, None, Decision]:
        yield from draft.steps()
        return self._decided(draft, failure)

    def _decided(self, draft: Draft, failure: Failure) -> Decision:
        timers, told = tuple(draft.timers), draft.told()
        decision = Decision(
            *(tuple(draft.records), tuple(draft.replies), timers[:CLASSIC_MEMBERS_PER_STEP]),
            effects=tuple(draft.reports),
            facts=tuple(told[:1]),
            rest=_rest(timers[CLASSIC_MEMBERS_PER_STEP:], told[1:]),
        )
        if not draft.records:
            self._groups[draft.group.group_id] = draft.group
        return self._appending.prepare(decision, draft.group, failure)


def _rest(timers: Sequence[Timer], told: Sequence[GroupFacts]) -> Callable[[], Decision] | None:
    """Set timers of very many members, and tell of them, some in each step. No other input comes in between."""
    if not timers and not told:
        return None
    some, others = tuple(timers[:CLASSIC_MEMBERS_PER_STEP]), timers[CLASSIC_MEMBERS_PER_STEP:]
    return lambda: Decision(timers=some, facts=tuple(told[:1]), rest=_rest(others, told[1:]))


def session(group: Group, member_id: str) -> tuple[Timer, ...]:
    """The timer of a member's session, set anew: the member is alive."""
    member = group.members.get(member_id)
    if member is None:
        return ()
    return (SetTimer((HEARTBEAT, group.group_id, member_id), member.session_timeout_ms),)


def _unexpected(error: ErrorCode) -> Decision:
    require(False, f"a decision without records failed to append: {error.name}")
    return NOTHING

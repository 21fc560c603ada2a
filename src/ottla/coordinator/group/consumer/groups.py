"""The consumer groups of a shard: their requests, timers and records (KIP-848).

Only records change a group. A handler reads it, and leaves records in a `Draft` that say what will be; `apply` takes
them over when they are in the log, in operation and at recovery alike.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from ottla.assign.server import Partitions
from ottla.base.limits import MEMBERS_PER_STEP
from ottla.coordinator.decision import NOTHING, AssignPartitions, Decision, LogRecord, Reply, SetTimer, Timer, in_steps
from ottla.coordinator.facts import Emptied, GroupFacts, Settled, Why
from ottla.coordinator.group.consumer import describe, leave
from ottla.coordinator.group.consumer.errors import RefusedError
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.heartbeat import Heartbeat, check_request, heartbeat
from ottla.coordinator.group.consumer.records import apply, group_of, group_tombstones, is_group_tombstone
from ottla.coordinator.group.consumer.regexes import Found, Resolution, found_records, take_over
from ottla.coordinator.group.consumer.room import (
    CLASSIC_JOIN,
    CLASSIC_SYNC,
    REGEX,
    REVOKE,
    SESSION,
    Draft,
    Failure,
    Room,
)
from ottla.coordinator.group.consumer.states import JOIN_EPOCH, GroupState, MemberState
from ottla.coordinator.group.consumer.target import holders, preferred_assignor, target_records
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.errors import append_error
from ottla.coordinator.group.kinds import AnyGroup, Appending, Groups, answer
from ottla.wire.consumer_group_records import RECORD_TYPES, decode_key, decode_value
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import DescribedGroup
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

#: The records that make room for a consumer group where another group is; RefusedError when they cannot.
MakeRoom = Callable[[AnyGroup, Draft], Generator[None, None, None]]


#: Why a member is expelled when one of its timers fires, and what is said of it.
_EXPELLED: Final[Mapping[str, tuple[Why, str]]] = {
    SESSION: (Why.SESSION_TIMEOUT, "no heartbeat in time"),
    REVOKE: (Why.REBALANCE_TIMEOUT, "did not give up its partitions in time"),
    CLASSIC_JOIN: (Why.REBALANCE_TIMEOUT, "did not join again in time"),
    CLASSIC_SYNC: (Why.SYNC_TIMEOUT, "no SyncGroup in time"),
}


class ConsumerGroups:
    """See the module."""

    record_types: Final = RECORD_TYPES
    timers: Final = frozenset({SESSION, REVOKE, REGEX, CLASSIC_JOIN, CLASSIC_SYNC})

    def __init__(self, room: Room, groups: Groups, appending: Appending, make_room: MakeRoom) -> None:
        self.room = room
        self._groups = groups
        self._appending = appending
        self._make_room = make_room
        #: Regular expressions that are being resolved, by group.
        self._resolving: dict[str, Resolution] = {}
        #: Groups that records have changed since `settled` was asked.
        self._changed: dict[str, None] = {}

    def find(self, group_id: str) -> ConsumerGroup | None:
        """The consumer group with this id."""
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def describe(self, group_id: str) -> Generator[None, None, DescribedGroup]:
        """ConsumerGroupDescribe for one group, in steps."""
        group = self.find(group_id)
        if group is None:
            return describe.describe_missing(group_id, exists=group_id in self._groups)
        return (yield from describe.describe(Draft(self.room, group, 0)))

    # -- requests

    def heartbeat(
        self,
        token: int,
        request: ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        now_ms: int,
        *,
        unique_id: str,
        member_id_required: bool,
    ) -> Decision:
        """ConsumerGroupHeartbeat. `unique_id` is the id of a member that comes without one, which version 0 may."""
        asked = Heartbeat(request, context, request.member_id or unique_id)
        return in_steps(self._heartbeat(token, asked, now_ms, member_id_required=member_id_required))

    def _heartbeat(
        self, token: int, asked: Heartbeat, now_ms: int, *, member_id_required: bool
    ) -> Generator[None, None, Decision]:
        try:
            check_request(asked.request, self.room.assignors, member_id_required=member_id_required)
            draft = yield from self._draft(asked.request, now_ms)
            if asked.request.member_epoch < JOIN_EPOCH:
                response = yield from leave.leave(draft, asked.request)
            else:
                response = yield from heartbeat(draft, asked)
                yield from self._make(draft)
        except RefusedError as refused:
            return answer(token, heartbeat_error(refused.error, refused.message), refused.effects)
        return self.decide(draft, token, response, lambda error: heartbeat_error(error, None))

    def _draft(self, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Generator[None, None, Draft]:
        """The work on the request's group; a member that joins makes one."""
        group_id, group = request.group_id, self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return Draft(self.room, group, now_ms)
        if group is not None and request.member_epoch == JOIN_EPOCH:
            draft = Draft(self.room, ConsumerGroup(group_id), now_ms)
            yield from self._make_room(group, draft)
            return draft
        if group is not None:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if request.member_epoch < JOIN_EPOCH:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if request.member_epoch != JOIN_EPOCH:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        return Draft(self.room, ConsumerGroup(group_id), now_ms)

    def _make(self, draft: Draft) -> Generator[None, None, None]:
        """Make the group that takes the place of a classic one with members, before its records are in the log: with
        very many topics or members it takes long. Nobody knows it before they are."""
        group = draft.group
        if group.members and group is not self.find(group.group_id):
            draft.target = yield from group_of(group.group_id, draft.records)

    def assigned(self, job: AssignPartitions, computed: Mapping[str, Partitions] | None, now_ms: int) -> Decision:
        """An assignor has done its work (`AssignPartitions`), and the result is checked. None: it failed.

        A group whose assignor failed goes on with the target that it has. So does one that has lost a member and not
        its epoch: that member's part would be nobody's, so the next heartbeat has the target computed anew.

        That of very many members is written in parts, the target's epoch with the last of them. If the others are not
        written, the group has a target that is partly new, of its old epoch, and the next heartbeat has one computed.
        """
        group, soft = self.find(job.group_id), self.room.soft(job.group_id)
        if soft.assigning is not job.token:
            return NOTHING  # of a group that was deleted meanwhile, or of a shard that was read again
        soft.assigning = None
        if group is None or group.target_epoch >= job.epoch:
            return NOTHING
        if computed is None:
            soft.failed = Failure(job.epoch, now_ms + self.room.config.assignor_retry_ms)
            return NOTHING
        places = holders(group, job.spec.members)
        if None in places.values() and group.epoch == job.epoch:
            return NOTHING
        parts = {now: computed.get(then, {}) for then, now in places.items() if now is not None}
        return self._take_over(target_records(group, parts, parts, job.epoch, now_ms))

    def _take_over(self, target: Iterator[LogRecord | None]) -> Decision:
        records: list[LogRecord] = []
        has_more = True
        for each in islice(target, MEMBERS_PER_STEP):
            if each is None:
                break
            records.append(each)
        else:
            has_more = len(records) == MEMBERS_PER_STEP
        rest = (lambda: self._take_over(target)) if has_more else None
        return self._appending.prepare(
            Decision(tuple(records), unsynced=lambda _: (), rest=rest), None, lambda _: NOTHING
        )

    # -- what the shard asks of every kind

    def apply(self, record: LogRecord, target: AnyGroup | None) -> None:
        """A record of a consumer group is in the log."""
        if target is not None:
            self._put_in_place(target)
            return
        key = decode_key(record.key)
        group = self.find(key.group_id)
        value = None if record.value is None else decode_value(key, record.value)
        if group is None:
            if record.value is None:
                return  # of a group that is gone already
            group = self._groups[key.group_id] = ConsumerGroup(key.group_id)
        self._changed[key.group_id] = None
        apply(group, key, value, has_value=record.value is not None)
        if record.value is None and is_group_tombstone(key, value):
            del self._groups[key.group_id]
            self.room.forget(key.group_id)

    def _put_in_place(self, target: AnyGroup) -> None:
        """The group has become another one, which was prepared with thousands of records, perhaps: this is one."""
        group_id = target.group_id
        if self._groups.get(group_id) is target:
            return
        if self.find(group_id) is not None:
            self.room.forget(group_id)
        self._groups[group_id] = target
        if isinstance(target, ConsumerGroup):
            self._changed[group_id] = None

    def settled(self) -> tuple[GroupFacts, ...]:
        """Which of the groups that records have changed since the last call are stable now, or have no members."""
        changed, self._changed = self._changed, {}
        groups = [group for group in map(self.find, changed) if group is not None]
        return tuple(
            GroupFacts(group.group_id, group.kind, group.epoch, (self._settled(group),))
            for group in groups
            if group.state in (GroupState.STABLE, GroupState.EMPTY)
        )

    def timer(self, key: tuple[str, ...], now_ms: int) -> Decision:
        """One of the timers of `timers` has fired."""
        kind, group_id = key[:2]
        if kind == REGEX:
            return self._resolve(key, now_ms)
        group = self.find(group_id)
        member = None if group is None else group.members.get(key[2])
        if group is None or member is None:
            return NOTHING
        if kind == REVOKE and (member.state is not MemberState.UNREVOKED_PARTITIONS or member.member_epoch < 0):
            return NOTHING  # it has given them up, or is gone for a while
        draft = Draft(self.room, group, now_ms)
        return in_steps(self._alone(leave.fence(draft, (member,), *_EXPELLED[kind]), draft, key))

    def _resolve(self, key: tuple[str, ...], now_ms: int) -> Decision:
        group = self.find(key[1])
        soft = self.room.soft(key[1])
        if group is None:
            self._resolving.pop(key[1], None)
            soft.resolving = False
            return NOTHING
        resolution = self._resolving.get(key[1])
        if resolution is None:
            resolution = self._resolving[key[1]] = Resolution(group, self.room.topics, now_ms, soft.sees)
        if not resolution.go_on():
            return Decision(timers=(SetTimer(key, 0),))
        del self._resolving[key[1]]
        soft.resolving = False
        return in_steps(self._found(resolution, Draft(self.room, group, now_ms), key))

    def _found(self, resolution: Resolution, draft: Draft, key: tuple[str, ...]) -> Generator[None, None, Decision]:
        parts = yield from take_over(draft, resolution)
        return self._write_found(iter(parts), draft, key)

    def _write_found(self, parts: Iterator[Found], draft: Draft, key: tuple[str, ...]) -> Decision:
        """What very many regular expressions match, in parts; the group's epoch with the last of them."""
        part = next(parts, None)
        if part is None:
            return self._decide_alone(draft, key)
        return self._appending.prepare(
            Decision(
                tuple(found_records(draft.group, part)),
                unsynced=lambda _: (),
                rest=lambda: self._write_found(parts, draft, key),
            ),
            None,
            lambda _: self._again(key),
        )

    def loaded(self, now_ms: int) -> Iterator[list[Timer]]:
        """Sessions count from now on, and the time to give up partitions does."""
        for group in [each for each in self._groups.values() if isinstance(each, ConsumerGroup)]:
            draft = Draft(self.room, group, now_ms)
            for member in group.members.values():
                draft.expect_heartbeat(member.member_id)
                if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
                    draft.start(REVOKE, member.member_id, member.rebalance_timeout_ms)
            yield draft.timers

    def unloaded(self) -> list[Reply]:
        """Nobody waits in a consumer group."""
        return []

    def tombstones(self, group: AnyGroup) -> list[LogRecord]:
        """The records that delete the group."""
        return group_tombstones(group) if isinstance(group, ConsumerGroup) else []

    # -- from draft to decision

    def decide(self, draft: Draft, token: int, response: object, refusal: Callable[[ErrorCode], object]) -> Decision:
        """The draft as a decision that answers `response`, or `refusal` of the error when the append fails."""
        decision = Decision(
            tuple(draft.records),
            (*draft.replies, Reply(token, response)),
            tuple(draft.timers),
            effects=tuple(draft.effects),
            unsynced=lambda error: answer(token, refusal(append_error(error))).replies,
            facts=draft.told(),
        )

        group_id = draft.group.group_id
        before = self.room.soft(group_id)

        def failure(error: ErrorCode) -> Decision:
            self.room.keep(group_id, replace(before, joining=draft.soft.joining))
            return answer(token, refusal(error))

        self.room.keep(group_id, draft.soft)
        return self._appending.prepare(decision, draft.target, failure)

    def _alone(
        self, steps: Generator[None, None, None], draft: Draft, key: tuple[str, ...]
    ) -> Generator[None, None, Decision]:
        """Take steps of a timer, and decide."""
        yield from steps
        return self._decide_alone(draft, key)

    def _decide_alone(self, draft: Draft, key: tuple[str, ...]) -> Decision:
        """The draft of a timer, which is tried again when the append fails."""
        decision = Decision(
            tuple(draft.records),
            tuple(draft.replies),
            tuple(draft.timers),
            unsynced=lambda _: (),
            facts=draft.told(),
        )
        return self._appending.prepare(decision, draft.target, lambda _: self._again(key))

    def _again(self, key: tuple[str, ...]) -> Decision:
        """The append has failed: the timer is tried again."""
        return Decision(timers=(SetTimer(key, self.room.config.append_retry_ms),))

    def _settled(self, group: ConsumerGroup) -> Settled | Emptied:
        if group.is_empty:
            return Emptied(group.epoch)
        after = {member.member_id: member.assigned for member in group.members.values()}
        return Settled(group.epoch, preferred_assignor(self.room, group), len(after), after)


def heartbeat_error(error: ErrorCode, message: str | None) -> ConsumerGroupHeartbeatResponse:
    """A refusal of ConsumerGroupHeartbeat. As in Kafka, what went wrong inside the broker is not told."""
    if error is ErrorCode.UNKNOWN_SERVER_ERROR:
        message = None
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)

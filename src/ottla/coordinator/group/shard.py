"""One partition of `__consumer_offsets` as a state machine: its groups of all kinds, and their committed offsets.

Queries answer at once. Every other input returns a Decision (see `coordinator.decision`); the runtime carries it out
to its end, with `apply` for each record or with `append_failed`, before it gives the shard the next input.

`_kinds` is the table of kinds of groups. What a kind alone knows (its requests, records, timers) is in its own room;
what all kinds have, offsets and lists, is here. See `kinds`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from ottla.assign.server import Partitions, ServerAssignor
from ottla.base.require import require
from ottla.coordinator.decision import (
    NOTHING,
    AssignPartitions,
    Decision,
    LogRecord,
    Reply,
    Timer,
    TransactionalWrite,
    in_steps,
)
from ottla.coordinator.facts import Deleted, GroupFacts
from ottla.coordinator.group import kinds
from ottla.coordinator.group.classic.groups import ClassicGroups, session
from ottla.coordinator.group.classic.join import has_said_too_much, more_is_said
from ottla.coordinator.group.classic.state import Group, GroupState
from ottla.coordinator.group.config import GroupConfig, GroupSettings
from ottla.coordinator.group.consumer.groups import ConsumerGroups
from ottla.coordinator.group.consumer.room import Room
from ottla.coordinator.group.consumer.topics import NoTopics, Topics
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.deletion import Deletion
from ottla.coordinator.group.kinds import AnyGroup, Appending, Groups, GroupTable, Kind, answer
from ottla.coordinator.group.migration import downgrade_without, make_room
from ottla.coordinator.group.mixed import MixedGroups
from ottla.coordinator.group.retention import TIMERS, Retention
from ottla.coordinator.offsets import commit, expiry, fetch
from ottla.coordinator.offsets.store import OffsetStore
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.delete_groups import DeletableGroupResult
from ottla.wire.messages.describe_groups import DescribedGroup
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.list_groups import ListedGroup
from ottla.wire.messages.offset_commit import OffsetCommitRequest
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from ottla.wire.messages.sync_group import SyncGroupRequest
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from ottla.wire.offsets_records import (
    OffsetCommitKey,
    decode_key,
    decode_offset_commit_value,
    record_type,
)

#: No record has so many bytes.
_NO_LIMIT: Final = 2**62
#: Timers that one step of the end of a load sets.
_TIMERS_AT_ONCE: Final = 100
#: Groups that ListGroups looks at in one step.
_LISTED_AT_ONCE: Final = 100
#: What is seen of a group that is being deleted.
_NO_OFFSETS: Final = OffsetStore()


class GroupShard:
    """See the module. `now_ms` is the wall clock everywhere, in ms: it goes into records and is compared with them.

    `topic_id` gives the id that a topic has now (the null uuid where it is not known), or None when there is no topic
    of this name. `topics` is what consumer groups know of the metadata. The log takes no record above
    `max_record_bytes`.
    """

    def __init__(
        self,
        config: GroupConfig,
        topic_id: Callable[[str], bytes | None],
        topics: Topics | None = None,
        settings: GroupSettings | None = None,
        assignors: Mapping[str, ServerAssignor] | None = None,
        *,
        max_record_bytes: Callable[[], int] = lambda: _NO_LIMIT,
    ) -> None:
        self._config = config
        self._topic_id = topic_id
        self._groups: Groups = GroupTable()
        self._offsets = OffsetStore()
        self._appending = Appending()
        self._deletion = Deletion(self._offsets, self._appending)
        room = Room(config, topics or NoTopics(), settings or GroupSettings(config), assignors)
        room.downgrade = downgrade_without
        self._classic = ClassicGroups(config, self._groups, self._appending, max_record_bytes)
        self._consumer = ConsumerGroups(room, self._groups, self._appending, make_room)
        self._mixed = MixedGroups(config, self._consumer)
        self._kinds: Final[Mapping[str, Kind]] = {"classic": self._classic, "consumer": self._consumer}
        tombstones = partial(_tombstones, self._kinds)
        self._retention = Retention(config, self._groups, self._offsets, self._appending, topic_id, tombstones)
        self._by_record_type = {number: kind for kind in self._kinds.values() for number in kind.record_types}
        self._by_timer = {name: kind for kind in self._kinds.values() for name in kind.timers}

    # -- queries

    @property
    def is_busy(self) -> bool:
        """Whether records of a decision are on their way to the log, or a transaction has ended in part."""
        return self._appending.is_busy or self._offsets.is_ending

    def describe_group(self, group_id: str, *, report_missing: bool = True) -> Generator[None, None, DescribedGroup]:
        """DescribeGroups for one group, in steps: as it is at the first one.

        `report_missing`: v6+ understands GROUP_ID_NOT_FOUND (KIP-1043).
        """
        return self._classic.describe(group_id, report_missing=report_missing)

    def describe_consumer_group(self, group_id: str) -> Generator[None, None, DescribedConsumerGroup]:
        """ConsumerGroupDescribe for one group (KIP-848), in steps: as it is at the first one."""
        return self._consumer.describe(group_id)

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> Iterator[tuple[ListedGroup, ...]]:
        """ListGroups for this shard, some groups at a time; empty filters take everything (KIP-518, KIP-848)."""
        there = tuple(self._groups.values())
        for begin in range(0, len(there), _LISTED_AT_ONCE):
            yield kinds.listed(there[begin : begin + _LISTED_AT_ONCE], states, types)

    def fetch_offsets(self, request: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        """OffsetFetch for one group. `offsets.fetch` turns a request of any version into these, and answers back."""
        group = self._groups.get(request.group_id)
        error = ErrorCode.NONE if group is None else group.check_fetch(request.member_id, request.member_epoch)
        if error is not ErrorCode.NONE:
            return fetch.refuse(request, error)
        store = self._seen_of(request.group_id)
        return fetch.fetch(store, request, require_stable=require_stable, topic_id=self._topic_id)

    def topics_of(self, group_id: str) -> Generator[None, None, list[OffsetFetchRequestTopics]]:
        """The partitions for which a group has committed an offset, as OffsetFetch names them. In steps."""
        return fetch.all_topics(self._seen_of(group_id), group_id, self._topic_id)

    def count_offsets(self, group_id: str) -> int:
        """For how many partitions a group has committed an offset, at most."""
        return self._seen_of(group_id).count(group_id)

    def group(self, group_id: str) -> Group | None:
        """The classic group itself, for tests and tools."""
        return self._classic.find(group_id)

    @property
    def consumer_groups(self) -> ConsumerGroups:
        """The room of consumer groups, for tests and tools."""
        return self._consumer

    def committed(self, group_id: str) -> Mapping[str, Mapping[int, int]]:
        """The committed offsets of a group, by topic and partition."""
        found: dict[str, dict[int, int]] = {}
        for partition, each in self._seen_of(group_id).of_group(group_id).items():
            found.setdefault(partition.topic, {})[partition.partition] = each.value.offset
        return found

    def _seen_of(self, group_id: str) -> OffsetStore:
        """Where a query finds the group's offsets: it has none while they are being deleted."""
        return _NO_OFFSETS if self._deletion.hides(group_id) else self._offsets

    # -- membership of consumer groups

    def consumer_group_heartbeat(
        self,
        token: int,
        request: ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        now_ms: int,
        *,
        unique_id: str,
        member_id_required: bool = True,
    ) -> Decision:
        """ConsumerGroupHeartbeat (KIP-848). `unique_id`: the id of a member that comes without one, as in version 0."""
        return self._consumer.heartbeat(
            token, request, context, now_ms, unique_id=unique_id, member_id_required=member_id_required
        )

    def assigned(self, job: AssignPartitions, computed: Mapping[str, Partitions] | None, now_ms: int) -> Decision:
        """The outcome of an `AssignPartitions`; None when the assignor failed, or took too long."""
        return self._consumer.assigned(job, computed, now_ms)

    # -- membership by the classic protocol

    def coordinator_asked(self, group_id: str, now_ms: int) -> Decision:
        """FindCoordinator: who asks may be about to join, and an empty group waits for it a little."""
        self._classic.coordinator_asked(group_id, now_ms)
        return NOTHING

    def join_group(
        self,
        token: int,
        request: JoinGroupRequest,
        context: RequestContext,
        now_ms: int,
        *,
        unique_id: str,
        member_id_required: bool = True,
        skip_assignment: bool = True,
    ) -> Decision:
        """JoinGroup. `unique_id` (a UUID) ends the member id that a member without one gets.

        `member_id_required`: the client understands MEMBER_ID_REQUIRED (v4+); `skip_assignment`: and skipping the
        assignment (v9+).
        """
        group = self._consumer.find(request.group_id)
        if group is not None and group.members:
            return self._mixed.join_group(
                *(token, group, request, context, now_ms), unique_id=unique_id, member_id_required=member_id_required
            )
        return self._classic.join_group(
            token,
            request,
            context,
            now_ms,
            unique_id=unique_id,
            member_id_required=member_id_required,
            skip_assignment=skip_assignment,
            displaced=() if group is None else self._consumer.tombstones(group),
        )

    def is_too_much(self, request: JoinGroupRequest) -> bool:
        """Whether `join_group` refuses it because the group's members would say too much of themselves."""
        group = self._classic.find(request.group_id)
        return group is not None and has_said_too_much(group, request)

    @property
    def metadata_bytes(self) -> int:
        """What the members of all its groups say of themselves."""
        return self._groups.metadata_bytes

    def more_is_said(self, request: JoinGroupRequest) -> int:
        """By how much that would grow with this request."""
        return more_is_said(self._classic.find(request.group_id), request)

    def sync_group(self, token: int, request: SyncGroupRequest, now_ms: int) -> Decision:
        """SyncGroup."""
        group = self._consumer.find(request.group_id)
        if group is not None and group.members:
            return self._mixed.sync_group(token, group, request, now_ms)
        return self._classic.sync_group(token, request, now_ms)

    def heartbeat(self, token: int, request: HeartbeatRequest, now_ms: int = 0) -> Decision:
        """Heartbeat: keeps the member's session alive, and tells the member about a rebalance."""
        group = self._consumer.find(request.group_id)
        if group is not None and group.members:
            return self._mixed.heartbeat(token, group, request, now_ms)
        return self._classic.heartbeat(token, request)

    def knows_member(self, group_id: str, member_id: str, instance_id: str | None) -> bool:
        """Whether `leave_group` would find the member; one that is not there is UNKNOWN_MEMBER_ID."""
        group = self._groups.get(group_id)
        return group is not None and group.knows(member_id, instance_id)

    def leave_group(self, token: int, request: LeaveGroupRequest, now_ms: int) -> Decision:
        """LeaveGroup."""
        group = self._consumer.find(request.group_id)
        if group is not None and group.members:
            return self._mixed.leave_group(token, group, request, now_ms)
        return self._classic.leave_group(token, request, now_ms)

    def delete_group(self, token: int, group_id: str) -> Decision:
        """DeleteGroups for one group; the answer is its DeletableGroupResult. Its offsets go with it."""
        group = self._groups.get(group_id)
        if group is None:
            return answer(token, DeletableGroupResult(group_id, ErrorCode.GROUP_ID_NOT_FOUND))
        if not group.is_empty:
            return answer(token, DeletableGroupResult(group_id, ErrorCode.NON_EMPTY_GROUP))
        told = GroupFacts(group_id, group.kind, group.generation, (Deleted(),))
        return self._deletion.begin(token, told, _tombstones(self._kinds, group))

    # -- offsets

    def commit_offsets(
        self, token: int, request: OffsetCommitRequest, now_ms: int, *, report_missing: bool = True
    ) -> Decision:
        """OffsetCommit. Topics carry names, and ids where the broker knows them; v9+: `report_missing`."""
        group = self._groups.get(request.group_id)
        error = commit.check_commit(group, request, report_missing=report_missing)
        if error is not ErrorCode.NONE:
            return answer(token, commit.refuse_commit(request, error))
        limit = self._config.offset_metadata_max_bytes
        records, response = commit.commit_records(request, now_ms, limit)
        timers: tuple[Timer, ...] = ()
        if isinstance(group, Group) and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            timers = session(group, request.member_id)
        decision = Decision(tuple(records), (Reply(token, response),), timers)
        return self._appending.prepare(decision, None, lambda e: answer(token, commit.refuse_commit(request, e)))

    def commit_transactional_offsets(self, token: int, request: TxnOffsetCommitRequest, now_ms: int) -> Decision:
        """TxnOffsetCommit: the offsets wait for the transaction's marker."""
        group, error = self._groups.get(request.group_id), ErrorCode.INVALID_GROUP_ID
        if request.group_id:
            error = commit.check_transactional_commit(group, request, self._topic_id)
        if error is not ErrorCode.NONE:
            return answer(token, commit.refuse_transactional_commit(request, error))
        limit = self._config.offset_metadata_max_bytes
        records, response = commit.transactional_commit_records(request, now_ms, limit, self._topic_id)
        producer = TransactionalWrite(request.producer_id, request.producer_epoch)
        decision = Decision(tuple(records), (Reply(token, response),), transactional=producer if records else None)
        return self._appending.prepare(
            decision, None, lambda e: answer(token, commit.refuse_transactional_commit(request, e))
        )

    def delete_offsets(self, token: int, request: OffsetDeleteRequest) -> Decision:
        """OffsetDelete (KIP-496)."""
        group = self._groups.get(request.group_id)
        error = expiry.check_delete(group)
        if group is None or error is not ErrorCode.NONE:
            return answer(token, OffsetDeleteResponse(error_code=error))
        records, response = expiry.delete_records(group, self._offsets, request)
        decision = Decision(tuple(records), (Reply(token, response),))
        return self._appending.prepare(decision, None, lambda e: answer(token, OffsetDeleteResponse(error_code=e)))

    def topics_deleted(self) -> Decision:
        """Topics were deleted, and perhaps new ones have their names: delete the offsets committed for them."""
        return self._retention.topics_deleted()

    # -- time

    def timer(self, key: tuple[str, ...], now_ms: int) -> Decision:
        """A timer that a decision of this shard set has fired."""
        if key in TIMERS:
            return self._retention.timer(key, now_ms)
        return self._by_timer[key[0]].timer(key, now_ms)

    # -- the log

    def apply(self, record: LogRecord, now_ms: int) -> None:
        """A record is in the log: plain batches, live and at recovery."""
        target = self._appending.applied(record)
        if record.value is None and self._deletion.applied():
            return
        kind = self._by_record_type.get(record_type(record.key))
        if kind is not None:
            kind.apply(record, target)
            return
        match decode_key(record.key):
            case OffsetCommitKey() as key if record.value is None:
                self._offsets.apply_tombstone(key)
            case OffsetCommitKey() as key:
                self._exists(key.group, now_ms)
                self._offsets.apply_commit(key, decode_offset_commit_value(record.value or b""))

    def settled(self) -> tuple[GroupFacts, ...]:
        """What the records applied since the last call mean for the history of groups, beside what decisions told."""
        return self._consumer.settled()

    def apply_transactional(self, producer_id: int, record: LogRecord) -> None:
        """A record of a transactional batch is in the log. Only offsets are ever written in transactions."""
        self._appending.applied(record)
        key = decode_key(record.key)
        if isinstance(key, OffsetCommitKey):
            if record.value is None:
                self._offsets.apply_tombstone(key)
                return
            value = decode_offset_commit_value(record.value)
            self._exists(key.group, value.commit_timestamp_ms)
            self._offsets.apply_transactional(producer_id, key, value)

    def apply_marker(self, producer_id: int, commit: bool) -> Decision:
        """The end marker of a transaction is in the log. One with very many offsets is applied in parts."""
        return in_steps(self._ending(producer_id, commit), is_undecided=False)

    def _ending(self, producer_id: int, commit: bool) -> Generator[None, None, Decision]:
        yield from self._offsets.apply_marker(producer_id, commit=commit)
        return NOTHING

    def append_failed(self, decision: Decision, error: ErrorCode) -> Decision:
        """The records of `decision` could not be appended. Nothing has happened; waiting requests are told why."""
        return self._appending.failed(decision, error)

    def loaded(self, now_ms: int) -> Iterator[Decision]:
        """The partition has been read to its end: sessions and retention count from now on (G17).

        A group, or some members of a large one, in each step. Whoever calls takes all steps before the next input.
        """
        self.settled()  # what the log said is no news
        for kind in self._kinds.values():
            for timers in kind.loaded(now_ms):
                for begin in range(0, max(len(timers), 1), _TIMERS_AT_ONCE):
                    yield Decision(timers=tuple(timers[begin : begin + _TIMERS_AT_ONCE]))
        yield self._retention.loaded()

    def unloaded(self) -> Decision:
        """This node is no longer the coordinator: whoever waits is sent to find the new one. The shard ends here."""
        require(not self._appending.is_busy, "a decision is being appended")
        return Decision(replies=tuple(reply for kind in self._kinds.values() for reply in kind.unloaded()))

    def _exists(self, group_id: str, now_ms: int) -> None:
        """Make a group for offsets that have none: without protocol type and members."""
        if group_id not in self._groups:
            self._groups[group_id] = Group(group_id, state_timestamp_ms=now_ms)


def _tombstones(of_kinds: Mapping[str, Kind], group: AnyGroup) -> list[LogRecord]:
    return of_kinds[group.kind].tombstones(group)

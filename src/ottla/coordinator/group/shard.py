"""One partition of `__consumer_offsets` as a state machine: its classic groups and their committed offsets.

Queries answer at once. Every other input returns a Decision (see `coordinator.decision`); the runtime carries it out
to its end, with `apply` for each record or with `append_failed`, before it gives the shard the next input.

An input on a group works on a `Draft`. Without records its outcome takes the group's place at once. With records it
is *prepared*: `apply` puts it in place when it sees the record, `append_failed` forgets it. At recovery nothing is
prepared and `apply` builds groups from their records: a Stable group goes on with its generation, each member's
session starting anew (G17).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from ottla.base.limits import MAX_OFFSETS_PER_LOOK, MAX_TOMBSTONE_BYTES_PER_BATCH, MAX_TOMBSTONES_PER_BATCH
from ottla.base.require import require
from ottla.coordinator.decision import NOTHING, Decision, LogRecord, Reply, SetTimer, Timer, TransactionalWrite
from ottla.coordinator.group.classic import describe, join, leave, rebalance, sync
from ottla.coordinator.group.classic.draft import HEARTBEAT, JOIN, SYNC, Draft, join_error, sync_error
from ottla.coordinator.group.classic.heartbeat import check_heartbeat, session_ended
from ottla.coordinator.group.classic.join import Join
from ottla.coordinator.group.classic.records import group_from_record, group_tombstone
from ottla.coordinator.group.classic.state import Group, GroupState
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.errors import append_error
from ottla.coordinator.offsets import commit, expiry, fetch
from ottla.coordinator.offsets.store import OffsetStore
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeletableGroupResult
from ottla.wire.messages.describe_groups import DescribedGroup
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.list_groups import ListedGroup
from ottla.wire.messages.offset_commit import OffsetCommitRequest
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ottla.wire.messages.sync_group import SyncGroupRequest
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from ottla.wire.offsets_records import (
    GroupMetadataKey,
    OffsetCommitKey,
    decode_group_metadata_value,
    decode_key,
    decode_offset_commit_value,
)

#: The keys of the shard's own timers: offset retention, and the offsets of topics that are gone.
RETENTION: Final = ("retention",)
GONE_TOPICS: Final = ("gone-topics",)

#: Makes the Decision that answers the waiting requests when the append failed with an error.
_Failure: TypeAlias = Callable[[ErrorCode], Decision]


@dataclass(slots=True)
class _Prepared:
    """A decision whose records are on their way to the log."""

    decision: Decision
    #: The group as it will be, if the decision changes more of it than the record says.
    target: Group | None
    failure: _Failure
    applied: int = 0


class GroupShard:
    """See the module. `now_ms` is the wall clock everywhere, in ms: it goes into records and is compared with them.

    `topic_id` gives the id that a topic has now (the null uuid where it is not known), or None when there is no topic
    of this name.
    """

    def __init__(self, config: GroupConfig, topic_id: Callable[[str], bytes | None]) -> None:
        self._config = config
        self._topic_id = topic_id
        #: Groups that the present pass has still to look at: for retention, and for offsets of deleted topics.
        self._to_expire: deque[str] = deque()
        self._to_compare: deque[str] = deque()
        self._groups: dict[str, Group] = {}
        self._offsets = OffsetStore()
        self._prepared: _Prepared | None = None

    # -- queries

    def describe_group(self, group_id: str, *, report_missing: bool = True) -> DescribedGroup:
        """DescribeGroups for one group. `report_missing`: v6+ understands GROUP_ID_NOT_FOUND (KIP-1043)."""
        group = self._groups.get(group_id)
        if group is None:
            return describe.describe_missing(group_id, report_missing=report_missing)
        return describe.describe(group)

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> tuple[ListedGroup, ...]:
        """ListGroups for this shard; empty filters take everything (KIP-518, KIP-848)."""
        return describe.listed(self._groups.values(), states, types)

    def fetch_offsets(self, request: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        """OffsetFetch for one group. `offsets.fetch` turns a request of any version into these, and answers back."""
        return fetch.fetch(self._offsets, request, require_stable=require_stable, topic_id=self._topic_id)

    def group(self, group_id: str) -> Group | None:
        """The group itself, for tests and tools."""
        return self._groups.get(group_id)

    # -- membership

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
        error = self._check_join(request)
        if error is not ErrorCode.NONE:
            return _answer(token, join_error(error, request.member_id))
        is_new = request.group_id not in self._groups
        group = self._groups.get(request.group_id, Group(request.group_id, state_timestamp_ms=now_ms))
        draft = Draft(group, self._config, now_ms)
        member_id = join.new_member_id(request, context, unique_id)
        asked = Join(token, request, context, member_id, member_id_required, skip_assignment)
        join.join(draft, asked, is_new_group=is_new)
        return self._decide(draft, lambda e: _answer(token, join_error(e, request.member_id)))

    def _check_join(self, request: JoinGroupRequest) -> ErrorCode:
        config = self._config
        if request.group_id == "":
            return ErrorCode.INVALID_GROUP_ID
        low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if request.member_id != "" and request.group_id not in self._groups:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def sync_group(self, token: int, request: SyncGroupRequest, now_ms: int) -> Decision:
        """SyncGroup. A failed append sends the whole generation back to rejoin, as in Apache Kafka."""
        group = self._groups.get(request.group_id)
        if group is None or group.state is GroupState.EMPTY or not request.group_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
            return _answer(token, sync_error(error))
        draft = Draft(group, self._config, now_ms)
        sync.sync(draft, token, request)

        def failure(error: ErrorCode) -> Decision:
            again = Draft(group, self._config, now_ms)
            sync.append_failed(again, token, request.member_id, error)
            return self._decide(again, _unexpected)

        return self._decide(draft, failure)

    def heartbeat(self, token: int, request: HeartbeatRequest) -> Decision:
        """Heartbeat: keeps the member's session alive, and tells the member about a rebalance."""
        group = self._groups.get(request.group_id)
        if group is None or not request.group_id:  # the group without a name has no members, at most offsets
            error = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        else:
            error = check_heartbeat(group, request)
        timers: tuple[Timer, ...] = ()
        if group is not None and error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            timers = _session(group, request.member_id)
        return Decision(replies=(Reply(token, HeartbeatResponse(error_code=error)),), timers=timers)

    def leave_group(self, token: int, request: LeaveGroupRequest, now_ms: int) -> Decision:
        """LeaveGroup. In a group that does not exist every member is unknown."""
        group = self._groups.get(request.group_id, Group(request.group_id))
        if request.group_id == "":
            return _answer(token, leave.refused(request, ErrorCode.INVALID_GROUP_ID))
        draft = Draft(group, self._config, now_ms)
        leave.leave(draft, token, request)
        if request.group_id not in self._groups:
            return Decision(replies=tuple(draft.replies))
        return self._decide(draft, lambda e: _answer(token, leave.refused(request, e)))

    def delete_group(self, token: int, group_id: str) -> Decision:
        """DeleteGroups for one group; the answer is its DeletableGroupResult. Its offsets go with it."""
        group = self._groups.get(group_id)
        if group is None:
            return _answer(token, DeletableGroupResult(group_id, ErrorCode.GROUP_ID_NOT_FOUND))
        if group.state is not GroupState.EMPTY:
            return _answer(token, DeletableGroupResult(group_id, ErrorCode.NON_EMPTY_GROUP))
        records = (*expiry.all_tombstones(group_id, self._offsets), group_tombstone(group_id))
        decision = Decision(records, (Reply(token, DeletableGroupResult(group_id)),))
        return self._prepare(decision, None, lambda e: _answer(token, DeletableGroupResult(group_id, e)))

    # -- offsets

    def commit_offsets(
        self, token: int, request: OffsetCommitRequest, now_ms: int, *, report_missing: bool = True
    ) -> Decision:
        """OffsetCommit. Topics carry names, and ids where the broker knows them; v9+: `report_missing`."""
        group = self._groups.get(request.group_id)
        error = commit.check_commit(group, request, report_missing=report_missing)
        if error is not ErrorCode.NONE:
            return _answer(token, commit.refuse_commit(request, error))
        limit = self._config.offset_metadata_max_bytes
        records, response = commit.commit_records(request, now_ms, limit)
        timers: tuple[Timer, ...] = ()
        if group is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            timers = _session(group, request.member_id)
        decision = Decision(tuple(records), (Reply(token, response),), timers)
        return self._prepare(decision, None, lambda e: _answer(token, commit.refuse_commit(request, e)))

    def commit_transactional_offsets(self, token: int, request: TxnOffsetCommitRequest, now_ms: int) -> Decision:
        """TxnOffsetCommit: the offsets wait for the transaction's marker."""
        group = self._groups.get(request.group_id)
        error = commit.check_transactional_commit(group, request) if request.group_id else ErrorCode.INVALID_GROUP_ID
        if error is not ErrorCode.NONE:
            return _answer(token, commit.refuse_transactional_commit(request, error))
        limit = self._config.offset_metadata_max_bytes
        records, response = commit.transactional_commit_records(request, now_ms, limit, self._topic_id)
        producer = TransactionalWrite(request.producer_id, request.producer_epoch)
        decision = Decision(tuple(records), (Reply(token, response),), transactional=producer if records else None)
        return self._prepare(decision, None, lambda e: _answer(token, commit.refuse_transactional_commit(request, e)))

    def delete_offsets(self, token: int, request: OffsetDeleteRequest) -> Decision:
        """OffsetDelete (KIP-496)."""
        group = self._groups.get(request.group_id)
        error = expiry.check_delete(group)
        if group is None or error is not ErrorCode.NONE:
            return _answer(token, OffsetDeleteResponse(error_code=error))
        records, response = expiry.delete_records(group, self._offsets, request)
        decision = Decision(tuple(records), (Reply(token, response),))
        return self._prepare(decision, None, lambda e: _answer(token, OffsetDeleteResponse(error_code=e)))

    def topics_deleted(self) -> Decision:
        """Topics were deleted, and perhaps new ones have their names: delete the offsets committed for them."""
        self._to_compare = deque(self._offsets.group_ids())
        return self._forget_gone_topics(())

    def _forget_gone_topics(self, timers: tuple[Timer, ...]) -> Decision:
        """Tombstones for the next batch of such offsets. `timers` are set in any case."""
        records = _next_batch(
            self._to_compare,
            self._offsets,
            lambda group_id: expiry.gone_topics_tombstones(group_id, self._offsets, self._topic_id),
        )
        if self._to_compare:
            timers = (*timers, SetTimer(GONE_TOPICS, 0))
        return self._prepare(
            Decision(tuple(records), timers=timers),
            None,
            lambda _: Decision(timers=(*timers, SetTimer(GONE_TOPICS, self._config.append_retry_ms))),
        )

    # -- time

    def timer(self, key: tuple[str, ...], now_ms: int) -> Decision:
        """A timer that a decision of this shard set has fired."""
        if key == RETENTION:
            return self._expire(now_ms)
        if key == GONE_TOPICS:
            return self._forget_gone_topics(()) if self._to_compare else self.topics_deleted()
        group = self._groups.get(key[1])
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

    def _expire(self, now_ms: int) -> Decision:
        """O2: tombstones for offsets whose retention is over, and for groups that have nothing left."""
        if not self._to_expire:
            self._to_expire = deque(self._groups)
        records = _next_batch(self._to_expire, self._offsets, lambda group_id: self._expired(group_id, now_ms))
        delay_ms = 0 if self._to_expire else self._config.offsets_retention_check_interval_ms
        decision = Decision(tuple(records), timers=(SetTimer(RETENTION, delay_ms),))

        def failure(error: ErrorCode) -> Decision:
            self._to_expire.clear()
            return Decision(timers=(SetTimer(RETENTION, self._config.append_retry_ms),))

        return self._prepare(decision, None, failure)

    def _expired(self, group_id: str, now_ms: int) -> list[LogRecord]:
        group = self._groups.get(group_id)
        if group is None:
            return []
        gone = expiry.expired(group, self._offsets, now_ms, self._config.offsets_retention_ms)
        records = [commit.offset_tombstone(group_id, *partition) for partition in gone.partitions]
        if gone.nothing_left and group.state is GroupState.EMPTY and not group.pending_members:
            records.append(group_tombstone(group_id))
        return records

    # -- the log

    def apply(self, record: LogRecord, now_ms: int) -> None:
        """A record is in the log: plain batches, live and at recovery."""
        target = self._target(record)
        match decode_key(record.key):
            case OffsetCommitKey() as key if record.value is None:
                self._offsets.apply_tombstone(key)
            case OffsetCommitKey() as key:
                self._exists(key.group, now_ms)
                self._offsets.apply_commit(key, decode_offset_commit_value(record.value or b""))
            case GroupMetadataKey(group_id) if record.value is None:
                self._groups.pop(group_id, None)
            case GroupMetadataKey(group_id):
                loaded = group_from_record(group_id, decode_group_metadata_value(record.value or b""))
                self._groups[group_id] = target if target is not None else loaded
            case None:
                pass

    def apply_transactional(self, producer_id: int, record: LogRecord) -> None:
        """A record of a transactional batch is in the log. Only offsets are ever written in transactions."""
        self._target(record)
        key = decode_key(record.key)
        if isinstance(key, OffsetCommitKey):
            if record.value is None:
                self._offsets.apply_tombstone(key)
                return
            value = decode_offset_commit_value(record.value)
            self._exists(key.group, value.commit_timestamp_ms)
            self._offsets.apply_transactional(producer_id, key, value)

    def apply_marker(self, producer_id: int, commit: bool) -> None:
        """The end marker of a transaction is in the log."""
        self._offsets.apply_marker(producer_id, commit=commit)

    def append_failed(self, decision: Decision, error: ErrorCode) -> Decision:
        """The records of `decision` could not be appended. Nothing has happened; waiting requests are told why."""
        prepared = self._prepared
        require(prepared is not None and prepared.applied == 0, "no decision is being appended")
        if prepared is None or prepared.decision is not decision:
            require(False, "another decision is being appended")
            return NOTHING
        self._prepared = None
        return prepared.failure(append_error(error))

    def loaded(self, now_ms: int) -> Decision:
        """The partition has been read to its end: sessions and retention count from now on (G17)."""
        timers: list[Timer] = [SetTimer(RETENTION, self._config.offsets_retention_check_interval_ms)]
        for group_id, group in self._groups.items():
            draft = Draft(group, self._config, now_ms)
            for member in group.members.values():
                draft.expect_heartbeat(member.member_id, member.session_timeout_ms)
            if len(group.members) > self._config.group_max_size:
                # `group.max.size` was lowered meanwhile: all members rejoin, and the last ones are refused.
                rebalance.prepare(draft, "the group is larger than group.max.size")
            self._groups[group_id] = draft.group
            timers += draft.timers
        # A topic may have been deleted without this shard: before the last stop, or while this shard was loading.
        self._to_compare = deque(self._offsets.group_ids())
        return self._forget_gone_topics(tuple(timers))

    def unloaded(self) -> Decision:
        """This node is no longer the coordinator: whoever waits is sent to find the new one. The shard ends here."""
        require(self._prepared is None, "a decision is being appended")
        replies: list[Reply] = []
        for group in self._groups.values():
            for member in group.members.values():
                if member.join_token is not None:
                    replies.append(Reply(member.join_token, join_error(ErrorCode.NOT_COORDINATOR, member.member_id)))
                if member.sync_token is not None:
                    replies.append(Reply(member.sync_token, sync_error(ErrorCode.NOT_COORDINATOR)))
        return Decision(replies=tuple(replies))

    # -- from draft to decision

    def _decide(self, draft: Draft, failure: _Failure) -> Decision:
        decision = Decision(tuple(draft.records), tuple(draft.replies), tuple(draft.timers))
        if not draft.records:
            self._groups[draft.group.group_id] = draft.group
        return self._prepare(decision, draft.group, failure)

    def _prepare(self, decision: Decision, target: Group | None, failure: _Failure) -> Decision:
        require(self._prepared is None, "the decision before has not been carried out to its end")
        if decision.records:
            self._prepared = _Prepared(decision, target, failure)
        return decision

    def _target(self, record: LogRecord) -> Group | None:
        """Check that `record` is what was decided. Returns the prepared group that now takes its place, if any."""
        prepared = self._prepared
        if prepared is None:
            return None
        require(record == prepared.decision.records[prepared.applied], "applied is not what was decided")
        prepared.applied += 1
        if prepared.applied == len(prepared.decision.records):
            self._prepared = None
        return prepared.target

    def _exists(self, group_id: str, now_ms: int) -> None:
        """Make a group for offsets that have none: without protocol type and members."""
        if group_id not in self._groups:
            self._groups[group_id] = Group(group_id, state_timestamp_ms=now_ms)


def _next_batch(
    groups: deque[str], offsets: OffsetStore, tombstones: Callable[[str], list[LogRecord]]
) -> list[LogRecord]:
    """The tombstones of the first groups in the queue, as many as go into a batch. Groups that are done leave it."""
    records: list[LogRecord] = []
    looked = size_bytes = 0
    while groups and looked < MAX_OFFSETS_PER_LOOK and len(records) < MAX_TOMBSTONES_PER_BATCH:
        looked += 1 + len(offsets.of_group(groups[0]))
        for record in tombstones(groups[0]):
            size_bytes += len(record.key)
            if len(records) == MAX_TOMBSTONES_PER_BATCH or size_bytes > MAX_TOMBSTONE_BYTES_PER_BATCH:
                return records  # the group stays in the queue
            records.append(record)
        groups.popleft()
    return records


def _answer(token: int, response: object) -> Decision:
    return Decision(replies=(Reply(token, response),))


def _session(group: Group, member_id: str) -> tuple[Timer, ...]:
    """The timer of a member's session, set anew: the member is alive."""
    member = group.members.get(member_id)
    if member is None:
        return ()
    return (SetTimer((HEARTBEAT, group.group_id, member_id), member.session_timeout_ms),)


def _unexpected(error: ErrorCode) -> Decision:
    require(False, f"a decision without records failed to append: {error.name}")
    return NOTHING

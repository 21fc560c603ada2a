"""A runtime for one group shard, in memory: it appends, applies, answers and keeps time, and can crash or fail.

Every test drives the shard through it, so that each of them also holds what the runtime relies on: nobody is
answered twice, a decision's records are what is applied, and nothing but the log survives `crash`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.coordinator.decision import CancelTimer, Decision, LogRecord, SetTimer, TransactionalWrite
from ottla.coordinator.group.classic.state import Group, GroupState
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.shard import GroupShard
from ottla.wire.consumer_protocol import encode_subscription
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.coordinator.group.told import Told

START_MS = 1_700_000_000_000
GROUP = "readers"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
HOST = "/127.0.0.1"


class Entry(NamedTuple):
    """One record of the log: plain, of a producer's transaction, or (record None) a transaction's marker."""

    record: LogRecord | None
    producer_id: int = -1
    commit: bool = False


def protocols(*names: str, topics: tuple[str, ...] = ("words",)) -> tuple[JoinGroupRequestProtocol, ...]:
    """What a consumer that subscribes to `topics` offers."""
    return tuple(
        JoinGroupRequestProtocol(name, encode_subscription(ConsumerProtocolSubscription(topics))) for name in names
    )


class Rig:
    """See the module."""

    def __init__(self, config: GroupConfig | None = None) -> None:
        self.config = config or GroupConfig(group_initial_rebalance_delay_ms=0)
        self.now_ms = START_MS
        self.log: list[Entry] = []
        self.answers: dict[int, Any] = {}
        #: Requests since the last crash that have no answer yet.
        self.waiting: set[int] = set()
        self.timers: dict[tuple[str, ...], int] = {}
        self.fail_with: ErrorCode | None = None
        self.told = Told()
        self._token = 0
        self._unique = 0
        #: Ids of topics, None for one that is gone; the others are there, with an id that is not known.
        self.topic_ids: dict[str, bytes | None] = {}
        self.shard = GroupShard(self.config, self.topic_id)
        for decision in self.shard.loaded(self.now_ms):
            self.run(decision)

    # -- the runtime

    def run(self, decision: Decision) -> None:
        """Carry out a decision."""
        if decision.records and self.fail_with is not None:
            error, self.fail_with = self.fail_with, None
            self.run(self.shard.append_failed(decision, error))
            return
        for record in decision.records:
            match decision.transactional:
                case TransactionalWrite(producer_id, _):
                    self.log.append(Entry(record, producer_id))
                    self.shard.apply_transactional(producer_id, record)
                case None:
                    self.log.append(Entry(record))
                    self.shard.apply(record, self.now_ms)
        for reply in decision.replies:
            assert reply.token not in self.answers, "answered twice"
            self.answers[reply.token] = reply.response
            self.waiting.discard(reply.token)
        for timer in decision.timers:
            match timer:
                case SetTimer(key, delay_ms):
                    self.timers[key] = self.now_ms + delay_ms
                case CancelTimer(key):
                    self.timers.pop(key, None)
        self.told.hear((*decision.facts, *self.shard.settled()), self.now_ms)
        if decision.rest is not None:
            self.run(decision.rest())

    def topic_id(self, name: str) -> bytes | None:
        """What the metadata say of a topic."""
        return self.topic_ids.get(name, bytes(16))

    def advance(self, delta_ms: int) -> None:
        """Let time pass, firing timers at their times."""
        until_ms = self.now_ms + delta_ms
        while due := sorted((at, key) for key, at in self.timers.items() if at <= until_ms):
            at_ms, key = due[0]
            self.now_ms = max(self.now_ms, at_ms)
            del self.timers[key]
            self.run(self.shard.timer(key, self.now_ms))
        self.now_ms = until_ms

    def crash(self) -> None:
        """kill -9 and start: whatever is not in the log is gone."""
        self.shard = recover(self.config, self.log, self.now_ms, self.topic_id)
        self.timers.clear()
        self.waiting.clear()
        for decision in self.shard.loaded(self.now_ms):
            self.run(decision)

    def marker(self, producer_id: int, *, commit: bool) -> None:
        """A transaction's end marker arrives."""
        self.log.append(Entry(None, producer_id, commit))
        self.run(self.shard.apply_marker(producer_id, commit))

    @property
    def records(self) -> list[LogRecord]:
        return [entry.record for entry in self.log if entry.record is not None]

    def group(self, group_id: str = GROUP) -> Group:
        group = self.shard.group(group_id)
        assert group is not None
        return group

    def state(self) -> GroupState:
        return self.group().state

    def token(self) -> int:
        self._token += 1
        self.waiting.add(self._token)
        return self._token

    def answer(self, token: int) -> Any:
        return self.answers.get(token)

    # -- requests; those that may have to wait give their token

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        offered: tuple[JoinGroupRequestProtocol, ...] = protocols("range"),
        group_id: str = GROUP,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        two_steps: bool = True,
        skip_assignment: bool = True,
    ) -> int:
        token = self.token()
        self._unique += 1
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=offered,
        )
        self.run(
            self.shard.join_group(
                token,
                request,
                RequestContext("c", HOST),
                self.now_ms,
                unique_id=str(self._unique),
                member_id_required=two_steps,
                skip_assignment=skip_assignment,
            )
        )
        return token

    def joined(self, token: int) -> JoinGroupResponse:
        """The answer of a join that was not refused."""
        answer: JoinGroupResponse = self.answers[token]
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
        return answer

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
    ) -> int:
        token = self.token()
        given = tuple(SyncGroupRequestAssignment(m, a) for m, a in (assignments or {}).items())
        request = SyncGroupRequest(GROUP, generation, member_id, instance, protocol_type, protocol_name, given)
        self.run(self.shard.sync_group(token, request, self.now_ms))
        return token

    def synced(self, token: int) -> bytes:
        answer: SyncGroupResponse = self.answers[token]
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
        return answer.assignment

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        token = self.token()
        self.run(self.shard.heartbeat(token, HeartbeatRequest(GROUP, generation, member_id, instance)))
        answer: HeartbeatResponse = self.answers[token]
        return ErrorCode(answer.error_code)

    def leave(self, *members: str | MemberIdentity, group_id: str = GROUP) -> LeaveGroupResponse:
        identities = tuple(MemberIdentity(m) if isinstance(m, str) else m for m in members)
        token = self.token()
        self.run(self.shard.leave_group(token, LeaveGroupRequest(group_id, identities), self.now_ms))
        answer: LeaveGroupResponse = self.answers[token]
        return answer

    def commit(
        self,
        offset: int,
        *,
        partition: int = 0,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        group_id: str = GROUP,
        topic: str = "words",
        metadata: str | None = "",
        retention_ms: int = -1,
        topic_id: bytes = bytes(16),
        report_missing: bool = True,
    ) -> ErrorCode:
        token = self.token()
        one = OffsetCommitRequestPartition(partition, offset, 0, metadata)
        topics = (OffsetCommitRequestTopic(topic_id, topic, (one,)),)
        request = OffsetCommitRequest(group_id, generation, member_id, instance, retention_ms, topics)
        self.run(self.shard.commit_offsets(token, request, self.now_ms, report_missing=report_missing))
        answer: OffsetCommitResponse = self.answers[token]
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def commit_in_transaction(
        self,
        offset: int,
        *,
        producer_id: int = 7,
        partition: int = 0,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        group_id: str = GROUP,
        metadata: str | None = "",
    ) -> ErrorCode:
        token = self.token()
        one = TxnOffsetCommitRequestPartition(partition, offset, 0, metadata)
        topics = (TxnOffsetCommitRequestTopic("words", (one,)),)
        request = TxnOffsetCommitRequest("tx", group_id, producer_id, 0, generation, member_id, instance, topics)
        self.run(self.shard.commit_transactional_offsets(token, request, self.now_ms))
        answer: TxnOffsetCommitResponse = self.answers[token]
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def fetch(
        self, partition: int = 0, *, require_stable: bool = False, group_id: str = GROUP, topic_id: bytes = bytes(16)
    ) -> OffsetFetchResponsePartitions:
        topics = (OffsetFetchRequestTopics(topic_id, "words", (partition,)),)
        request = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        answer = self.shard.fetch_offsets(request, require_stable=require_stable)
        return answer.topics[0].partitions[0]

    # -- whole rounds

    def join_twice(self, **options: Any) -> int:
        """The two steps of a dynamic member's first join; the token of the second, and its member id is pending."""
        first = self.answers[self.join(**options)]
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return self.join(first.member_id, **options)

    def stable(self, count: int = 2, **options: Any) -> list[str]:
        """A stable group of `count` new dynamic members, the leader first; each is assigned its own id as bytes."""
        tokens = [self.join_twice(**options) for _ in range(count)]
        self.advance(self.config.group_initial_rebalance_delay_ms)
        answers = [self.joined(token) for token in tokens]
        self.complete(answers)
        return [answer.member_id for answer in answers]

    def complete(self, answers: list[JoinGroupResponse]) -> None:
        """Every member of a new generation syncs."""
        leader = next(answer for answer in answers if answer.leader == answer.member_id)
        assignments = {m.member_id: m.member_id.encode() for m in leader.members}
        for answer in answers:
            given = assignments if answer is leader else None
            self.sync(answer.member_id, answer.generation_id, given, protocol_name=answer.protocol_name)
        assert self.state() is GroupState.STABLE


def to_its_end(decision: Decision) -> None:
    """Take a decision that only has more of itself."""
    while decision.rest is not None:
        decision = decision.rest()


def recover(
    config: GroupConfig, log: list[Entry], now_ms: int, topic_id: Callable[[str], bytes | None] = lambda name: bytes(16)
) -> GroupShard:
    """A shard that has read `log`."""
    shard = GroupShard(config, topic_id)
    for entry in log:
        if entry.record is None:
            to_its_end(shard.apply_marker(entry.producer_id, entry.commit))
        elif entry.producer_id >= 0:
            shard.apply_transactional(entry.producer_id, entry.record)
        else:
            shard.apply(entry.record, now_ms)
    return shard

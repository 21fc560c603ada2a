"""The coordinators of `fake_kafka`: groups of one member, committed offsets, transactional ids."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.base.types import TopicPartition
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from tests.client.fake_kafka import Asked, FakeLog

#: From this version of EndTxn on every end raises the epoch (KIP-890).
_EPOCH_PER_TRANSACTION_FROM = 5


class FakeGroup:
    """A group of one member at most."""

    def __init__(self) -> None:
        self.generation = 0
        self.member_id = ""
        self.assignment = b""
        #: Heartbeats are answered REBALANCE_IN_PROGRESS until the member joins again.
        self.rebalancing = False
        self.offsets: dict[TopicPartition, int] = {}
        self._ids_given: set[str] = set()

    def new_member_id(self) -> str:
        """An id that may join."""
        made = f"member-{len(self._ids_given) + 1}"
        self._ids_given.add(made)
        return made

    def knows(self, member_id: str) -> bool:
        """Whether the id was given here and is not forgotten."""
        return member_id in self._ids_given

    def expel(self) -> None:
        """Forget the member, as after a session time-out."""
        self._ids_given.clear()
        self.member_id = ""
        self.generation += 1

    def check(self, member_id: str, generation: int) -> ErrorCode:
        """What a member of this id and generation is told; by hand assigned consumers have neither."""
        if generation < 0 and not self.member_id:
            return ErrorCode.NONE
        if member_id != self.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION


class _Transaction:
    """A transactional id."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = -1
        self.partitions: set[TopicPartition] = set()
        #: First protocol: AddPartitionsToTxn or AddOffsetsToTxn has begun a transaction.
        self.is_open = False
        #: The epoch and the direction of the end before, which may be asked for again.
        self.ended: tuple[int, bool] | None = None
        #: The epoch of who asked for this one.
        self.asked_with = -1


class FakeCoordinator:
    """All groups and transactional ids."""

    def __init__(self, log: "Callable[[str, int], FakeLog]") -> None:
        self.groups: dict[str, FakeGroup] = {}
        self.transactions: dict[str, _Transaction] = {}
        self._log = log
        self._next_producer_id = 1_000
        self.handlers: dict[ApiKey, Callable[[Asked], Any]] = {
            ApiKey.JOIN_GROUP: self._join,
            ApiKey.SYNC_GROUP: self._sync,
            ApiKey.HEARTBEAT: self._heartbeat,
            ApiKey.LEAVE_GROUP: self._leave,
            ApiKey.OFFSET_COMMIT: self._commit,
            ApiKey.OFFSET_FETCH: self._fetch,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
            ApiKey.END_TXN: self._end_transaction,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self._add_offsets,
            ApiKey.TXN_OFFSET_COMMIT: self._commit_in_transaction,
        }

    def group(self, group_id: str) -> FakeGroup:
        """The group, made when it is first asked for."""
        return self.groups.setdefault(group_id, FakeGroup())

    # groups

    def _join(self, asked: "Asked") -> JoinGroupResponse:
        request: JoinGroupRequest = asked.message
        group = self.group(request.group_id)
        member_id = request.member_id
        if not member_id:
            member_id = group.new_member_id()
            if request.group_instance_id is None:
                return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        if not group.knows(member_id):
            return JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        group.generation += 1
        group.member_id = member_id
        group.rebalancing = False
        chosen = request.protocols[0]
        members = (JoinGroupResponseMember(member_id, request.group_instance_id, chosen.metadata),)
        return JoinGroupResponse(
            0, 0, group.generation, request.protocol_type, chosen.name, member_id, False, member_id, members
        )

    def _sync(self, asked: "Asked") -> SyncGroupResponse:
        request: SyncGroupRequest = asked.message
        group = self.group(request.group_id)
        code = group.check(request.member_id, request.generation_id)
        if code is ErrorCode.NONE and group.rebalancing:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code is not ErrorCode.NONE:
            return SyncGroupResponse(error_code=code)
        group.assignment = next((a.assignment for a in request.assignments), group.assignment)
        return SyncGroupResponse(0, 0, request.protocol_type, request.protocol_name, group.assignment)

    def _heartbeat(self, asked: "Asked") -> HeartbeatResponse:
        request: HeartbeatRequest = asked.message
        group = self.group(request.group_id)
        code = group.check(request.member_id, request.generation_id)
        if code is ErrorCode.NONE and group.rebalancing:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        return HeartbeatResponse(0, code)

    def _leave(self, asked: "Asked") -> LeaveGroupResponse:
        request: LeaveGroupRequest = asked.message
        group = self.group(request.group_id)
        group.expel()
        return LeaveGroupResponse(members=tuple(MemberResponse(m.member_id) for m in request.members))

    def _commit(self, asked: "Asked") -> OffsetCommitResponse:
        request: OffsetCommitRequest = asked.message
        group = self.group(request.group_id)
        code = group.check(request.member_id, request.generation_id_or_member_epoch)
        answered = []
        for topic in request.topics:
            if code is ErrorCode.NONE:
                for p in topic.partitions:
                    group.offsets[TopicPartition(topic.name, p.partition_index)] = p.committed_offset
            parts = tuple(OffsetCommitResponsePartition(p.partition_index, code) for p in topic.partitions)
            answered.append(OffsetCommitResponseTopic(topic.topic_id, topic.name, parts))
        return OffsetCommitResponse(topics=tuple(answered))

    def _fetch(self, asked: "Asked") -> OffsetFetchResponse:
        request: OffsetFetchRequest = asked.message
        answered = []
        for wanted in request.groups:
            offsets = self.group(wanted.group_id).offsets
            topics = tuple(
                OffsetFetchResponseTopics(
                    topic.topic_id,
                    topic.name,
                    tuple(
                        OffsetFetchResponsePartitions(p, offsets.get(TopicPartition(topic.name, p), -1))
                        for p in topic.partition_indexes
                    ),
                )
                for topic in wanted.topics or ()
            )
            answered.append(OffsetFetchResponseGroup(wanted.group_id, topics))
        return OffsetFetchResponse(groups=tuple(answered))

    # producers

    def joins_transaction(self, transactional_id: str, tp: TopicPartition) -> None:
        """Records were written for this id."""
        self.transactions[transactional_id].partitions.add(tp)

    def _init_producer_id(self, asked: "Asked") -> InitProducerIdResponse:
        request: InitProducerIdRequest = asked.message
        if request.transactional_id is None:
            self._next_producer_id += 1
            return InitProducerIdResponse(0, 0, self._next_producer_id, 0)
        known = self.transactions.get(request.transactional_id)
        if known is None:
            self._next_producer_id += 1
            known = self.transactions[request.transactional_id] = _Transaction(self._next_producer_id)
        if request.producer_epoch >= 0 and request.producer_epoch == known.asked_with:  # its answer was lost
            return InitProducerIdResponse(0, 0, known.producer_id, known.epoch)
        if request.producer_epoch >= 0 and request.producer_epoch != known.epoch:
            return InitProducerIdResponse(0, ErrorCode.PRODUCER_FENCED, -1, -1)
        if known.is_open and request.producer_epoch >= 0:
            # Kafka 3.x: who asks with the epoch of an open transaction is fenced, and hears of it when it asks again
            known.epoch += 1
            known.is_open = False
            known.asked_with = -1
            self._write_markers(known, commit=False)
            return InitProducerIdResponse(0, ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1)
        known.asked_with = request.producer_epoch
        known.epoch += 1
        known.is_open = False
        self._write_markers(known, commit=False)
        return InitProducerIdResponse(0, 0, known.producer_id, known.epoch)

    def _end_transaction(self, asked: "Asked") -> EndTxnResponse:
        request: EndTxnRequest = asked.message
        known = self.transactions[request.transactional_id]
        raises_epoch = asked.version >= _EPOCH_PER_TRANSACTION_FROM
        again = known.ended == (request.producer_epoch, request.committed)
        if request.producer_epoch != known.epoch and not (raises_epoch and again):
            return EndTxnResponse(0, ErrorCode.PRODUCER_FENCED)
        if not raises_epoch:
            if not known.is_open and not again:
                return EndTxnResponse(0, ErrorCode.INVALID_TXN_STATE)
            known.ended = (known.epoch, request.committed)
            known.is_open = False
            self._write_markers(known, commit=request.committed)
            return EndTxnResponse()
        if request.producer_epoch == known.epoch:
            known.ended = (known.epoch, request.committed)
            known.epoch += 1
            self._write_markers(known, commit=request.committed)
        return EndTxnResponse(0, 0, known.producer_id, known.epoch)

    def _write_markers(self, known: _Transaction, *, commit: bool) -> None:
        for tp in known.partitions:
            self._log(*tp).mark(commit=commit, producer_id=known.producer_id, epoch=known.epoch)
        known.partitions.clear()

    def _add_partitions(self, asked: "Asked") -> AddPartitionsToTxnResponse:
        request: AddPartitionsToTxnRequest = asked.message
        self.transactions[request.v3_and_below_transactional_id].is_open = True
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=tuple(
                AddPartitionsToTxnTopicResult(
                    topic.name, tuple(AddPartitionsToTxnPartitionResult(p) for p in topic.partitions)
                )
                for topic in request.v3_and_below_topics
            )
        )

    def _add_offsets(self, asked: "Asked") -> AddOffsetsToTxnResponse:
        request: AddOffsetsToTxnRequest = asked.message
        self.transactions[request.transactional_id].is_open = True
        return AddOffsetsToTxnResponse()

    def _commit_in_transaction(self, asked: "Asked") -> TxnOffsetCommitResponse:
        request: TxnOffsetCommitRequest = asked.message
        return TxnOffsetCommitResponse(
            topics=tuple(
                TxnOffsetCommitResponseTopic(
                    topic.name, tuple(TxnOffsetCommitResponsePartition(p.partition_index) for p in topic.partitions)
                )
                for topic in request.topics
            )
        )

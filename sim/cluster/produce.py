"""Produce: appends to the leader's log. A transaction's first batch in a partition needs the coordinator's consent."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.types import TopicPartition
from ottla.coordinator.txn.add_partitions_to_txn import produce_error
from ottla.coordinator.txn.states import TransactionVersion
from ottla.wire.batch import BatchHeader, BatchTooLargeError, CorruptBatchError, parse_header, validate
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from sim.cluster.coordinators import TRANSACTIONS_TOPIC, partition_of, transaction_coordinator
from sim.cluster.server import Answer, Context
from sim.history import Answered

if TYPE_CHECKING:
    from sim.cluster.node import Node

_TOPIC_IDS_FROM = 13
_ADDS_PARTITIONS_FROM = 12
_KNOWS_ABORTABLE_FROM = 11
_TELLS_LEADER_FROM = 10


def produce(node: "Node", request: ProduceRequest, context: Context, answer: Answer) -> None:
    """Append the batch of each partition; answer when each one has its result."""
    _Produce(node, request, context, answer).begin()


class _Produce:
    """One request that is being worked on."""

    def __init__(self, node: "Node", request: ProduceRequest, context: Context, answer: Answer) -> None:
        self._node = node
        self._request = request
        self._context = context
        self._answer = answer
        self._results: dict[tuple[int, int], PartitionProduceResponse] = {}
        self._missing = sum(len(topic.partition_data) for topic in request.topic_data)

    def begin(self) -> None:
        """Begin with every partition."""
        if not self._missing:
            self._finish()
        for at, topic in enumerate(self._request.topic_data):
            for number, data in enumerate(topic.partition_data):
                self._one((at, number), topic, data)

    def _one(self, at: tuple[int, int], topic: TopicProduceData, data: PartitionProduceData) -> None:
        node = self._node
        name: str | None = topic.name
        if self._context.version >= _TOPIC_IDS_FROM:
            name = node.image.name_of(topic.topic_id)
            if name is None:
                self._done(at, data.index, ErrorCode.UNKNOWN_TOPIC_ID, -1)
                return
        tp = TopicPartition(name or "", data.index)
        state = node.image.partitions.get(tp)
        if state is None or name is None:
            self._done(at, data.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
            return
        error = node.replica(tp).answering_error()
        payload = bytes(data.records or b"")
        if error is ErrorCode.NONE:
            error, header = _checked(payload, node.image.topics[name].max_message_bytes)
        if error is not ErrorCode.NONE:
            self._done(at, data.index, error, -1)
            return

        def append(guard: int = 0) -> None:
            replica = node.replica(tp)
            refused = replica.answering_error()
            if refused is not ErrorCode.NONE:
                self._done(at, data.index, refused, -1)
                return
            replica.append(
                payload,
                header,
                guard,
                acks=self._request.acks,
                timeout_s=self._request.timeout_ms / 1000,
                answer=lambda code, offset: self._done(at, data.index, code, offset),
            )

        if header.is_transactional and not node.replica(tp).log.producers.is_open(
            header.producer_id, header.producer_epoch
        ):
            self._verify(at, tp, header, append)
        else:
            append()

    def _verify(
        self, at: tuple[int, int], tp: TopicPartition, header: BatchHeader, append: Callable[[int], None]
    ) -> None:
        """Ask the transaction coordinator, then append (KIP-890)."""
        adds = self._context.version >= _ADDS_PARTITIONS_FROM
        producers = self._node.replica(tp).log.producers
        if producers.is_old(header.producer_id, header.producer_epoch):
            self._done(at, tp.partition, ErrorCode.INVALID_PRODUCER_EPOCH, -1)
            return
        guard = producers.guard(header.producer_id, header.producer_epoch, bumps_epoch=adds)

        def verified(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                append(guard)
            else:
                knows = self._context.version >= _KNOWS_ABORTABLE_FROM
                told = produce_error(error, adds_partitions=adds, knows_abortable=knows)
                self._done(at, tp.partition, told, -1)

        verify(
            self._node,
            self._request.transactional_id or "",
            header.producer_id,
            header.producer_epoch,
            tp,
            verified,
            adds=adds,
        )

    def _done(self, at: tuple[int, int], index: int, error: ErrorCode, base_offset: int) -> None:
        data = self._request.topic_data[at[0]].partition_data[at[1]]
        seen = Answered(
            TopicPartition(self._name(at[0]) or "?", index), bytes(data.records or b""), error.name, base_offset
        )
        self._node.cluster.history.add(self._node.host, "produce", "", seen)
        response = PartitionProduceResponse(index, error, base_offset, log_start_offset=0 if base_offset >= 0 else -1)
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._context.version >= _TELLS_LEADER_FROM:
            name = self._name(at[0])
            state = self._node.image.partitions.get(TopicPartition(name or "", index))
            if state is not None and state.leader not in (-1, self._node.node_id):
                response = response._replace(current_leader=LeaderIdAndEpoch(state.leader, state.leader_epoch))
        self._results[at] = response
        self._missing -= 1
        if not self._missing:
            self._finish()

    def _name(self, at: int) -> str | None:
        topic = self._request.topic_data[at]
        return self._node.image.name_of(topic.topic_id) if self._context.version >= _TOPIC_IDS_FROM else topic.name

    def _finish(self) -> None:
        if self._request.acks == 0:
            self._answer(None)
            return
        cluster = self._node.cluster
        leaders = sorted({r.current_leader.leader_id for r in self._results.values()} - {-1})
        self._answer(
            ProduceResponse(
                tuple(
                    TopicProduceResponse(
                        topic.topic_id,
                        topic.name,
                        tuple(self._results[at, number] for number in range(len(topic.partition_data))),
                    )
                    for at, topic in enumerate(self._request.topic_data)
                ),
                throttle_ms(self._node),
                tuple(NodeEndpoint(n, cluster.nodes[n].host, 9092) for n in leaders),
            )
        )


def throttle_ms(node: "Node") -> int:
    """The throttle time of an answer; mostly 0."""
    cluster = node.cluster
    if cluster.rules.throttle and cluster.rng.random() < cluster.rules.throttle:
        return cluster.rng.randrange(10, 1_000)
    return 0


def _checked(payload: bytes, max_bytes: int) -> tuple[ErrorCode, BatchHeader]:
    header = parse_header(payload)
    try:
        validate(payload, 0, header, max_bytes)
    except BatchTooLargeError:
        return ErrorCode.MESSAGE_TOO_LARGE, header
    except CorruptBatchError:
        return ErrorCode.CORRUPT_MESSAGE, header
    return ErrorCode.NONE, header


def verify(
    node: "Node",
    transactional_id: str,
    producer_id: int,
    epoch: int,
    tp: TopicPartition,
    verified: Callable[[ErrorCode], None],
    *,
    adds: bool,
) -> None:
    """Ask the transaction coordinator to add the partition (`adds`), or whether it is in the transaction."""
    transaction = AddPartitionsToTxnTransaction(
        transactional_id, producer_id, epoch, not adds, (AddPartitionsToTxnTopic(tp.topic, (tp.partition,)),)
    )
    version = TransactionVersion.V2 if adds else TransactionVersion.V0

    def call(there: "Node", back: Callable[[ErrorCode], None]) -> None:
        coordinator = transaction_coordinator(there, transactional_id)
        if isinstance(coordinator, ErrorCode):
            back(coordinator)
            return

        def answered(result: AddPartitionsToTxnResult) -> None:
            back(ErrorCode(result.topic_results[0].results_by_partition[0].partition_error_code))

        coordinator.submit(
            lambda token, now_ms: coordinator.shard.add_partitions_to_txn(token, transaction, version, now_ms),
            answered,
        )

    def done(error: ErrorCode | None) -> None:
        verified(ErrorCode.NETWORK_EXCEPTION if error is None else error)

    state = node.image.partitions.get(partition_of(TRANSACTIONS_TOPIC, transactional_id))
    node.cluster.ask(node, -1 if state is None else state.leader, call, done)

"""The APIs of transactions: if this broker has the coordinator of the id, or of the group, that answers."""

from typing import TYPE_CHECKING

from ottla.base.types import TopicPartition
from ottla.coordinator.decision import Decision
from ottla.coordinator.offsets.commit import refuse_transactional_commit
from ottla.coordinator.txn.add_partitions_to_txn import produce_error
from ottla.coordinator.txn.shard import TransactionShard
from ottla.coordinator.txn.states import TransactionVersion
from ottla.testing.history.facts import OffsetsSent
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from sim.cluster.coordinators import (
    OFFSETS_TOPIC,
    ask,
    group_coordinator,
    partition_of,
    transaction_coordinator,
)
from sim.cluster.produce import verify
from sim.cluster.server import Answer, Context
from sim.history import Decided

if TYPE_CHECKING:
    from sim.cluster.node import Node

_BUMPS_EPOCH_FROM = 5
_ADDS_PARTITIONS_FROM = 5
_KNOWS_ABORTABLE_FROM = 4


def init_producer_id(node: "Node", request: InitProducerIdRequest, context: Context, answer: Answer) -> None:
    """A producer id and epoch: from any broker for a plain producer, from the coordinator for a transactional one."""
    if request.transactional_id is None:
        producer_id = node.cluster.controller.new_producer_id()
        answer(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
        return
    ask(
        transaction_coordinator(node, request.transactional_id),
        lambda shard, token, now_ms: shard.init_producer_id(token, request, now_ms),
        answer,
        lambda error: InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1),
    )


def add_partitions_to_txn(node: "Node", request: AddPartitionsToTxnRequest, context: Context, answer: Answer) -> None:
    """Versions 0 to 3, for clients that use the first protocol."""
    transaction = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        False,
        request.v3_and_below_topics,
    )

    def refuse(error: ErrorCode) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=tuple(
                AddPartitionsToTxnTopicResult(
                    topic.name, tuple(AddPartitionsToTxnPartitionResult(p, error) for p in topic.partitions)
                )
                for topic in transaction.topics
            )
        )

    def answered(result: AddPartitionsToTxnResult | AddPartitionsToTxnResponse) -> None:
        if isinstance(result, AddPartitionsToTxnResult):
            result = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)
        answer(result)

    ask(
        transaction_coordinator(node, transaction.transactional_id),
        lambda shard, token, now_ms: shard.add_partitions_to_txn(token, transaction, TransactionVersion.V0, now_ms),
        answered,
        refuse,
    )


def add_offsets_to_txn(node: "Node", request: AddOffsetsToTxnRequest, context: Context, answer: Answer) -> None:
    """Add the group's partition of `__consumer_offsets` to the transaction (first protocol)."""
    offsets = partition_of(OFFSETS_TOPIC, request.group_id)
    ask(
        transaction_coordinator(node, request.transactional_id),
        lambda shard, token, now_ms: shard.add_offsets_to_txn(token, request, offsets, now_ms),
        answer,
        lambda error: AddOffsetsToTxnResponse(error_code=error),
    )


def end_txn(node: "Node", request: EndTxnRequest, context: Context, answer: Answer) -> None:
    """Commit or abort."""
    version = TransactionVersion.V2 if context.version >= _BUMPS_EPOCH_FROM else TransactionVersion.V0

    def end(shard: TransactionShard, token: int, now_ms: int) -> Decision:
        decision = shard.end_txn(token, request, version, now_ms)
        if decision.records:
            told = Decided(request.transactional_id, request.producer_epoch, request.committed)
            sender = f"{told.transactional_id} {request.producer_id}/{told.epoch}"
            what = "commit" if told.commit else "abort"
            node.cluster.history.add(node.host, "transaction ends", f"{sender}: {what}", told)
        return decision

    ask(
        transaction_coordinator(node, request.transactional_id),
        end,
        answer,
        lambda error: EndTxnResponse(error_code=error),
    )


def txn_offset_commit(node: "Node", request: TxnOffsetCommitRequest, context: Context, answer: Answer) -> None:
    """Commit a group's offsets in a transaction."""
    coordinator = group_coordinator(node, request.group_id)
    if isinstance(coordinator, ErrorCode):
        answer(refuse_transactional_commit(request, coordinator))
        return
    producers = coordinator.log.producers
    adds = context.version >= _ADDS_PARTITIONS_FROM
    guard = 0

    def commit(error: ErrorCode = ErrorCode.NONE) -> None:
        if error is not ErrorCode.NONE:
            knows = context.version >= _KNOWS_ABORTABLE_FROM
            told = produce_error(error, adds_partitions=adds, knows_abortable=knows)
            answer(refuse_transactional_commit(request, told))
            return
        again = group_coordinator(node, request.group_id)
        if again is not coordinator:
            answer(refuse_transactional_commit(request, ErrorCode.NOT_COORDINATOR))
            return

        def answered(response: TxnOffsetCommitResponse) -> None:
            _note(node, request, response)
            answer(response)

        coordinator.submit(
            lambda token, now_ms: coordinator.shard.commit_transactional_offsets(token, request, now_ms),
            answered,
            guard=guard,
        )

    if producers.is_old(request.producer_id, request.producer_epoch):
        answer(refuse_transactional_commit(request, ErrorCode.INVALID_PRODUCER_EPOCH))
    elif producers.is_open(request.producer_id, request.producer_epoch):
        commit()
    else:
        guard = producers.guard(request.producer_id, request.producer_epoch, bumps_epoch=adds)
        verify(
            node,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            coordinator.tp,
            commit,
            adds=adds,
        )


def _note(node: "Node", request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse) -> None:
    """Note the offsets. The checkers look for those without a generation, which nothing can fence."""
    if any(part.error_code for topic in response.topics for part in topic.partitions):
        return
    offsets = {
        TopicPartition(topic.name, part.partition_index): part.committed_offset
        for topic in request.topics
        for part in topic.partitions
    }
    what = "offsets in txn" if request.generation_id >= 0 else "unfenced offsets"
    sender = f"{request.transactional_id} of {request.member_id or 'nobody'}/{request.generation_id}"
    text = f"{sender}: {', '.join(f'{tp}@{offset}' for tp, offset in offsets.items())}"
    txn = f"one of {request.transactional_id}"
    fact = OffsetsSent(txn, request.group_id, offsets, request.member_id, request.generation_id)
    node.cluster.history.add(node.host, what, text, fact)

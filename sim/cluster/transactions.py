"""The APIs of transactions: to the coordinator of the id, or of the group, if it is this broker."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.coordinator.decision import Decision
from ottla.coordinator.offsets.commit import refuse_transactional_commit
from ottla.coordinator.txn.add_partitions_to_txn import produce_error
from ottla.coordinator.txn.shard import TransactionShard
from ottla.coordinator.txn.states import TransactionVersion
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
    Coordinator,
    group_coordinator,
    partition_of,
    transaction_coordinator,
)
from sim.cluster.produce import verify
from sim.cluster.server import Answer, Context

if TYPE_CHECKING:
    from sim.cluster.node import Node

_BUMPS_EPOCH_FROM = 5
_ADDS_PARTITIONS_FROM = 5
_KNOWS_ABORTABLE_FROM = 4


def init_producer_id(node: "Node", request: InitProducerIdRequest, context: Context, answer: Answer) -> None:
    """An identity: any broker's for a plain producer, the coordinator's for a transactional one."""
    if request.transactional_id is None:
        producer_id = node.cluster.controller.new_producer_id()
        answer(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
        return
    _ask(
        node,
        request.transactional_id,
        lambda c: lambda token, now_ms: c.shard.init_producer_id(token, request, now_ms),
        answer,
        lambda error: InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1),
    )


def add_partitions_to_txn(node: "Node", request: AddPartitionsToTxnRequest, context: Context, answer: Answer) -> None:
    """Versions 0 to 3, of clients of the first protocol."""
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

    _ask(
        node,
        transaction.transactional_id,
        lambda c: (
            lambda token, now_ms: c.shard.add_partitions_to_txn(token, transaction, TransactionVersion.V0, now_ms)
        ),
        answered,
        refuse,
    )


def add_offsets_to_txn(node: "Node", request: AddOffsetsToTxnRequest, context: Context, answer: Answer) -> None:
    """The group's offsets join the transaction (first protocol)."""
    offsets = partition_of(OFFSETS_TOPIC, request.group_id)
    _ask(
        node,
        request.transactional_id,
        lambda c: lambda token, now_ms: c.shard.add_offsets_to_txn(token, request, offsets, now_ms),
        answer,
        lambda error: AddOffsetsToTxnResponse(error_code=error),
    )


def end_txn(node: "Node", request: EndTxnRequest, context: Context, answer: Answer) -> None:
    """Commit or abort."""
    version = TransactionVersion.V2 if context.version >= _BUMPS_EPOCH_FROM else TransactionVersion.V0
    _ask(
        node,
        request.transactional_id,
        lambda c: lambda token, now_ms: c.shard.end_txn(token, request, version, now_ms),
        answer,
        lambda error: EndTxnResponse(error_code=error),
    )


def txn_offset_commit(node: "Node", request: TxnOffsetCommitRequest, context: Context, answer: Answer) -> None:
    """A group's offsets, to be committed with a transaction."""
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
    """For people, and for the checkers: offsets that no generation fences."""
    if any(part.error_code for topic in response.topics for part in topic.partitions):
        return
    offsets = [f"{t.name}-{p.partition_index}@{p.committed_offset}" for t in request.topics for p in t.partitions]
    what = "offsets in txn" if request.generation_id >= 0 else "unfenced offsets"
    sender = f"{request.transactional_id} of {request.member_id or 'nobody'}/{request.generation_id}"
    node.cluster.history.add(node.host, what, f"{sender}: {', '.join(offsets)}")


def _ask(
    node: "Node",
    transactional_id: str,
    call_of: Callable[[Coordinator[TransactionShard]], Callable[[int, int], Decision]],
    answer: Answer,
    refuse: Callable[[ErrorCode], Any],
) -> None:
    coordinator = transaction_coordinator(node, transactional_id)
    if isinstance(coordinator, ErrorCode):
        answer(refuse(coordinator))
    else:
        coordinator.submit(call_of(coordinator), answer)

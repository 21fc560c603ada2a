"""AddPartitionsToTxn, versions 0–5: one transaction up to version 3, several from version 4 on (KIP-890)."""

from typing import Any, Protocol

from ottla.broker.handlers.fencing import fenced_as
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.transactions import HasTransactions
from ottla.broker.runtime.answers import gather, ready
from ottla.coordinator.txn.states import TransactionVersion
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_MANY_FROM = 4
_KIP_890_FROM = 5
#: From here on a client knows PRODUCER_FENCED (KIP-588).
_KNOWS_FENCED_FROM = 2


class _Node(HasPartitions, HasTransactions, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: AddPartitionsToTxnRequest, context: RequestContext) -> Any:
    """All partitions of a transaction are added, or none."""
    if context.api_version >= _MANY_FROM:
        version = TransactionVersion.V2 if context.api_version >= _KIP_890_FROM else TransactionVersion.V0
        asked = [_ask(node, each, version) for each in request.transactions]
        return gather(asked, lambda results: AddPartitionsToTxnResponse(results_by_transaction=tuple(results)))
    one = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        False,
        request.v3_and_below_topics,
    )
    knows = context.api_version >= _KNOWS_FENCED_FROM
    return gather(
        [_ask(node, one, TransactionVersion.V0)],
        lambda results: AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=tuple(_told(topic, knows) for topic in results[0].topic_results)
        ),
    )


def _told(topic: AddPartitionsToTxnTopicResult, knows_fenced: bool) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        topic.name,
        tuple(
            AddPartitionsToTxnPartitionResult(index, fenced_as(error, knows_fenced=knows_fenced))
            for index, error in topic.results_by_partition
        ),
    )


def _ask(node: _Node, transaction: AddPartitionsToTxnTransaction, version: TransactionVersion) -> Any:
    unknown = [
        (topic.name, index)
        for topic in transaction.topics
        for index in topic.partitions
        if node.partitions.find(topic.name, index) is None
    ]
    runner = node.transactions.find(transaction.transactional_id)
    error: ErrorCode | None = runner if isinstance(runner, ErrorCode) else None
    if unknown and error is None:
        # As in Kafka: if one partition does not exist, none is added.
        error = ErrorCode.OPERATION_NOT_ATTEMPTED
    if error is not None or isinstance(runner, ErrorCode):
        missing = frozenset(unknown)
        return ready(
            AddPartitionsToTxnResult(
                transaction.transactional_id,
                tuple(_refuse(topic, missing, error or ErrorCode.NONE) for topic in transaction.topics),
            )
        )
    shard = runner.shard
    return runner.submit(lambda token, now_ms: shard.add_partitions_to_txn(token, transaction, version, now_ms))


def _refuse(
    topic: AddPartitionsToTxnTopic, missing: frozenset[tuple[str, int]], error: ErrorCode
) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        topic.name,
        tuple(
            AddPartitionsToTxnPartitionResult(
                index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if (topic.name, index) in missing else error
            )
            for index in topic.partitions
        ),
    )

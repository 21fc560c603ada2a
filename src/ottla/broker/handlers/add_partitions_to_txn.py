"""AddPartitionsToTxn, versions 0–5: one transaction up to version 3, several from version 4 on (KIP-890)."""

from collections.abc import Mapping
from typing import Any, Protocol

from ottla.broker.handlers.fencing import fenced_as
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.names import INTERNAL_TOPICS
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.transactions import HasTransactions
from ottla.broker.runtime.answers import gather, ready
from ottla.coordinator.txn.states import TransactionVersion
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_MANY_FROM = 4
_KIP_890_FROM = 5
#: From here on a client knows PRODUCER_FENCED (KIP-588).
_KNOWS_FENCED_FROM = 2


class _Node(HasAccess, HasPartitions, HasTransactions, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: AddPartitionsToTxnRequest, context: RequestContext) -> Any:
    """All partitions of a transaction are added, or none."""
    if context.api_version >= _MANY_FROM:
        # These versions are for other brokers: Apache Kafka asks them for what it asks of brokers.
        if not node.access.allows_cluster(context, AclOperation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
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
    refused = _refused(node, one, context)
    asked_one = _ask(node, one, TransactionVersion.V0) if refused is None else ready(refused)
    return gather(
        [asked_one],
        lambda results: AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=tuple(_told(topic, knows) for topic in results[0].topic_results)
        ),
    )


def _refused(
    node: _Node, one: AddPartitionsToTxnTransaction, context: RequestContext
) -> AddPartitionsToTxnResult | None:
    """The answer for who may not write in this transaction, or not to all of the topics. None is added then."""
    if not node.access.is_on:
        return None
    if not node.access.allows(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, one.transactional_id):
        return _refuse_all(one, {}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    names = (topic.name for topic in one.topics if topic.name not in INTERNAL_TOPICS)
    refused = node.access.refused(context, AclOperation.WRITE, ResourceType.TOPIC, names)
    errors = {
        (topic.name, index): ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for topic in one.topics
        if topic.name in refused or topic.name in INTERNAL_TOPICS
        for index in topic.partitions
    }
    if not errors:
        return None
    missing = dict.fromkeys(_missing(node, one), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _refuse_all(one, missing | errors, ErrorCode.OPERATION_NOT_ATTEMPTED)


def _told(topic: AddPartitionsToTxnTopicResult, knows_fenced: bool) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        topic.name,
        tuple(
            AddPartitionsToTxnPartitionResult(index, fenced_as(error, knows_fenced=knows_fenced))
            for index, error in topic.results_by_partition
        ),
    )


def _ask(node: _Node, transaction: AddPartitionsToTxnTransaction, version: TransactionVersion) -> Any:
    unknown = _missing(node, transaction)
    runner = node.transactions.find(transaction.transactional_id)
    error: ErrorCode | None = runner if isinstance(runner, ErrorCode) else None
    if unknown and error is None:
        # As in Kafka: if one partition does not exist, none is added.
        error = ErrorCode.OPERATION_NOT_ATTEMPTED
    if error is not None or isinstance(runner, ErrorCode):
        missing = dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return ready(_refuse_all(transaction, missing, error or ErrorCode.NONE))
    shard = runner.shard
    return runner.submit(lambda token, now_ms: shard.add_partitions_to_txn(token, transaction, version, now_ms))


def _missing(node: _Node, transaction: AddPartitionsToTxnTransaction) -> list[tuple[str, int]]:
    """The partitions that do not exist."""
    return [
        (topic.name, index)
        for topic in transaction.topics
        for index in topic.partitions
        if node.partitions.find(topic.name, index) is None
    ]


def _refuse_all(
    transaction: AddPartitionsToTxnTransaction, errors: Mapping[tuple[str, int], ErrorCode], other: ErrorCode
) -> AddPartitionsToTxnResult:
    """Some partitions have errors of their own; the others are not added for `other`."""
    return AddPartitionsToTxnResult(
        transaction.transactional_id,
        tuple(
            AddPartitionsToTxnTopicResult(
                topic.name,
                tuple(
                    AddPartitionsToTxnPartitionResult(index, errors.get((topic.name, index), other))
                    for index in topic.partitions
                ),
            )
            for topic in transaction.topics
        ),
    )

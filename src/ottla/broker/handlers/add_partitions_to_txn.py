"""AddPartitionsToTxn, versions 0–5: one transaction up to version 3, several from version 4 on (KIP-890)."""

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from ottla.broker.handlers.fencing import fenced_as
from ottla.broker.handlers.parts import are_many
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.names import INTERNAL_TOPICS, NOT_IN_TRANSACTIONS
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.transactions import HasTransactions
from ottla.broker.runtime.answers import gather, ready
from ottla.broker.runtime.shard import ShardRunner
from ottla.coordinator.txn.shard import TransactionShard
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

#: A partition by topic and number.
_Place: TypeAlias = tuple[str, int]
#: Some partitions have errors of their own; the others are not added for another one.
_Refusal: TypeAlias = tuple[Mapping[_Place, ErrorCode], ErrorCode]

_MANY_FROM = 4
_KIP_890_FROM = 5
#: Transactions that are carried out at once: each takes some 60 microseconds. More have a turn each.
_AT_ONCE = 50
#: From here on a client knows PRODUCER_FENCED (KIP-588).
_KNOWS_FENCED_FROM = 2


class _Node(HasAccess, HasPartitions, HasSlices, HasTransactions, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: AddPartitionsToTxnRequest, context: RequestContext) -> Any:
    """All partitions of a transaction are added, or none."""
    many = context.api_version >= _MANY_FROM
    if many and not node.access.allows_cluster(context, AclOperation.CLUSTER_ACTION):
        # These versions are for other brokers: Apache Kafka asks them for what it asks of brokers.
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    one = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        False,
        request.v3_and_below_topics,
    )
    transactions = request.transactions if many else (one,)
    named = [topic for each in transactions for topic in each.topics]
    if are_many(named, "partitions") or len(transactions) > _AT_ONCE:
        return node.slices.start(_slowly(node, transactions, context), "adding many partitions to a transaction")
    asked = []
    for each in transactions:
        needed = _needed(node, each, context)
        refused = node.access.refused(context, AclOperation.WRITE, ResourceType.TOPIC, needed or ())
        found = _find(node, each, context, _all_missing(node, each), None if needed is None else refused)
        asked.append(ready(_refuse_all(each, found)) if isinstance(found, tuple) else _ask(found, each, context))
    return gather(asked, lambda results: _response(results, context))


async def _slowly(
    node: _Node, transactions: Sequence[AddPartitionsToTxnTransaction], context: RequestContext
) -> AddPartitionsToTxnResponse:
    """The partitions are looked for while others are served; what is there is added in one decision."""
    results: list[AddPartitionsToTxnResult] = []
    for each in transactions:
        missing: list[_Place] = []
        needed = _needed(node, each, context)
        refused = await node.access.refused_of_many(
            node.slices, context, AclOperation.WRITE, ResourceType.TOPIC, needed or ()
        )
        await node.slices.run(counted(context, _look(node, each, missing)))
        found = _find(node, each, context, missing, None if needed is None else refused)
        if not isinstance(found, tuple):
            results.append(await _ask(found, each, context))
        else:
            told: list[AddPartitionsToTxnTopicResult] = []
            await node.slices.run(counted(context, _refuse(each, found, told)))
            results.append(AddPartitionsToTxnResult(each.transactional_id, tuple(told)))
    return _response(results, context)


def _needed(node: _Node, one: AddPartitionsToTxnTransaction, context: RequestContext) -> Collection[str] | None:
    """The topics to which who asks needs the right to write; None: the transaction is not his to write in."""
    if context.api_version >= _MANY_FROM or not node.access.is_on:
        return ()
    if not node.access.allows(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, one.transactional_id):
        return None
    return [topic.name for topic in one.topics if topic.name not in INTERNAL_TOPICS]


def _response(results: Sequence[AddPartitionsToTxnResult], context: RequestContext) -> AddPartitionsToTxnResponse:
    if context.api_version >= _MANY_FROM:
        return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))
    told = results[0].topic_results
    if context.api_version < _KNOWS_FENCED_FROM:
        told = tuple(_told(topic) for topic in told)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=told)


def _told(topic: AddPartitionsToTxnTopicResult) -> AddPartitionsToTxnTopicResult:
    """As clients before KIP-588 know it."""
    return AddPartitionsToTxnTopicResult(
        topic.name,
        tuple(
            AddPartitionsToTxnPartitionResult(index, fenced_as(error, knows_fenced=False))
            for index, error in topic.results_by_partition
        ),
    )


def _find(
    node: _Node,
    one: AddPartitionsToTxnTransaction,
    context: RequestContext,
    missing: Sequence[_Place],
    refused: Container[str] | None,
) -> "ShardRunner[TransactionShard] | _Refusal":
    """Who adds to a transaction, or why nothing is added.

    `missing` are those of its partitions that do not exist, `refused` the topics that may not be written to; None:
    nothing may be written in this transaction.
    """
    if refused is None:
        return {}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    closed = NOT_IN_TRANSACTIONS if context.api_version >= _MANY_FROM else INTERNAL_TOPICS
    errors = {
        (topic.name, index): ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for topic in one.topics
        if topic.name in refused or topic.name in closed
        for index in topic.partitions
    }
    unknown = dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if errors:
        return unknown | errors, ErrorCode.OPERATION_NOT_ATTEMPTED
    runner = node.transactions.find(one.transactional_id)
    if isinstance(runner, ErrorCode):
        return unknown, runner
    # As in Kafka: if one partition does not exist, none is added.
    return (unknown, ErrorCode.OPERATION_NOT_ATTEMPTED) if missing else runner


def _ask(
    runner: ShardRunner[TransactionShard], transaction: AddPartitionsToTxnTransaction, context: RequestContext
) -> Any:
    """A future of one transaction's answer."""
    shard = runner.shard
    version = TransactionVersion.V2 if context.api_version >= _KIP_890_FROM else TransactionVersion.V0
    return runner.submit(lambda token, now_ms: shard.add_partitions_to_txn(token, transaction, version, now_ms))


def _look(node: _Node, transaction: AddPartitionsToTxnTransaction, missing: list[_Place]) -> Iterator[None]:
    """Find the partitions that do not exist, in steps."""
    for topic in transaction.topics:
        for index in topic.partitions:
            if node.partitions.find(topic.name, index) is None:
                missing.append((topic.name, index))
            yield


def _all_missing(node: _Node, transaction: AddPartitionsToTxnTransaction) -> list[_Place]:
    missing: list[_Place] = []
    for _ in _look(node, transaction, missing):
        pass
    return missing


def _refuse_all(transaction: AddPartitionsToTxnTransaction, refusal: _Refusal) -> AddPartitionsToTxnResult:
    told: list[AddPartitionsToTxnTopicResult] = []
    for _ in _refuse(transaction, refusal, told):
        pass
    return AddPartitionsToTxnResult(transaction.transactional_id, tuple(told))


def _refuse(
    transaction: AddPartitionsToTxnTransaction, refusal: _Refusal, told: list[AddPartitionsToTxnTopicResult]
) -> Iterator[None]:
    """Tell why nothing is added, in steps."""
    errors, other = refusal
    for topic in transaction.topics:
        results: list[AddPartitionsToTxnPartitionResult] = []
        for index in topic.partitions:
            results.append(AddPartitionsToTxnPartitionResult(index, errors.get((topic.name, index), other)))
            yield
        told.append(AddPartitionsToTxnTopicResult(topic.name, tuple(results)))

"""Requests about the transactional id `x`, and the answers' types, for tests that look at one step."""

from __future__ import annotations

from ottla.base.types import TopicPartition
from ottla.coordinator.decision import Decision
from ottla.coordinator.txn.states import TransactionVersion
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.coordinator.txn.runtime import T0, ShardRuntime

V0, V2 = TransactionVersion.V0, TransactionVersion.V2


def init_decision(runtime: ShardRuntime, request: InitProducerIdRequest | None = None) -> Decision:
    """What InitProducerId decides; by default a producer that names no id."""
    asked = request or InitProducerIdRequest("x", 60_000)
    return runtime.shard.init_producer_id(runtime.token(), asked, runtime.now_ms)


def init(runtime: ShardRuntime, request: InitProducerIdRequest | None = None) -> InitProducerIdResponse:
    """InitProducerId, carried out."""
    response = runtime.answer(init_decision(runtime, request))
    assert isinstance(response, InitProducerIdResponse)
    return response


def add_decision(
    runtime: ShardRuntime,
    producer_id: int,
    epoch: int,
    *partitions: TopicPartition,
    version: TransactionVersion = V2,
    verify_only: bool = False,
) -> Decision:
    """What AddPartitionsToTxn decides, or what a produce to these partitions asks."""
    topics = tuple(AddPartitionsToTxnTopic(topic, (partition,)) for topic, partition in partitions)
    asked = AddPartitionsToTxnTransaction("x", producer_id, epoch, verify_only, topics)
    return runtime.shard.add_partitions_to_txn(runtime.token(), asked, version, runtime.now_ms)


def errors(response: object) -> list[ErrorCode]:
    """The errors of an AddPartitionsToTxnResult, in the order the partitions were named."""
    assert isinstance(response, AddPartitionsToTxnResult)
    results = (partition for topic in response.topic_results for partition in topic.results_by_partition)
    return [ErrorCode(result.partition_error_code) for result in results]


def add(
    runtime: ShardRuntime,
    producer_id: int,
    epoch: int,
    *partitions: TopicPartition,
    version: TransactionVersion = V2,
    verify_only: bool = False,
) -> list[ErrorCode]:
    """AddPartitionsToTxn, carried out; the errors of its partitions."""
    decision = add_decision(runtime, producer_id, epoch, *partitions, version=version, verify_only=verify_only)
    return errors(runtime.answer(decision))


def end_decision(
    runtime: ShardRuntime, producer_id: int, epoch: int, *, commit: bool, version: TransactionVersion = V2
) -> Decision:
    """What EndTxn decides."""
    request = EndTxnRequest("x", producer_id, epoch, commit)
    return runtime.shard.end_txn(runtime.token(), request, version, runtime.now_ms)


def end(
    runtime: ShardRuntime, producer_id: int, epoch: int, *, commit: bool, version: TransactionVersion = V2
) -> EndTxnResponse:
    """EndTxn, carried out; markers are left to the test."""
    response = runtime.answer(end_decision(runtime, producer_id, epoch, commit=commit, version=version))
    assert isinstance(response, EndTxnResponse)
    return response


def ongoing(runtime: ShardRuntime, *partitions: TopicPartition) -> int:
    """A transaction of `x` with epoch 0 and these partitions (t-0 unless told); its producer id."""
    producer_id = init(runtime).producer_id
    assert set(add(runtime, producer_id, 0, *(partitions or (T0,)))) == {ErrorCode.NONE}
    return producer_id

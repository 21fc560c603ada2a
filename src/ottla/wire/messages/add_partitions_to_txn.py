"""add_partitions_to_txn messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class AddPartitionsToTxnTopic(NamedTuple):
    name: str = ""
    partitions: tuple[int, ...] = ()


class AddPartitionsToTxnTransaction(NamedTuple):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    verify_only: bool = False
    topics: tuple[AddPartitionsToTxnTopic, ...] = ()


class AddPartitionsToTxnRequest(NamedTuple):
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = ()
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = ()


class AddPartitionsToTxnPartitionResult(NamedTuple):
    partition_index: int = 0
    partition_error_code: int = 0


class AddPartitionsToTxnTopicResult(NamedTuple):
    name: str = ""
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = ()


class AddPartitionsToTxnResult(NamedTuple):
    transactional_id: str = ""
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = ()


class AddPartitionsToTxnResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = ()
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = ()


declare(
    AddPartitionsToTxnTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", ["int32"], 0, LATEST),
    ),
    flexible_from=3,
)
declare(
    AddPartitionsToTxnTransaction,
    (
        Field("transactional_id", "string", 0, LATEST),
        Field("producer_id", "int64", 0, LATEST),
        Field("producer_epoch", "int16", 0, LATEST),
        Field("verify_only", "bool", 0, LATEST),
        Field("topics", [AddPartitionsToTxnTopic], 0, LATEST),
    ),
    flexible_from=4,
)
declare(
    AddPartitionsToTxnRequest,
    (
        Field("transactions", [AddPartitionsToTxnTransaction], 4, LATEST, ignorable=False),
        Field("v3_and_below_transactional_id", "string", 0, 3),
        Field("v3_and_below_producer_id", "int64", 0, 3),
        Field("v3_and_below_producer_epoch", "int16", 0, 3),
        Field("v3_and_below_topics", [AddPartitionsToTxnTopic], 0, 3),
    ),
    flexible_from=3,
)
declare(
    AddPartitionsToTxnPartitionResult,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("partition_error_code", "int16", 0, LATEST),
    ),
    flexible_from=3,
)
declare(
    AddPartitionsToTxnTopicResult,
    (
        Field("name", "string", 0, LATEST),
        Field("results_by_partition", [AddPartitionsToTxnPartitionResult], 0, LATEST),
    ),
    flexible_from=3,
)
declare(
    AddPartitionsToTxnResult,
    (
        Field("transactional_id", "string", 0, LATEST),
        Field("topic_results", [AddPartitionsToTxnTopicResult], 0, LATEST),
    ),
    flexible_from=4,
)
declare(
    AddPartitionsToTxnResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 4, LATEST),
        Field("results_by_transaction", [AddPartitionsToTxnResult], 4, LATEST),
        Field("results_by_topic_v3_and_below", [AddPartitionsToTxnTopicResult], 0, 3),
    ),
    flexible_from=3,
)

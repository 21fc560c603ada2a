"""describe_transactions messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class DescribeTransactionsRequest(NamedTuple):
    transactional_ids: tuple[str, ...] = ()


class TopicData(NamedTuple):
    topic: str = ""
    partitions: tuple[int, ...] = ()


class TransactionState(NamedTuple):
    error_code: int = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: tuple[TopicData, ...] = ()


class DescribeTransactionsResponse(NamedTuple):
    throttle_time_ms: int = 0
    transaction_states: tuple[TransactionState, ...] = ()


declare(
    DescribeTransactionsRequest,
    (Field("transactional_ids", ["string"], 0, LATEST),),
    flexible_from=0,
)
declare(
    TopicData,
    (
        Field("topic", "string", 0, LATEST),
        Field("partitions", ["int32"], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    TransactionState,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("transactional_id", "string", 0, LATEST),
        Field("transaction_state", "string", 0, LATEST),
        Field("transaction_timeout_ms", "int32", 0, LATEST),
        Field("transaction_start_time_ms", "int64", 0, LATEST),
        Field("producer_id", "int64", 0, LATEST),
        Field("producer_epoch", "int16", 0, LATEST),
        Field("topics", [TopicData], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    DescribeTransactionsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("transaction_states", [TransactionState], 0, LATEST),
    ),
    flexible_from=0,
)

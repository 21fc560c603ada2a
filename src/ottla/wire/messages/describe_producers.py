"""describe_producers messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class TopicRequest(NamedTuple):
    name: str = ""
    partition_indexes: tuple[int, ...] = ()


class DescribeProducersRequest(NamedTuple):
    topics: tuple[TopicRequest, ...] = ()


class ProducerState(NamedTuple):
    producer_id: int = 0
    producer_epoch: int = 0
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = 0
    current_txn_start_offset: int = -1


class PartitionResponse(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    active_producers: tuple[ProducerState, ...] = ()


class TopicResponse(NamedTuple):
    name: str = ""
    partitions: tuple[PartitionResponse, ...] = ()


class DescribeProducersResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: tuple[TopicResponse, ...] = ()


declare(
    TopicRequest,
    (
        Field("name", "string", 0, LATEST),
        Field("partition_indexes", ["int32"], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    DescribeProducersRequest,
    (Field("topics", [TopicRequest], 0, LATEST),),
    flexible_from=0,
)
declare(
    ProducerState,
    (
        Field("producer_id", "int64", 0, LATEST),
        Field("producer_epoch", "int32", 0, LATEST),
        Field("last_sequence", "int32", 0, LATEST),
        Field("last_timestamp", "int64", 0, LATEST),
        Field("coordinator_epoch", "int32", 0, LATEST),
        Field("current_txn_start_offset", "int64", 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    PartitionResponse,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("active_producers", [ProducerState], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    TopicResponse,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [PartitionResponse], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    DescribeProducersResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("topics", [TopicResponse], 0, LATEST),
    ),
    flexible_from=0,
)

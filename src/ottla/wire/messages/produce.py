"""produce messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.codec import NULL_UUID, Buffer
from ottla.wire.schema import LATEST, Field, declare


class PartitionProduceData(NamedTuple):
    index: int = 0  # type: ignore[assignment]
    records: Buffer | None = None


class TopicProduceData(NamedTuple):
    topic_id: bytes = NULL_UUID
    name: str = ""
    partition_data: tuple[PartitionProduceData, ...] = ()


class ProduceRequest(NamedTuple):
    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: tuple[TopicProduceData, ...] = ()


class BatchIndexAndErrorMessage(NamedTuple):
    batch_index: int = 0
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int = -1
    leader_epoch: int = -1


class PartitionProduceResponse(NamedTuple):
    index: int = 0  # type: ignore[assignment]
    error_code: int = 0
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = ()
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()


class TopicProduceResponse(NamedTuple):
    topic_id: bytes = NULL_UUID
    name: str = ""
    partition_responses: tuple[PartitionProduceResponse, ...] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class ProduceResponse(NamedTuple):
    responses: tuple[TopicProduceResponse, ...] = ()
    throttle_time_ms: int = 0
    node_endpoints: tuple[NodeEndpoint, ...] = ()


declare(
    PartitionProduceData,
    (
        Field("index", "int32", 0, LATEST),
        Field("records", "records", 0, LATEST, null_first=3, null_last=LATEST),
    ),
    flexible_from=9,
)
declare(
    TopicProduceData,
    (
        Field("topic_id", "uuid", 13, LATEST),
        Field("name", "string", 0, 12),
        Field("partition_data", [PartitionProduceData], 0, LATEST),
    ),
    flexible_from=9,
)
declare(
    ProduceRequest,
    (
        Field("transactional_id", "string", 0, LATEST, null_first=3, null_last=LATEST),
        Field("acks", "int16", 0, LATEST),
        Field("timeout_ms", "int32", 0, LATEST),
        Field("topic_data", [TopicProduceData], 0, LATEST),
    ),
    flexible_from=9,
)
declare(
    BatchIndexAndErrorMessage,
    (
        Field("batch_index", "int32", 0, LATEST),
        Field("batch_index_error_message", "string", 0, LATEST, null_first=8, null_last=LATEST),
    ),
    flexible_from=9,
)
declare(
    LeaderIdAndEpoch,
    (
        Field("leader_id", "int32", 0, LATEST),
        Field("leader_epoch", "int32", 0, LATEST),
    ),
    flexible_from=10,
)
declare(
    PartitionProduceResponse,
    (
        Field("index", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("base_offset", "int64", 0, LATEST),
        Field("log_append_time_ms", "int64", 0, LATEST),
        Field("log_start_offset", "int64", 5, LATEST),
        Field("record_errors", [BatchIndexAndErrorMessage], 8, LATEST),
        Field("error_message", "string", 8, LATEST, null_first=8, null_last=LATEST),
        Field("current_leader", LeaderIdAndEpoch, 10, LATEST, tag=0),
    ),
    flexible_from=9,
)
declare(
    TopicProduceResponse,
    (
        Field("topic_id", "uuid", 13, LATEST),
        Field("name", "string", 0, 12),
        Field("partition_responses", [PartitionProduceResponse], 0, LATEST),
    ),
    flexible_from=9,
)
declare(
    NodeEndpoint,
    (
        Field("node_id", "int32", 0, LATEST),
        Field("host", "string", 0, LATEST),
        Field("port", "int32", 0, LATEST),
        Field("rack", "string", 0, LATEST, null_first=10, null_last=LATEST),
    ),
    flexible_from=10,
)
declare(
    ProduceResponse,
    (
        Field("responses", [TopicProduceResponse], 0, LATEST),
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("node_endpoints", [NodeEndpoint], 10, LATEST, tag=0),
    ),
    flexible_from=9,
)

"""fetch messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.codec import NULL_UUID, Buffer
from ottla.wire.schema import LATEST, Field, declare


class FetchPartition(NamedTuple):
    partition: int = 0
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 0
    replica_directory_id: bytes = NULL_UUID
    high_watermark: int = 9223372036854775807


class FetchTopic(NamedTuple):
    topic_id: bytes = NULL_UUID
    topic: str = ""
    partitions: tuple[FetchPartition, ...] = ()


class ReplicaState(NamedTuple):
    replica_id: int = -1
    replica_epoch: int = -1


class ForgottenTopic(NamedTuple):
    topic_id: bytes = NULL_UUID
    topic: str = ""
    partitions: tuple[int, ...] = ()


class FetchRequest(NamedTuple):
    cluster_id: str | None = None
    replica_state: ReplicaState = ReplicaState()
    replica_id: int = -1
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: tuple[FetchTopic, ...] = ()
    forgotten_topics_data: tuple[ForgottenTopic, ...] = ()
    rack_id: str = ""


class AbortedTransaction(NamedTuple):
    producer_id: int = 0
    first_offset: int = 0


class EpochEndOffset(NamedTuple):
    epoch: int = -1
    end_offset: int = -1


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int = -1
    leader_epoch: int = -1


class SnapshotId(NamedTuple):
    end_offset: int = -1
    epoch: int = -1


class PartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset = EpochEndOffset()
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    snapshot_id: SnapshotId = SnapshotId()
    aborted_transactions: tuple[AbortedTransaction, ...] | None = ()
    preferred_read_replica: int = -1
    records: Buffer | None = None


class FetchableTopicResponse(NamedTuple):
    topic_id: bytes = NULL_UUID
    topic: str = ""
    partitions: tuple[PartitionData, ...] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class FetchResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: tuple[FetchableTopicResponse, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()


declare(
    FetchPartition,
    (
        Field("partition", "int32", 0, LATEST),
        Field("current_leader_epoch", "int32", 9, LATEST),
        Field("fetch_offset", "int64", 0, LATEST),
        Field("last_fetched_epoch", "int32", 12, LATEST),
        Field("log_start_offset", "int64", 5, LATEST),
        Field("partition_max_bytes", "int32", 0, LATEST),
        Field("replica_directory_id", "uuid", 17, LATEST, tag=0),
        Field("high_watermark", "int64", 18, LATEST, tag=1),
    ),
    flexible_from=12,
)
declare(
    FetchTopic,
    (
        Field("topic_id", "uuid", 13, LATEST),
        Field("topic", "string", 0, 12),
        Field("partitions", [FetchPartition], 0, LATEST),
    ),
    flexible_from=12,
)
declare(
    ReplicaState,
    (
        Field("replica_id", "int32", 0, LATEST),
        Field("replica_epoch", "int64", 0, LATEST),
    ),
    flexible_from=15,
)
declare(
    ForgottenTopic,
    (
        Field("topic_id", "uuid", 13, LATEST),
        Field("topic", "string", 0, 12),
        Field("partitions", ["int32"], 0, LATEST),
    ),
    flexible_from=12,
)
declare(
    FetchRequest,
    (
        Field("cluster_id", "string", 12, LATEST, null_first=12, null_last=LATEST, tag=0),
        Field("replica_state", ReplicaState, 15, LATEST, tag=1),
        Field("replica_id", "int32", 0, 14),
        Field("max_wait_ms", "int32", 0, LATEST),
        Field("min_bytes", "int32", 0, LATEST),
        Field("max_bytes", "int32", 0, LATEST),
        Field("isolation_level", "int8", 0, LATEST),
        Field("session_id", "int32", 7, LATEST),
        Field("session_epoch", "int32", 7, LATEST),
        Field("topics", [FetchTopic], 0, LATEST),
        Field("forgotten_topics_data", [ForgottenTopic], 7, LATEST),
        Field("rack_id", "string", 11, LATEST),
    ),
    flexible_from=12,
)
declare(
    AbortedTransaction,
    (
        Field("producer_id", "int64", 0, LATEST),
        Field("first_offset", "int64", 0, LATEST),
    ),
    flexible_from=12,
)
declare(
    EpochEndOffset,
    (
        Field("epoch", "int32", 0, LATEST),
        Field("end_offset", "int64", 0, LATEST),
    ),
    flexible_from=12,
)
declare(
    LeaderIdAndEpoch,
    (
        Field("leader_id", "int32", 0, LATEST),
        Field("leader_epoch", "int32", 0, LATEST),
    ),
    flexible_from=12,
)
declare(
    SnapshotId,
    (
        Field("end_offset", "int64", 0, LATEST),
        Field("epoch", "int32", 0, LATEST),
    ),
    flexible_from=12,
)
declare(
    PartitionData,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("high_watermark", "int64", 0, LATEST),
        Field("last_stable_offset", "int64", 0, LATEST),
        Field("log_start_offset", "int64", 5, LATEST),
        Field("diverging_epoch", EpochEndOffset, 12, LATEST, tag=0),
        Field("current_leader", LeaderIdAndEpoch, 12, LATEST, tag=1),
        Field("snapshot_id", SnapshotId, 12, LATEST, tag=2),
        Field("aborted_transactions", [AbortedTransaction], 0, LATEST, null_first=4, null_last=LATEST),
        Field("preferred_read_replica", "int32", 11, LATEST),
        Field("records", "records", 0, LATEST, null_first=4, null_last=LATEST),
    ),
    flexible_from=12,
)
declare(
    FetchableTopicResponse,
    (
        Field("topic_id", "uuid", 13, LATEST),
        Field("topic", "string", 0, 12),
        Field("partitions", [PartitionData], 0, LATEST),
    ),
    flexible_from=12,
)
declare(
    NodeEndpoint,
    (
        Field("node_id", "int32", 0, LATEST),
        Field("host", "string", 0, LATEST),
        Field("port", "int32", 0, LATEST),
        Field("rack", "string", 0, LATEST, null_first=16, null_last=LATEST),
    ),
    flexible_from=16,
)
declare(
    FetchResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 7, LATEST),
        Field("session_id", "int32", 7, LATEST),
        Field("responses", [FetchableTopicResponse], 0, LATEST),
        Field("node_endpoints", [NodeEndpoint], 16, LATEST, tag=0),
    ),
    flexible_from=12,
)

"""metadata messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.codec import NULL_UUID
from ottla.wire.schema import LATEST, Field, declare


class MetadataRequestTopic(NamedTuple):
    topic_id: bytes = NULL_UUID
    name: str | None = ""


class MetadataRequest(NamedTuple):
    topics: tuple[MetadataRequestTopic, ...] | None = ()
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


class MetadataResponseBroker(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class MetadataResponsePartition(NamedTuple):
    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: tuple[int, ...] = ()
    isr_nodes: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


class MetadataResponseTopic(NamedTuple):
    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = NULL_UUID
    is_internal: bool = False
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: int = -2147483648


class MetadataResponse(NamedTuple):
    throttle_time_ms: int = 0
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: str | None = None
    controller_id: int = -1
    topics: tuple[MetadataResponseTopic, ...] = ()
    error_code: int = 0
    cluster_authorized_operations: int = -2147483648


declare(
    MetadataRequestTopic,
    (
        Field("topic_id", "uuid", 10, LATEST),
        Field("name", "string", 0, LATEST, null_first=10, null_last=LATEST),
    ),
    flexible_from=9,
)
declare(
    MetadataRequest,
    (
        Field("topics", [MetadataRequestTopic], 0, LATEST, null_first=1, null_last=LATEST),
        Field("allow_auto_topic_creation", "bool", 4, LATEST),
        Field("include_cluster_authorized_operations", "bool", 8, 10),
        Field("include_topic_authorized_operations", "bool", 8, LATEST),
    ),
    flexible_from=9,
)
declare(
    MetadataResponseBroker,
    (
        Field("node_id", "int32", 0, LATEST),
        Field("host", "string", 0, LATEST),
        Field("port", "int32", 0, LATEST),
        Field("rack", "string", 1, LATEST, null_first=1, null_last=LATEST),
    ),
    flexible_from=9,
)
declare(
    MetadataResponsePartition,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("partition_index", "int32", 0, LATEST),
        Field("leader_id", "int32", 0, LATEST),
        Field("leader_epoch", "int32", 7, LATEST),
        Field("replica_nodes", ["int32"], 0, LATEST),
        Field("isr_nodes", ["int32"], 0, LATEST),
        Field("offline_replicas", ["int32"], 5, LATEST),
    ),
    flexible_from=9,
)
declare(
    MetadataResponseTopic,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("name", "string", 0, LATEST, null_first=12, null_last=LATEST),
        Field("topic_id", "uuid", 10, LATEST),
        Field("is_internal", "bool", 1, LATEST),
        Field("partitions", [MetadataResponsePartition], 0, LATEST),
        Field("topic_authorized_operations", "int32", 8, LATEST),
    ),
    flexible_from=9,
)
declare(
    MetadataResponse,
    (
        Field("throttle_time_ms", "int32", 3, LATEST),
        Field("brokers", [MetadataResponseBroker], 0, LATEST),
        Field("cluster_id", "string", 2, LATEST, null_first=2, null_last=LATEST),
        Field("controller_id", "int32", 1, LATEST),
        Field("topics", [MetadataResponseTopic], 0, LATEST),
        Field("error_code", "int16", 13, LATEST),
        Field("cluster_authorized_operations", "int32", 8, 10),
    ),
    flexible_from=9,
)

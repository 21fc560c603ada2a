"""describe_cluster messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class DescribeClusterRequest(NamedTuple):
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False


class DescribeClusterBroker(NamedTuple):
    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False


class DescribeClusterResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_id: str = ""
    controller_id: int = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: int = -2147483648


declare(
    DescribeClusterRequest,
    (
        Field("include_cluster_authorized_operations", "bool", 0, LATEST),
        Field("endpoint_type", "int8", 1, LATEST, ignorable=False),
        Field("include_fenced_brokers", "bool", 2, LATEST),
    ),
    flexible_from=0,
)
declare(
    DescribeClusterBroker,
    (
        Field("broker_id", "int32", 0, LATEST),
        Field("host", "string", 0, LATEST),
        Field("port", "int32", 0, LATEST),
        Field("rack", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("is_fenced", "bool", 2, LATEST),
    ),
    flexible_from=0,
)
declare(
    DescribeClusterResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("endpoint_type", "int8", 1, LATEST),
        Field("cluster_id", "string", 0, LATEST),
        Field("controller_id", "int32", 0, LATEST),
        Field("brokers", [DescribeClusterBroker], 0, LATEST),
        Field("cluster_authorized_operations", "int32", 0, LATEST),
    ),
    flexible_from=0,
)

"""consumer_group_heartbeat messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.codec import NULL_UUID
from ottla.wire.schema import LATEST, Field, declare


class TopicPartitions(NamedTuple):
    topic_id: bytes = NULL_UUID
    partitions: tuple[int, ...] = ()


class ConsumerGroupHeartbeatRequest(NamedTuple):
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: tuple[TopicPartitions, ...] | None = ()


class Assignment(NamedTuple):
    topic_partitions: tuple[TopicPartitions, ...] = ()


class ConsumerGroupHeartbeatResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


declare(
    TopicPartitions,
    (
        Field("topic_id", "uuid", 0, LATEST),
        Field("partitions", ["int32"], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    ConsumerGroupHeartbeatRequest,
    (
        Field("group_id", "string", 0, LATEST),
        Field("member_id", "string", 0, LATEST),
        Field("member_epoch", "int32", 0, LATEST),
        Field("instance_id", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("rack_id", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("rebalance_timeout_ms", "int32", 0, LATEST),
        Field("subscribed_topic_names", ["string"], 0, LATEST, null_first=0, null_last=LATEST),
        Field("subscribed_topic_regex", "string", 1, LATEST, null_first=1, null_last=LATEST, ignorable=False),
        Field("server_assignor", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("topic_partitions", [TopicPartitions], 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=0,
)
declare(
    Assignment,
    (Field("topic_partitions", [TopicPartitions], 0, LATEST),),
    flexible_from=0,
)
declare(
    ConsumerGroupHeartbeatResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("member_id", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("member_epoch", "int32", 0, LATEST),
        Field("heartbeat_interval_ms", "int32", 0, LATEST),
        Field("assignment", Assignment, 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=0,
)

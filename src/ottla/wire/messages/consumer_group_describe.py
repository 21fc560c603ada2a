"""consumer_group_describe messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.codec import NULL_UUID
from ottla.wire.schema import LATEST, Field, declare


class ConsumerGroupDescribeRequest(NamedTuple):
    group_ids: tuple[str, ...] = ()
    include_authorized_operations: bool = False


class TopicPartitions(NamedTuple):
    topic_id: bytes = NULL_UUID
    topic_name: str = ""
    partitions: tuple[int, ...] = ()


class Assignment(NamedTuple):
    topic_partitions: tuple[TopicPartitions, ...] = ()


class Member(NamedTuple):
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    member_type: int = -1


class DescribedGroup(NamedTuple):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[Member, ...] = ()
    authorized_operations: int = -2147483648


class ConsumerGroupDescribeResponse(NamedTuple):
    throttle_time_ms: int = 0
    groups: tuple[DescribedGroup, ...] = ()


declare(
    ConsumerGroupDescribeRequest,
    (
        Field("group_ids", ["string"], 0, LATEST),
        Field("include_authorized_operations", "bool", 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    TopicPartitions,
    (
        Field("topic_id", "uuid", 0, LATEST),
        Field("topic_name", "string", 0, LATEST),
        Field("partitions", ["int32"], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    Assignment,
    (Field("topic_partitions", [TopicPartitions], 0, LATEST),),
    flexible_from=0,
)
declare(
    Member,
    (
        Field("member_id", "string", 0, LATEST),
        Field("instance_id", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("rack_id", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("member_epoch", "int32", 0, LATEST),
        Field("client_id", "string", 0, LATEST),
        Field("client_host", "string", 0, LATEST),
        Field("subscribed_topic_names", ["string"], 0, LATEST),
        Field("subscribed_topic_regex", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("assignment", Assignment, 0, LATEST),
        Field("target_assignment", Assignment, 0, LATEST),
        Field("member_type", "int8", 1, LATEST),
    ),
    flexible_from=0,
)
declare(
    DescribedGroup,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("group_id", "string", 0, LATEST),
        Field("group_state", "string", 0, LATEST),
        Field("group_epoch", "int32", 0, LATEST),
        Field("assignment_epoch", "int32", 0, LATEST),
        Field("assignor_name", "string", 0, LATEST),
        Field("members", [Member], 0, LATEST),
        Field("authorized_operations", "int32", 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    ConsumerGroupDescribeResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("groups", [DescribedGroup], 0, LATEST),
    ),
    flexible_from=0,
)

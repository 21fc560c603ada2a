"""consumer_protocol_assignment messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class TopicPartition(NamedTuple):
    topic: str = ""
    partitions: tuple[int, ...] = ()


class ConsumerProtocolAssignment(NamedTuple):
    assigned_partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


declare(
    TopicPartition,
    (
        Field("topic", "string", 0, LATEST),
        Field("partitions", ["int32"], 0, LATEST),
    ),
    flexible_from=LATEST,
)
declare(
    ConsumerProtocolAssignment,
    (
        Field("assigned_partitions", [TopicPartition], 0, LATEST),
        Field("user_data", "bytes", 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=LATEST,
)

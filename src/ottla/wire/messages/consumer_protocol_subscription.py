"""consumer_protocol_subscription messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class TopicPartition(NamedTuple):
    topic: str = ""
    partitions: tuple[int, ...] = ()


class ConsumerProtocolSubscription(NamedTuple):
    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None


declare(
    TopicPartition,
    (
        Field("topic", "string", 0, LATEST),
        Field("partitions", ["int32"], 0, LATEST),
    ),
    flexible_from=LATEST,
)
declare(
    ConsumerProtocolSubscription,
    (
        Field("topics", ["string"], 0, LATEST),
        Field("user_data", "bytes", 0, LATEST, null_first=0, null_last=LATEST),
        Field("owned_partitions", [TopicPartition], 1, LATEST),
        Field("generation_id", "int32", 2, LATEST),
        Field("rack_id", "string", 3, LATEST, null_first=3, null_last=LATEST),
    ),
    flexible_from=LATEST,
)

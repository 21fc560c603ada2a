"""What a consumer returns."""

from typing import Any, NamedTuple

from ottla.wire.batch import TimestampType


class ConsumerRecord(NamedTuple):
    """One record. Key and value are bytes, or what the deserializers made of them."""

    topic: str
    partition: int
    offset: int
    #: Milliseconds since the epoch; `timestamp_type` says whether the producer or the log set it.
    timestamp_ms: int
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    #: The epoch of the leader that wrote it; None when unknown.
    leader_epoch: int | None

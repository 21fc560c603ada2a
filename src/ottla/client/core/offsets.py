"""Offsets as consumers commit them."""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.types import TopicPartition


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read, a note of the user's, and the leader epoch of the last record."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """Where a time is in a log: the first record at or after it; `leader_epoch` -1 when unknown."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """A member of a group, for `send_offsets_to_transaction`: with it a zombie's offsets are refused (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def checked_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    """Accept (topic, partition) → offset as well as the full types. Raises ValueError for a negative offset."""
    if offsets is None:
        return None
    checked = {
        TopicPartition(*tp): offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        for tp, offset in offsets.items()
    }
    for tp, offset in checked.items():
        if offset.offset < 0:
            raise ValueError(f"{tp}: offsets are not negative: {offset.offset}")
    return checked

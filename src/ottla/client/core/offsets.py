"""Offsets as consumers commit them."""

from collections.abc import Mapping
from operator import index
from typing import NamedTuple, SupportsIndex

from ottla.base.types import TopicPartition

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


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
    """Accept (topic, partition) → offset as well as the full types.

    Raises ValueError for a negative offset, and TypeError or ValueError for what no request can hold.
    """
    if offsets is None:
        return None
    checked = {
        TopicPartition(*tp): offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        for tp, offset in offsets.items()
    }
    for tp, offset in checked.items():
        _check_text(f"{tp}: the topic", tp.topic)
        _check_number(f"{tp}: the partition", tp.partition, 0, _INT32_MAX)
        if index(offset.offset) < 0:
            raise ValueError(f"{tp}: offsets are not negative: {offset.offset}")
        _check_number(f"{tp}: the offset", offset.offset, 0, _INT64_MAX)
        _check_number(f"{tp}: the leader epoch", offset.leader_epoch, -1, _INT32_MAX)
        if offset.metadata is not None:
            _check_text(f"{tp}: the metadata", offset.metadata)
    return checked


def checked_group(group: ConsumerGroupMetadata) -> ConsumerGroupMetadata:
    """`group`, if a request can hold it. Raises TypeError or ValueError."""
    if not isinstance(group, ConsumerGroupMetadata):
        raise TypeError(f"group_metadata is what a consumer's group_metadata() gives, not {group!r}")
    _check_text("group_id", group.group_id)
    _check_number("generation_id", group.generation_id, -1, _INT32_MAX)
    _check_text("member_id", group.member_id)
    if group.group_instance_id is not None:
        _check_text("group_instance_id", group.group_instance_id)
    return group


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {value!r}")


def _check_number(what: str, value: SupportsIndex, least: int, most: int) -> None:
    if not least <= index(value) <= most:
        raise ValueError(f"{what} is from {least} to {most}, not {value}")

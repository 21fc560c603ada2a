"""Offsets that consumers commit, and the checks of what users give."""

from collections.abc import Iterable, Mapping
from operator import index
from typing import NamedTuple, SupportsIndex

from ottla.base.limits import MAX_STRING_BYTES
from ottla.base.types import TopicPartition
from ottla.client.core.metadata import checked_topic
from ottla.client.core.several import several
from ottla.client.errors import KafkaError
from ottla.wire.errors import ErrorCode

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read, a text of the user, and the leader epoch of the last record."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time, and its timestamp. `leader_epoch` is -1 if it is not known."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """A member of a group, for `send_offsets_to_transaction`. With it the coordinator refuses the offsets of a member
    that no longer belongs to the group (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def checked_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    """`offsets` in the full types; plain (topic, partition) → number is accepted, too.

    Raises TypeError or ValueError for what a request cannot hold, a negative offset for example.
    """
    if offsets is None:
        return None
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must be a dict of TopicPartition to OffsetAndMetadata, not {offsets!r}")
    for tp in offsets:
        if not isinstance(tp, tuple) or len(tp) != len(TopicPartition._fields):
            raise TypeError(f"offsets are given by TopicPartition, which is (topic, number), and not by {tp!r}")
    checked = {
        TopicPartition(*tp): offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        for tp, offset in offsets.items()
    }
    for tp, offset in checked.items():
        _check_text(f"{tp}: the topic", tp.topic)
        _check_number(f"{tp}: the partition", tp.partition, 0, _INT32_MAX)
        if index(offset.offset) < 0:
            raise ValueError(f"{tp}: an offset must not be negative, but this one is {offset.offset}")
        _check_number(f"{tp}: the offset", offset.offset, 0, _INT64_MAX)
        _check_number(f"{tp}: the leader epoch", offset.leader_epoch, -1, _INT32_MAX)
        if offset.metadata is not None:
            _check_text(f"{tp}: the metadata", offset.metadata)
    return checked


def checked_partition(partition: tuple[str, int]) -> TopicPartition:
    """A partition that a request can hold. Raises TypeError, ValueError, or KafkaError for a name no topic can have."""
    tp = TopicPartition(*partition)
    _check_number(f"{tp.topic}: the partition", tp.partition, 0, _INT32_MAX)
    return TopicPartition(checked_topic(tp.topic), tp.partition)


def checked_offset(offset: int) -> int:
    """Where a consumer may go on. Raises TypeError, or ValueError below 0 and beyond 64 bits."""
    if index(offset) < 0:
        raise ValueError(f"an offset must not be negative, but this one is {offset}")
    _check_number("the offset", offset, 0, _INT64_MAX)
    return offset


def checked_time(timestamp_ms: int) -> int:
    """A time that a request can hold. Raises TypeError or ValueError."""
    _check_number("the time", timestamp_ms, -_INT64_MAX, _INT64_MAX)
    return timestamp_ms


def checked_group(group: ConsumerGroupMetadata) -> ConsumerGroupMetadata:
    """`group`, if a request can hold it. Raises TypeError or ValueError."""
    if not isinstance(group, ConsumerGroupMetadata):
        raise TypeError(f"group_metadata must be what a consumer's group_metadata() returns, not {group!r}")
    _check_text("group_id", group.group_id)
    _check_number("generation_id", group.generation_id, -1, _INT32_MAX)
    _check_text("member_id", group.member_id)
    if group.group_instance_id is not None:
        _check_text("group_instance_id", group.group_instance_id)
    return group


def checked_group_id(group_id: str) -> str:
    """The id of a group, if a request can hold it. Raises TypeError, or KafkaError (INVALID_GROUP_ID)."""
    try:
        _check_text("the id of a group", group_id)
    except ValueError as fault:
        raise KafkaError.of(ErrorCode.INVALID_GROUP_ID, str(fault)) from None
    return group_id


def checked_group_ids(group_ids: Iterable[str]) -> list[str]:
    """Several of them; the same errors. Raises TypeError for a text, too: it would be taken for its letters."""
    return list(map(checked_group_id, several(group_ids, "group ids")))


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {value!r}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be text that UTF-8 can write, not {value!r}") from None
    if size > MAX_STRING_BYTES:
        raise ValueError(f"{what} must take at most {MAX_STRING_BYTES} bytes in UTF-8, and takes {size}")


def _check_number(what: str, value: SupportsIndex, least: int, most: int) -> None:
    if not least <= index(value) <= most:
        raise ValueError(f"{what} must be from {least} to {most}, not {value}")

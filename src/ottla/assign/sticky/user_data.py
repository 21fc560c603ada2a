"""What the sticky assignors put into a subscription's user data: Kafka's own bytes.

`StickyAssignorUserData`: v0 has the partitions by topic, v1 (KIP-341) their generation behind them. It has no version
number: who reads tries v1 first. The cooperative assignor's user data is a generation alone; what a member owns is in
the subscription itself (KIP-429).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import repeat

from ottla.base.types import TopicPartition

#: The generation of a member that names none.
NO_GENERATION = -1
#: The fast way to make many of a NamedTuple.
_MAKE = tuple.__new__
_INT = struct.Struct(">i").unpack_from


def encode_assignment(partitions: Iterable[TopicPartition], generation_id: int) -> bytes:
    """A member's last assignment and its generation: StickyAssignorUserData v1."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    parts = [struct.pack(">i", len(by_topic))]
    for topic, numbers in by_topic.items():
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers))
    parts.append(struct.pack(">i", generation_id))
    return b"".join(parts)


def decode_assignment(data: bytes | None) -> tuple[list[TopicPartition], int]:
    """The last assignment of a member and its generation; nothing from bytes that are neither v0 nor v1."""
    if not data:
        return [], NO_GENERATION
    try:
        partitions, end = _read_partitions(data)
    except (struct.error, UnicodeDecodeError, ValueError, IndexError):
        return [], NO_GENERATION
    if len(data) < end + 4:
        return partitions, NO_GENERATION
    return partitions, _INT(data, end)[0]


def encode_generation(generation_id: int) -> bytes:
    """The cooperative assignor's user data."""
    return struct.pack(">i", generation_id)


def decode_generation(data: bytes | None) -> int:
    """The generation in the cooperative assignor's user data; -1 if there is none."""
    generation_id: int = struct.unpack_from(">i", data)[0] if data and len(data) >= 4 else NO_GENERATION
    return generation_id


def _read_partitions(data: bytes) -> tuple[list[TopicPartition], int]:
    """The partitions, and where their bytes end. A leader reads this for each of a thousand members, so it is quick."""
    found: list[TopicPartition] = []
    (topics,) = _INT(data)
    end = 4
    if topics < 0:
        raise ValueError("a negative number of topics")
    for _ in range(topics):
        start = end + 2
        end = start + (data[end] << 8 | data[end + 1])
        topic = data[start:end].decode()
        (count,) = _INT(data, end)
        if count == 1:
            found.append(_MAKE(TopicPartition, (topic, _INT(data, end + 4)[0])))
        elif count * 4 > len(data) - end:
            raise ValueError("more partitions than bytes")
        elif count >= 0:
            numbers = struct.unpack_from(f">{count}i", data, end + 4)
            found += map(_MAKE, repeat(TopicPartition), zip(repeat(topic), numbers, strict=False))
        else:
            raise ValueError("a negative number of partitions")
        end += 4 + 4 * count
    return found, end

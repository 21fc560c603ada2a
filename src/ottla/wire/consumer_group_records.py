"""Keys and values of consumer groups (KIP-848) in `__consumer_offsets`, byte for byte Apache Kafka's (4.3).

Record types 3 to 8 and 16: their numbers are the versions of the *keys*; every value has version 0. Field tables after
Kafka's `ConsumerGroup*Key/Value.json`. Values are flexible, so a later Kafka's tagged fields are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.base.errors import CorruptDataError
from ottla.wire.codec import NULL_UUID, Buffer
from ottla.wire.schema import LATEST, Field, declare, decode, encode


class ConsumerGroupMetadataKey(NamedTuple):
    """A group's epoch (type 3)."""

    group_id: str = ""


class ConsumerGroupMetadataValue(NamedTuple):
    """The group epoch, and a hash of the topics that the group subscribes to (KIP-1101)."""

    epoch: int = 0
    metadata_hash: int = 0


class ConsumerGroupPartitionMetadataKey(NamedTuple):
    """The topics a group subscribes to (type 4), as Kafka before 4.1 kept them; only tombstones are written."""

    group_id: str = ""


class ConsumerGroupMemberMetadataKey(NamedTuple):
    """Who a member is (type 5)."""

    group_id: str = ""
    member_id: str = ""


class ClassicProtocol(NamedTuple):
    """An assignor of the client's side that a member of the classic protocol supports."""

    name: str = ""
    metadata: bytes = b""


class ClassicMemberMetadata(NamedTuple):
    """What is known of a member that uses the classic protocol inside a consumer group."""

    session_timeout_ms: int = 0
    supported_protocols: tuple[ClassicProtocol, ...] = ()


class ConsumerGroupMemberMetadataValue(NamedTuple):
    """Who a member is, and what it subscribes to."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    #: Tagged field 0, see `_member_value`.
    classic_member_metadata: ClassicMemberMetadata | None = None


class _Member(NamedTuple):
    """A `ConsumerGroupMemberMetadataValue` without its tagged field."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None


class ConsumerGroupTargetAssignmentMetadataKey(NamedTuple):
    """The epoch of the target assignment (type 6)."""

    group_id: str = ""


class ConsumerGroupTargetAssignmentMetadataValue(NamedTuple):
    """The group epoch that the target belongs to, and when it was computed (KIP-1263)."""

    assignment_epoch: int = 0
    assignment_timestamp: int = 0


class ConsumerGroupTargetAssignmentMemberKey(NamedTuple):
    """A member's part of the target assignment (type 7)."""

    group_id: str = ""
    member_id: str = ""


class TargetTopicPartition(NamedTuple):
    """Partitions of one topic in a target assignment."""

    topic_id: bytes = NULL_UUID
    partitions: tuple[int, ...] = ()


class ConsumerGroupTargetAssignmentMemberValue(NamedTuple):
    """A member's part of the target assignment."""

    topic_partitions: tuple[TargetTopicPartition, ...] = ()


class ConsumerGroupCurrentMemberAssignmentKey(NamedTuple):
    """What a member has just now (type 8)."""

    group_id: str = ""
    member_id: str = ""


class CurrentTopicPartitions(NamedTuple):
    """Partitions of one topic that a member has, and since which member epoch each (KIP-1251)."""

    topic_id: bytes = NULL_UUID
    partitions: tuple[int, ...] = ()
    assignment_epochs: tuple[int, ...] | None = None


class ConsumerGroupCurrentMemberAssignmentValue(NamedTuple):
    """A member's epochs and state, what it has, and what it must give up."""

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    assigned_partitions: tuple[CurrentTopicPartitions, ...] = ()
    partitions_pending_revocation: tuple[CurrentTopicPartitions, ...] = ()


class ConsumerGroupRegularExpressionKey(NamedTuple):
    """A regular expression that members subscribe to (type 16)."""

    group_id: str = ""
    regular_expression: str = ""


class ConsumerGroupRegularExpressionValue(NamedTuple):
    """The topics that it matched: in which version of the metadata, and when (ms)."""

    topics: tuple[str, ...] = ()
    version: int = 0
    timestamp: int = 0


Key: TypeAlias = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
Value: TypeAlias = (
    ConsumerGroupMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)

_GROUP: Final = (Field("group_id", "string"),)
_MEMBER: Final = (*_GROUP, Field("member_id", "string"))
declare(ConsumerGroupMetadataKey, _GROUP)
declare(ConsumerGroupPartitionMetadataKey, _GROUP)
declare(ConsumerGroupMemberMetadataKey, _MEMBER)
declare(ConsumerGroupTargetAssignmentMetadataKey, _GROUP)
declare(ConsumerGroupTargetAssignmentMemberKey, _MEMBER)
declare(ConsumerGroupCurrentMemberAssignmentKey, _MEMBER)
declare(ConsumerGroupRegularExpressionKey, (*_GROUP, Field("regular_expression", "string")))


def _nullable(name: str) -> Field:
    return Field(name, "string", null_first=0, null_last=LATEST)


declare(
    ConsumerGroupMetadataValue,
    (Field("epoch", "int32"), Field("metadata_hash", "int64", tag=0)),
    flexible_from=0,
)
declare(ClassicProtocol, (Field("name", "string"), Field("metadata", "bytes")), flexible_from=0)
declare(
    ClassicMemberMetadata,
    (Field("session_timeout_ms", "int32"), Field("supported_protocols", [ClassicProtocol])),
    flexible_from=0,
)
declare(
    _Member,
    (
        _nullable("instance_id"),
        _nullable("rack_id"),
        Field("client_id", "string"),
        Field("client_host", "string"),
        Field("subscribed_topic_names", ["string"]),
        _nullable("subscribed_topic_regex"),
        Field("rebalance_timeout_ms", "int32"),
        _nullable("server_assignor"),
    ),
    flexible_from=0,
)
declare(
    ConsumerGroupTargetAssignmentMetadataValue,
    (Field("assignment_epoch", "int32"), Field("assignment_timestamp", "int64", tag=0)),
    flexible_from=0,
)
declare(
    TargetTopicPartition,
    (Field("topic_id", "uuid"), Field("partitions", ["int32"])),
    flexible_from=0,
)
declare(
    ConsumerGroupTargetAssignmentMemberValue,
    (Field("topic_partitions", [TargetTopicPartition]),),
    flexible_from=0,
)
declare(
    CurrentTopicPartitions,
    (
        Field("topic_id", "uuid"),
        Field("partitions", ["int32"]),
        Field("assignment_epochs", ["int32"], null_first=0, null_last=LATEST, tag=0),
    ),
    flexible_from=0,
)
declare(
    ConsumerGroupCurrentMemberAssignmentValue,
    (
        Field("member_epoch", "int32"),
        Field("previous_member_epoch", "int32"),
        Field("state", "int8"),
        Field("assigned_partitions", [CurrentTopicPartitions]),
        Field("partitions_pending_revocation", [CurrentTopicPartitions]),
    ),
    flexible_from=0,
)
declare(
    ConsumerGroupRegularExpressionValue,
    (Field("topics", ["string"]), Field("version", "int64"), Field("timestamp", "int64")),
    flexible_from=0,
)

#: Record types: the version of a key, its class and its value's class (None: the value is not looked into).
_TYPES: Final[Mapping[int, tuple[type[Any], type[Any] | None]]] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, None),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
_NUMBERS: Final = {key: number for number, (key, _) in _TYPES.items()}
_VALUES: Final = dict(_TYPES.values())
#: The record types of consumer groups.
RECORD_TYPES: Final = frozenset(_TYPES)


def encode_key(key: Key) -> bytes:
    """A record's key."""
    return _NUMBERS[type(key)].to_bytes(2, "big") + encode(key, 0)


def encode_value(value: Value) -> bytes:
    """A record's value."""
    if isinstance(value, ConsumerGroupMemberMetadataValue):
        return b"\0\0" + _member_bytes(value)
    return b"\0\0" + encode(value, 0)


_NO_TAG: Final = ClassicMemberMetadata()


def _member_bytes(value: ConsumerGroupMemberMetadataValue) -> bytes:
    """Kafka's form of a tagged struct that may be null: a byte, 0 for null and 1 for a struct that follows.

    Where the tag is missing Kafka takes an empty struct, and so a member of the classic protocol. So null is written.
    """
    classic = value.classic_member_metadata
    plain = encode(_Member(*value[:8]), 0)
    if classic == _NO_TAG:
        return plain
    content = b"\0" if classic is None else b"\1" + encode(classic, 0)
    return plain[:-1] + b"\1\0" + _uvarint(len(content)) + content


def _member_value(data: Buffer) -> ConsumerGroupMemberMetadataValue:
    """The value whose struct begins at 2. Tags of a later Kafka are passed over."""
    plain = decode(_Member, 0, data, 2)
    classic: ClassicMemberMetadata | None = _NO_TAG
    at = 2 + len(encode(plain, 0)) - 1  # there is only one way to write the fields before the tags
    count, at = _read_uvarint(data, at)
    for _ in range(count):
        tag, at = _read_uvarint(data, at)
        size, at = _read_uvarint(data, at)
        if tag == 0:
            classic = decode(ClassicMemberMetadata, 0, data[at + 1 : at + size]) if data[at] else None
        at += size
    return ConsumerGroupMemberMetadataValue(*plain, classic)


def _uvarint(value: int) -> bytes:
    said = bytearray()
    while value > 0x7F:
        said.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*said, value))


def _read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | data[at] << shift, at + 1


def decode_key(key: Buffer) -> Key:
    """What a record of a consumer group is about. Raises CorruptDataError when the bytes are not such a key."""
    number = int.from_bytes(key[:2], "big", signed=True)
    if number not in _TYPES:
        raise CorruptDataError(f"record type {number} is none of a consumer group's")
    found: Key = decode(_TYPES[number][0], 0, key, 2)
    return found


def decode_value(key: Key, value: Buffer) -> Value | None:
    """The value of the record with this key; None for a kind of value that is not looked into.

    Raises CorruptDataError when the bytes are not such a value, or one of a version this code cannot read.
    """
    cls = _VALUES[type(key)]
    if cls is None:
        return None
    version = int.from_bytes(value[:2], "big", signed=True) if len(value) > 1 else -1
    if version != 0:
        raise CorruptDataError(f"{cls.__name__} v{version}: this version reads 0")
    if cls is ConsumerGroupMemberMetadataValue:
        return _member_value(value)
    found: Value = decode(cls, 0, value, 2)
    return found

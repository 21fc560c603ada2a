"""Keys and values of `__consumer_offsets`, byte for byte Apache Kafka's (4.3).

A key or value is an int16 version and then the struct; the version of a *key* is the record's type. Field tables after
Kafka's `OffsetCommitKey/Value.json` and `GroupMetadataKey/Value.json`. Values of version 4 are flexible (KIP-915), so a
later Kafka's tagged fields are passed over.

Written are the versions Apache Kafka 4.3 writes: OffsetCommitValue 4 (1 when the commit carries its own retention,
which only version 1 can say) and GroupMetadataValue 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from ottla.base.errors import CorruptDataError
from ottla.base.require import require
from ottla.wire.codec import NULL_UUID, Buffer
from ottla.wire.schema import LATEST, Field, declare, decode, encode, encode_pieces

#: Key versions, that is record types. Version 0 was written by Kafka 0.8.1 and differs from 1 in the number alone.
OFFSET_COMMIT_KEY: Final = 1
OFFSET_COMMIT_KEYS: Final = (0, OFFSET_COMMIT_KEY)
GROUP_METADATA_KEY: Final = 2

MAX_OFFSET_COMMIT_VALUE_VERSION: Final = 4
MAX_GROUP_METADATA_VALUE_VERSION: Final = 4
_OFFSET_COMMIT_VALUE_VERSION: Final = 4
_EXPIRING_OFFSET_COMMIT_VALUE_VERSION: Final = 1
_GROUP_METADATA_VALUE_VERSION: Final = 3


class OffsetCommitKey(NamedTuple):
    """The partition a group's offset belongs to."""

    group: str = ""
    topic: str = ""
    partition: int = 0


class OffsetCommitValue(NamedTuple):
    """A committed offset. `expire_timestamp_ms` is -1 for the broker's retention, `leader_epoch` -1 for unknown."""

    offset: int = 0
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = 0
    expire_timestamp_ms: int = -1
    topic_id: bytes = NULL_UUID


class GroupMetadataKey(NamedTuple):
    """The classic group a record describes."""

    group: str = ""


class MemberMetadata(NamedTuple):
    """One member of a classic group, with the assignment that its leader gave it."""

    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    session_timeout_ms: int = 0
    subscription: bytes = b""
    assignment: bytes = b""


class GroupMetadataValue(NamedTuple):
    """A generation of a classic group. `protocol` and `leader` are null while it has no members."""

    protocol_type: str = ""
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    current_state_timestamp_ms: int = -1
    members: tuple[MemberMetadata, ...] = ()


Key: TypeAlias = OffsetCommitKey | GroupMetadataKey

declare(OffsetCommitKey, (Field("group", "string"), Field("topic", "string"), Field("partition", "int32")))
declare(
    OffsetCommitValue,
    (
        Field("offset", "int64"),
        Field("leader_epoch", "int32", 3),
        Field("metadata", "string"),
        Field("commit_timestamp_ms", "int64"),
        Field("expire_timestamp_ms", "int64", 1, 1),
        Field("topic_id", "uuid", 4, tag=0),
    ),
    flexible_from=4,
)
declare(GroupMetadataKey, (Field("group", "string"),))
declare(
    MemberMetadata,
    (
        Field("member_id", "string"),
        Field("group_instance_id", "string", 3, null_first=3, null_last=LATEST),
        Field("client_id", "string"),
        Field("client_host", "string"),
        Field("rebalance_timeout_ms", "int32", 1),
        Field("session_timeout_ms", "int32"),
        Field("subscription", "bytes"),
        Field("assignment", "bytes"),
    ),
    flexible_from=4,
)
declare(
    GroupMetadataValue,
    (
        Field("protocol_type", "string"),
        Field("generation", "int32"),
        Field("protocol", "string", null_first=0, null_last=LATEST),
        Field("leader", "string", null_first=0, null_last=LATEST),
        Field("current_state_timestamp_ms", "int64", 2),
        Field("members", [MemberMetadata]),
    ),
    flexible_from=4,
)


def encode_offset_commit_key(group: str, topic: str, partition: int) -> bytes:
    """The record key of a group's offset for one partition."""
    return _prefixed(OFFSET_COMMIT_KEY) + encode(OffsetCommitKey(group, topic, partition), 0)


def encode_group_metadata_key(group: str) -> bytes:
    """The record key of a classic group."""
    return _prefixed(GROUP_METADATA_KEY) + encode(GroupMetadataKey(group), 0)


def record_type(key: Buffer) -> int:
    """The type of a record: the version of its key. Raises CorruptDataError when the bytes are not a key."""
    return _version(key)


def decode_key(key: Buffer) -> Key | None:
    """What a record is about, or None for a record type that this version does not know.

    Kafka skips unknown types, so that an older coordinator can read a newer log (KIP-915); those of KIP-848's consumer
    groups, share and streams groups are such. Raises CorruptDataError when the bytes are not a key.
    """
    match _version(key):
        case 0 | 1:
            return decode(OffsetCommitKey, 0, key, 2)
        case 2:
            return decode(GroupMetadataKey, 0, key, 2)
        case _:
            return None


def encode_offset_commit_value(value: OffsetCommitValue, version: int | None = None) -> bytes:
    """The record value of a committed offset. Without `version`, in the version that Apache Kafka 4.3 would choose."""
    if version is None:
        expires = value.expire_timestamp_ms != -1
        version = _EXPIRING_OFFSET_COMMIT_VALUE_VERSION if expires else _OFFSET_COMMIT_VALUE_VERSION
    return _prefixed(version) + encode(value, version)


def decode_offset_commit_value(data: Buffer) -> OffsetCommitValue:
    """Read a committed offset. Raises CorruptDataError when it is not one, or from a version this code cannot read."""
    return decode(OffsetCommitValue, _checked("OffsetCommitValue", data, MAX_OFFSET_COMMIT_VALUE_VERSION), data, 2)


def encode_group_metadata_value(value: GroupMetadataValue, version: int = _GROUP_METADATA_VALUE_VERSION) -> bytes:
    """The record value of a classic group."""
    return _prefixed(version) + encode(value, version)


def encode_member_metadata(member: MemberMetadata) -> bytes:
    """One member as it stands in the record value of its group."""
    return encode(member, _GROUP_METADATA_VALUE_VERSION)


def encode_member_pieces(member: MemberMetadata) -> list[Buffer]:
    """The same in pieces: a large subscription or assignment is not copied."""
    return encode_pieces(member, _GROUP_METADATA_VALUE_VERSION)


def encode_group_metadata_with(value: GroupMetadataValue, count: int, members: Iterable[Buffer]) -> bytes:
    """As `encode_group_metadata_value`, for `count` members that are encoded already; `value` has none.

    The members come last in this version, after their number in four bytes.
    """
    require(not value.members, "the members are given twice")
    return b"".join((encode_group_metadata_value(value)[:-4], count.to_bytes(4, "big"), *members))


def decode_group_metadata_value(data: Buffer) -> GroupMetadataValue:
    """Read a classic group. Raises CorruptDataError when it is not one, or from a version this code cannot read."""
    return decode(GroupMetadataValue, _checked("GroupMetadataValue", data, MAX_GROUP_METADATA_VALUE_VERSION), data, 2)


def _checked(name: str, data: Buffer, newest: int) -> int:
    version = _version(data)
    if not 0 <= version <= newest:
        raise CorruptDataError(f"{name} v{version}: this version reads 0 to {newest}")
    return version


def _version(data: Buffer) -> int:
    if len(data) < 2:
        raise CorruptDataError(f"a coordinator record of {len(data)} bytes has no version")
    return int.from_bytes(data[:2], "big", signed=True)


def _prefixed(version: int) -> bytes:
    return version.to_bytes(2, "big", signed=True)

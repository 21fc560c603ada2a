"""Control records of a KRaft quorum (KIP-595, KIP-630, KIP-853): they stand between the metadata log's own records.

The key of a control record is its version and its type, two numbers of 16 bits; its value is a struct. Field tables
after Kafka's `LeaderChangeMessage.json`, `KRaftVersionRecord.json` and `VotersRecord.json`. What begins and ends a
snapshot says nothing that we need.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from ottla.wire.batch import mark_as_control
from ottla.wire.codec import NULL_UUID, WireError
from ottla.wire.records import Record, encode_batch
from ottla.wire.schema import Field, declare, decode, encode

_KEY: Final = struct.Struct(">hh")


class ControlType(IntEnum):
    """Kafka's numbers of control records; 0 and 1 end transactions."""

    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class LeaderVoter(NamedTuple):
    """A voter."""

    voter_id: int = 0


class LeaderChangeMessage(NamedTuple):
    """A node leads the quorum from here on, in a new epoch."""

    version: int = 0
    leader_id: int = -1
    voters: tuple[LeaderVoter, ...] = ()
    granting_voters: tuple[LeaderVoter, ...] = ()


class KRaftVersionRecord(NamedTuple):
    """The quorum's version: 0 has its voters in the settings of each node, 1 in the log."""

    version: int = 0
    kraft_version: int = 0


class VoterEndpoint(NamedTuple):
    """Where a voter is reached."""

    name: str = ""
    host: str = ""
    port: int = 0


class VoterFeature(NamedTuple):
    """The quorum's versions that a voter supports."""

    min_supported_version: int = 0
    max_supported_version: int = 0


class Voter(NamedTuple):
    """A voter of a quorum of `kraft.version` 1."""

    voter_id: int = 0
    voter_directory_id: bytes = NULL_UUID
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_version_feature: VoterFeature = VoterFeature()


class VotersRecord(NamedTuple):
    """Who votes from here on."""

    version: int = 0
    voters: tuple[Voter, ...] = ()


ControlRecord: TypeAlias = LeaderChangeMessage | KRaftVersionRecord | VotersRecord

# There is a version 1, too. Apache Kafka 4.3 reads and writes 0 alone (`ControlRecordUtils.java`), also with
# `kraft.version` 1.
declare(LeaderVoter, (Field("voter_id", "int32"),), flexible_from=0)
declare(
    LeaderChangeMessage,
    (
        Field("version", "int16"),
        Field("leader_id", "int32"),
        Field("voters", [LeaderVoter]),
        Field("granting_voters", [LeaderVoter]),
    ),
    flexible_from=0,
)
declare(KRaftVersionRecord, (Field("version", "int16"), Field("kraft_version", "int16")), flexible_from=0)
declare(VoterEndpoint, (Field("name", "string"), Field("host", "string"), Field("port", "uint16")), flexible_from=0)
declare(
    VoterFeature, (Field("min_supported_version", "int16"), Field("max_supported_version", "int16")), flexible_from=0
)
declare(
    Voter,
    (
        Field("voter_id", "int32"),
        Field("voter_directory_id", "uuid"),
        Field("endpoints", [VoterEndpoint]),
        Field("kraft_version_feature", VoterFeature),
    ),
    flexible_from=0,
)
declare(VotersRecord, (Field("version", "int16"), Field("voters", [Voter])), flexible_from=0)


def control_type(record: Record) -> int:
    """The number of a control record's type. WireError when its key is none."""
    try:
        return int(_KEY.unpack_from(record.key or b"")[1])
    except struct.error:
        raise WireError(f"the key of the control record at offset {record.offset} does not parse") from None


def decode_control(record: Record) -> ControlRecord | None:
    """What a control record of a quorum says; None for one that says nothing of the quorum. WireError."""
    value = record.value or b""
    match control_type(record):
        case ControlType.LEADER_CHANGE:
            return decode(LeaderChangeMessage, 0, value)
        case ControlType.KRAFT_VERSION:
            return decode(KRaftVersionRecord, 0, value)
        case ControlType.KRAFT_VOTERS:
            return decode(VotersRecord, 0, value)
        case _:
            return None


def leader_change_batch(leader_id: int, timestamp_ms: int) -> bytes:
    """The control batch with which the only voter begins to lead; base offset 0."""
    voters = (LeaderVoter(leader_id),)
    key = _KEY.pack(0, ControlType.LEADER_CHANGE)
    value = encode(LeaderChangeMessage(0, leader_id, voters, voters), 0)
    batch = bytearray(encode_batch([Record(0, timestamp_ms, key, value, ())]))
    mark_as_control(batch)
    return bytes(batch)

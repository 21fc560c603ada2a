"""Control records of a quorum, byte for byte as Apache Kafka 4.3 has written them."""

from __future__ import annotations

import pytest

from ottla.wire.batch import parse_header
from ottla.wire.codec import WireError
from ottla.wire.quorum_records import (
    ControlType,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderVoter,
    Voter,
    VoterEndpoint,
    VoterFeature,
    VotersRecord,
    control_type,
    decode_control,
    leader_change_batch,
)
from ottla.wire.records import Record, decode_batch

_DIRECTORY = bytes.fromhex("50903beaceea499dbab3a8effe4a96fb")
_LEADER_CHANGE = "00000000000102000000010002000000010000"
_VOTERS = (
    "0000020000000150903beaceea499dbab3a8effe4a96fb020b434f4e54524f4c4c45520a3132372e302e302e314a950000000001000000"
)


def _record(kind: int, value: str) -> Record:
    return Record(0, 0, b"\0\0" + kind.to_bytes(2, "big"), bytes.fromhex(value), ())


def test_what_apache_kafka_has_written_is_read() -> None:
    one = (LeaderVoter(1),)
    assert decode_control(_record(2, _LEADER_CHANGE)) == LeaderChangeMessage(0, 1, one, one)
    assert decode_control(_record(5, "0000000100")) == KRaftVersionRecord(0, 1)
    voter = Voter(1, _DIRECTORY, (VoterEndpoint("CONTROLLER", "127.0.0.1", 19093),), VoterFeature(0, 1))
    assert decode_control(_record(6, _VOTERS)) == VotersRecord(0, (voter,))
    assert decode_control(_record(4, "000000")) is None


def test_what_we_write_is_what_apache_kafka_writes() -> None:
    batch = leader_change_batch(1, 5)
    header, (record,) = parse_header(batch), decode_batch(batch)
    assert (header.is_control, header.is_transactional, header.producer_id) == (True, False, -1)
    assert len(batch) == 91
    assert control_type(record) == ControlType.LEADER_CHANGE
    assert record.key == bytes.fromhex("00000002")
    assert (record.value or b"").hex() == _LEADER_CHANGE


def test_a_key_that_is_none_is_an_error() -> None:
    with pytest.raises(WireError, match="the key of the control record at offset 0 does not parse"):
        control_type(Record(0, 0, b"\0", b"", ()))

"""Records of `__consumer_offsets` against the bytes of an Apache Kafka 4.3, and in all their versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import CorruptDataError
from ottla.wire.offsets_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_metadata_value,
    decode_key,
    decode_offset_commit_value,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from tests.coordinator.group import apache_log as apache

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
MEMBERS = st.builds(
    MemberMetadata, NAMES, st.none() | NAMES, NAMES, NAMES, INT32, INT32, st.binary(max_size=30), st.binary(max_size=30)
)
GROUPS = st.builds(
    GroupMetadataValue,
    NAMES,
    INT32,
    st.none() | NAMES,
    st.none() | NAMES,
    INT64,
    st.lists(MEMBERS, max_size=3).map(tuple),
)
OFFSETS = st.builds(OffsetCommitValue, INT64, INT32, NAMES, INT64, INT64, st.binary(min_size=16, max_size=16))


def test_o1_keys_are_apache_kafka_s() -> None:
    assert encode_offset_commit_key("readers", "words", 1).hex() == apache.READERS_WORDS_1
    assert decode_key(bytes.fromhex(apache.READERS_WORDS_1)) == OffsetCommitKey("readers", "words", 1)
    assert encode_group_metadata_key("readers").hex() == apache.READERS
    assert decode_key(bytes.fromhex(apache.READERS)) == GroupMetadataKey("readers")


@pytest.mark.parametrize(
    ("golden", "value"),
    [
        (apache.COMMIT_5, OffsetCommitValue(5, 0, "", 0x1A1FD565D27, -1, apache.TOPIC_ID)),
        (apache.COMMIT_3_NOTE, OffsetCommitValue(3, -1, "note\0", 0x1A1FD565D33, -1, apache.TOPIC_ID)),
        (apache.TXN_COMMIT_4, OffsetCommitValue(4, -1, "", 0x1A1FD56623E)),
    ],
)
def test_o1_committed_offsets_are_apache_kafka_s(golden: str, value: OffsetCommitValue) -> None:
    assert decode_offset_commit_value(bytes.fromhex(golden)) == value
    assert encode_offset_commit_value(value).hex() == golden


@pytest.mark.parametrize(
    ("golden", "value"),
    [
        (apache.NEW_READERS, GroupMetadataValue(current_state_timestamp_ms=0x1A1FD565C69)),
        (apache.EMPTY_READERS, GroupMetadataValue("consumer", 2, None, None, 0x1A1FD5662C5)),
        (
            apache.STABLE_STATICS,
            GroupMetadataValue(
                "consumer",
                1,
                "range",
                apache.STATIC_MEMBER,
                0x1A1FD565D7D,
                (
                    MemberMetadata(
                        apache.STATIC_MEMBER,
                        "i-1",
                        "cl",
                        "/127.0.0.1",
                        300_000,
                        6_000,
                        apache.SUBSCRIPTION,
                        apache.ASSIGNMENT,
                    ),
                ),
            ),
        ),
    ],
)
def test_g7_groups_are_apache_kafka_s(golden: str, value: GroupMetadataValue) -> None:
    assert decode_group_metadata_value(bytes.fromhex(golden)) == value
    assert encode_group_metadata_value(value).hex() == golden


@given(GROUPS, st.integers(0, 4))
def test_groups_of_every_version_come_back_but_for_what_the_version_lacks(
    value: GroupMetadataValue, version: int
) -> None:
    members = tuple(
        m._replace(
            group_instance_id=m.group_instance_id if version >= 3 else None,
            rebalance_timeout_ms=m.rebalance_timeout_ms if version >= 1 else -1,
        )
        for m in value.members
    )
    timestamp_ms = value.current_state_timestamp_ms if version >= 2 else -1
    expected = value._replace(members=members, current_state_timestamp_ms=timestamp_ms)
    assert decode_group_metadata_value(encode_group_metadata_value(value, version)) == expected


@given(OFFSETS, st.integers(0, 4))
def test_offsets_of_every_version_come_back_but_for_what_the_version_lacks(
    value: OffsetCommitValue, version: int
) -> None:
    expected = value._replace(
        leader_epoch=value.leader_epoch if version >= 3 else -1,
        expire_timestamp_ms=value.expire_timestamp_ms if version == 1 else -1,
        topic_id=value.topic_id if version >= 4 else bytes(16),
    )
    assert decode_offset_commit_value(encode_offset_commit_value(value, version)) == expected


def test_old_and_unknown_kinds_of_keys() -> None:
    assert decode_key(b"\0\0\0\1g\0\1t\0\0\0\2") == OffsetCommitKey("g", "t", 2)
    assert decode_key(b"\0\3\0\1g") is None
    assert decode_key(b"\0\x17anything") is None


@pytest.mark.parametrize("bad", [b"", b"\0", b"\0\1", b"\0\1\0\1g\0\1t\0\0\0", b"\0\2\0\1gg", b"\0\2\xff\xff"])
def test_keys_that_are_none(bad: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_key(bad)


@pytest.mark.parametrize("bad", [b"", b"\0\5", b"\xff\xff", b"\0\3", bytes.fromhex(apache.COMMIT_5)[:-1]])
def test_values_that_are_none(bad: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_offset_commit_value(bad)
    with pytest.raises(CorruptDataError):
        decode_group_metadata_value(bad)


def test_a_later_kafka_s_tagged_fields_are_passed_over() -> None:
    later = bytes.fromhex(apache.TXN_COMMIT_4[:-2]) + b"\1\x63\2hi"
    assert decode_offset_commit_value(later) == decode_offset_commit_value(bytes.fromhex(apache.TXN_COMMIT_4))

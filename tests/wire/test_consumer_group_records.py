"""Records of consumer groups, byte for byte as Apache Kafka 4.3.0's generated classes write them."""

from __future__ import annotations

import pytest

from ottla.base.errors import CorruptDataError
from ottla.wire import consumer_group_records as records
from ottla.wire.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    TargetTopicPartition,
)
from ottla.wire.xxh3 import xxh3_64

_ID = bytes(range(16))
_MEMBER = ConsumerGroupMemberMetadataKey("g", "m")
_WHO = ConsumerGroupMemberMetadataValue(None, None, "c", "/h", ("t",), "", 100)
_CLASSIC = ClassicMemberMetadata(5, (ClassicProtocol("range", b"x"),))

#: Key, value, and both as bytes.
ROWS = [
    (ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(2), "0003000167", "00000000000200"),
    (
        ConsumerGroupMetadataKey("g"),
        ConsumerGroupMetadataValue(2, -5),
        "0003000167",
        "000000000002010008fffffffffffffffb",
    ),
    (_MEMBER, _WHO, "000500016700016d", "000000000263032f6802027401000000640001000100"),
    (
        _MEMBER,
        _WHO._replace(classic_member_metadata=_CLASSIC),
        "000500016700016d",
        "000000000263032f680202740100000064000100100100000005020672616e676502780000",
    ),
    (
        _MEMBER,
        _WHO._replace(classic_member_metadata=ClassicMemberMetadata()),
        "000500016700016d",
        "000000000263032f6802027401000000640000",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataKey("g"),
        ConsumerGroupTargetAssignmentMetadataValue(3, 1),
        "0006000167",
        "0000000000030100080000000000000001",
    ),
    (
        ConsumerGroupTargetAssignmentMemberKey("g", "m"),
        ConsumerGroupTargetAssignmentMemberValue((TargetTopicPartition(_ID, (0, 2)),)),
        "000700016700016d",
        "000002000102030405060708090a0b0c0d0e0f0300000000000000020000",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
        ConsumerGroupCurrentMemberAssignmentValue(3, 2, 0, (CurrentTopicPartitions(_ID, (1,), (3,)),)),
        "000800016700016d",
        "000000000003000000020002000102030405060708090a0b0c0d0e0f020000000101000502000000030100",
    ),
    (
        ConsumerGroupRegularExpressionKey("g", "w.*"),
        ConsumerGroupRegularExpressionValue(("words",), 7, 9),
        "00100001670003772e2a",
        "00000206776f7264730000000000000007000000000000000900",
    ),
]


@pytest.mark.parametrize(("key", "value", "key_hex", "value_hex"), ROWS)
def test_g19_records_are_kafkas_bytes(key: records.Key, value: records.Value, key_hex: str, value_hex: str) -> None:
    assert (records.encode_key(key).hex(), records.encode_value(value).hex()) == (key_hex, value_hex)
    assert records.decode_key(bytes.fromhex(key_hex)) == key
    assert records.decode_value(key, bytes.fromhex(value_hex)) == value


def test_tags_of_a_later_kafka_are_passed_over() -> None:
    later = bytes.fromhex("000000000263032f68020274010000006400020001000703aabbcc")
    assert records.decode_value(_MEMBER, later) == _WHO
    assert records.decode_value(_MEMBER, bytes.fromhex("000000000263032f68020274010000006400010703aabbcc")) == (
        _WHO._replace(classic_member_metadata=ClassicMemberMetadata())
    )


@pytest.mark.parametrize("value", ["", "0001", "0000", "00000000000263"])
def test_values_that_are_none(value: str) -> None:
    with pytest.raises(CorruptDataError):
        records.decode_value(ConsumerGroupMetadataKey("g"), bytes.fromhex(value))


@pytest.mark.parametrize("key", ["", "0009000167", "00030001"])
def test_keys_that_are_none(key: str) -> None:
    with pytest.raises(CorruptDataError):
        records.decode_key(bytes.fromhex(key))


def test_what_kafka_before_4_1_wrote_is_not_looked_into() -> None:
    key = ConsumerGroupPartitionMetadataKey("g")
    assert records.decode_key(records.encode_key(key)) == key
    assert records.decode_value(key, b"anything") is None


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, 3244421341483603138),
        (1, 1433843135270481901),
        (3, -6266602912829716452),
        (4, 7895465118229274323),
        (8, 6941064856527638883),
        (9, -72226354546400344),
        (16, -5131753158909839995),
        (17, 8163341949877205007),
        (33, 4486878507168070088),
        (64, 2917965298538373825),
        (65, -9038134159117547962),
        (97, 2137665177113230204),
        (128, 7440608504995537343),
        (129, -4150982730466284604),
        (200, 8389308914288017243),
        (240, 7229805477010515663),
        (241, -8364630114420064745),
        (512, -756038794506822371),
        (1023, -3284946428344021948),
        (1024, -7241394453710343503),
        (1025, -9192937061388044938),
        (1088, 3424848841118183642),
        (1089, 3067025562774136808),
        (5000, 8762507191635236893),
    ],
)
def test_xxh3_is_what_hash4j_says(size: int, expected: int) -> None:
    assert xxh3_64(bytes((number * 7 + 3) & 255 for number in range(size))) == expected

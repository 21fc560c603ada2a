"""Records of `__transaction_state` as Apache Kafka 4.3.0 wrote them, read and written again byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import CorruptDataError
from ottla.wire.producer_ids_record import ProducerIdsRecord, decode_producer_ids, encode_producer_ids
from ottla.wire.transaction_records import (
    PartitionsSchema,
    TransactionLogValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

#: From `__transaction_state-0` of a node that was asked what `tests/coordinator/txn/talks.py` asks.
FROM_KAFKA = {
    "empty": "0001000000000000000000000000ea600000000001a1fd6761a8ffffffffffffffff0100080000000000000000",
    "ongoing": (
        "0001000000000000000000000000ea600102027403000000010000000000000001a1fd676216000001a1fd67621602000800000000"
        "0000000002020002"
    ),
    "prepare commit": (
        "0001000000000000000000010000ea600202027403000000010000000000000001a1fd676224000001a1fd67621602000800000000"
        "0000000002020002"
    ),
    "complete abort": (
        "0001000000000000000000020000ea600501000001a1fd67629b000001a1fd67629a020008000000000000000002020002"
    ),
    "ongoing with offsets, older client": (
        "0001000000000000000100000000ea600103027403000000010000000000135f5f636f6e73756d65725f6f66667365747302000000"
        "0100000001a1fd67630d000001a1fd6762fa0100080000000000000001"
    ),
    "prepare abort, epochs used up": (
        "000100000000000000097fff0000ea6003020274020000000000000001a1fd68146e000001a1fd68146d0300080000000000000009"
        "0108000000000000000a02020002"
    ),
}


def test_p7_key_of_kafka() -> None:
    key = bytes.fromhex("0000000f786b69705f3839302d373238363438")
    assert decode_key(key) == "xkip_890-728648"
    assert encode_key("xkip_890-728648") == key


@pytest.mark.parametrize("name", FROM_KAFKA)
def test_t4_value_of_kafka_is_written_again_byte_for_byte(name: str) -> None:
    value = bytes.fromhex(FROM_KAFKA[name])
    assert encode_value(decode_value(value)) == value


def test_t4_value_of_kafka_says_what_it_should() -> None:
    assert decode_value(bytes.fromhex(FROM_KAFKA["empty"])).transaction_partitions is None
    assert decode_value(bytes.fromhex(FROM_KAFKA["ongoing with offsets, older client"])) == TransactionLogValue(
        producer_id=1,
        previous_producer_id=1,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=(PartitionsSchema("t", (1, 0)), PartitionsSchema("__consumer_offsets", (1,))),
        transaction_last_update_timestamp_ms=1_795_252_773_645,
        transaction_start_timestamp_ms=1_795_252_773_626,
    )
    used_up = decode_value(bytes.fromhex(FROM_KAFKA["prepare abort, epochs used up"]))
    assert (used_up.producer_epoch, used_up.next_producer_id, used_up.client_transaction_version) == (32_767, 10, 2)


values = st.builds(
    TransactionLogValue,
    producer_id=st.integers(0, 2**63 - 1),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    producer_epoch=st.integers(-1, 32_767),
    next_producer_epoch=st.integers(-1, 32_767),
    transaction_timeout_ms=st.integers(-1, 2**31 - 1),
    transaction_status=st.integers(0, 7),
    transaction_partitions=st.none()
    | st.lists(
        st.builds(PartitionsSchema, st.text(max_size=20), st.lists(st.integers(0, 2**31 - 1)).map(tuple)), max_size=3
    ).map(tuple),
    transaction_last_update_timestamp_ms=st.integers(-1, 2**62),
    transaction_start_timestamp_ms=st.integers(-1, 2**62),
    client_transaction_version=st.integers(0, 2),
)


@given(values)
def test_value_survives_the_log(value: TransactionLogValue) -> None:
    assert decode_value(encode_value(value)) == value


@given(values)
def test_version_0_drops_what_kip_890_added(value: TransactionLogValue) -> None:
    kept = value._replace(
        previous_producer_id=-1, next_producer_id=-1, next_producer_epoch=-1, client_transaction_version=0
    )
    assert decode_value(encode_value(value, 0)) == kept


@given(st.binary(max_size=80))
def test_garbage_is_a_corrupt_record_and_nothing_else(data: bytes) -> None:
    for read in (decode_key, decode_value, decode_producer_ids):
        try:
            read(data)
        except CorruptDataError:
            continue


def test_key_of_a_later_type_is_skipped_and_a_later_value_refused() -> None:
    assert decode_key(b"\x00\x01whatever") is None
    with pytest.raises(CorruptDataError, match="v2"):
        decode_value(b"\x00\x02")
    with pytest.raises(CorruptDataError, match="no version"):
        decode_key(b"\x00")


def test_p2_producer_ids_record_is_krafts() -> None:
    # From `__cluster_metadata-0` of Apache Kafka 4.3.0: its first block, for broker 1 of epoch 12.
    value = bytes.fromhex("010f0000000001000000000000000c00000000000003e800")
    assert encode_producer_ids(ProducerIdsRecord(1, 12, 1_000)) == value
    assert decode_producer_ids(value) == ProducerIdsRecord(1, 12, 1_000)

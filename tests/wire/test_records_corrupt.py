"""Damaged and hostile batches: always CorruptBatchError, in both forms of the codec, never a crash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.limits import MAX_DECOMPRESSED_BATCH_BYTES
from ottla.wire.batch import (
    HEADER_BYTES,
    BatchHeader,
    Compression,
    CorruptBatchError,
    UnsupportedMagicError,
    pack_header,
    parse_header,
    seal,
)
from ottla.wire.compression import compress
from tests.wire.forms import INSTALLED, INTERPRETED, Form, both_forms

NOW_MS = 1_700_000_000_000
RECORDS = [
    INSTALLED.records.Record(0, NOW_MS, b"key", b"value", ()),
    INSTALLED.records.Record(1, NOW_MS + 1000, None, b"v" * 100, (("trace", b"1"), ("trace", None))),
    INSTALLED.records.Record(2, NOW_MS - 5, b"", None, ()),
]
SOUND = INSTALLED.records.encode_batch(RECORDS)


def around(body: bytes, count: int = 1, **fields: int) -> bytes:
    """A sealed batch with `body` as its records."""
    header = BatchHeader(0, 49 + len(body), -1, 2, 0, 0, max(count - 1, 0), NOW_MS, NOW_MS, -1, -1, -1, count)
    batch = bytearray(pack_header(header._replace(**fields)) + body)
    seal(batch)
    return bytes(batch)


def outcome(form: Form, batch: bytes) -> object:
    """What `form` makes of a batch, in records and in columns; CorruptBatchError counts as a result."""
    try:
        records = form.records.decode_batch(batch)
    except CorruptBatchError as error:
        with pytest.raises(CorruptBatchError):
            form.columns.decode_columns(batch, with_headers=True)
        return str(error)
    columns = form.columns.decode_columns(batch, with_headers=True)
    assert columns.num_rows == (0 if parse_header(batch).is_control else len(records))
    columns.validate(full=True)
    return records


def varint(value: int, padding: int = 0) -> bytes:
    """A zigzag varint, made longer than it need be by `padding` bytes."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    for _ in range(padding):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def record(*parts: bytes, size: int | None = None) -> bytes:
    body = b"\x00" + b"".join(parts)
    return varint(len(body) if size is None else size) + body


ZERO, NULL = varint(0), varint(-1)
GOOD = record(ZERO, ZERO, NULL, NULL, ZERO)


@both_forms
def test_the_hand_made_record_is_sound(form: Form) -> None:
    assert outcome(form, around(GOOD)) == [(0, NOW_MS, None, None, ())]
    padded = record(varint(0, 9), varint(0, 4), NULL, NULL, ZERO)
    assert outcome(form, around(padded)) == [(0, NOW_MS, None, None, ())]


BAD_BODIES = {
    "no records at all": b"",
    "more bytes than records": GOOD + b"\x00",
    "a second record nobody counted": GOOD + GOOD,
    "negative record length": record(ZERO, ZERO, NULL, NULL, ZERO, size=-5),
    "record longer than the body": record(ZERO, ZERO, NULL, NULL, ZERO, size=7),
    "record shorter than its fields": record(ZERO, ZERO, NULL, NULL, ZERO, size=5),
    "record of no bytes": b"\x00" * 9,
    "bytes after the headers": record(ZERO, ZERO, NULL, NULL, ZERO, b"x"),
    "key beyond the record": record(ZERO, ZERO, varint(100), NULL, ZERO),
    "key length below null": record(ZERO, ZERO, varint(-2), NULL, ZERO),
    "key length of 31 bits": record(ZERO, ZERO, varint(2**31 - 1), NULL, ZERO),
    "value length below null": record(ZERO, ZERO, NULL, varint(-(2**31)), ZERO),
    "value beyond the record": record(ZERO, ZERO, NULL, varint(5), ZERO),
    "negative header count": record(ZERO, ZERO, NULL, NULL, varint(-1)),
    "header count of 31 bits": record(ZERO, ZERO, NULL, NULL, varint(2**31 - 1)),
    "header count above the headers": record(ZERO, ZERO, NULL, NULL, varint(2), varint(1), b"k", NULL),
    "null header key": record(ZERO, ZERO, NULL, NULL, varint(1), NULL, NULL),
    "header value below null": record(ZERO, ZERO, NULL, NULL, varint(1), varint(1), b"k", varint(-3)),
    "negative offset delta": record(ZERO, varint(-1), NULL, NULL, ZERO),
    "offset delta beyond the last": record(ZERO, varint(1), NULL, NULL, ZERO),
    "varint of six bytes": record(ZERO, varint(0, 5), NULL, NULL, ZERO),
    "varint of more than 32 bits": record(ZERO, b"\x80\x80\x80\x80\x10", NULL, NULL, ZERO),
    "varlong of eleven bytes": record(varint(0, 10), ZERO, NULL, NULL, ZERO),
    "varlong of more than 64 bits": record(b"\x80" * 9 + b"\x02", ZERO, NULL, NULL, ZERO),
    "timestamp beyond 64 bits": record(varint(2**63 - 1), ZERO, NULL, NULL, ZERO),
    "varint without an end": record(ZERO, b"\xff\xff", size=3),
}


@both_forms
@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_a_bad_body_is_corrupt(form: Form, body: bytes) -> None:
    assert isinstance(outcome(form, around(body)), str)


@both_forms
def test_timestamps_of_all_64_bits_are_read(form: Form) -> None:
    lowest = record(varint(-(2**63)), ZERO, NULL, NULL, ZERO)
    assert outcome(form, around(lowest, base_timestamp_ms=0)) == [(0, -(2**63), None, None, ())]
    highest = record(varint(2**63 - 1), ZERO, NULL, NULL, ZERO)
    assert outcome(form, around(highest, base_timestamp_ms=0)) == [(0, 2**63 - 1, None, None, ())]
    assert isinstance(outcome(form, around(lowest, base_timestamp_ms=-1)), str)


@both_forms
@pytest.mark.parametrize("count", [-(2**31), -1, 0, 2, 1000, 2**31 - 1])
def test_a_record_count_that_lies_is_corrupt(form: Form, count: int) -> None:
    assert isinstance(outcome(form, around(GOOD, record_count=count)), str)


@both_forms
@pytest.mark.parametrize(
    "fields", [{"base_offset": -1}, {"last_offset_delta": -1}, {"base_offset": 2**63 - 1, "last_offset_delta": 1}]
)
def test_impossible_offsets_are_corrupt(form: Form, fields: dict[str, int]) -> None:
    assert isinstance(outcome(form, around(GOOD, **fields)), str)


@both_forms
def test_a_header_key_that_is_not_utf8_is_repaired_as_in_java(form: Form) -> None:
    body = record(ZERO, ZERO, NULL, NULL, varint(1), varint(2), b"\xffk", NULL)
    assert outcome(form, around(body)) == [(0, NOW_MS, None, None, (("\ufffdk", None),))]


@both_forms
def test_a_wrong_crc_is_corrupt_unless_crcs_are_not_checked(form: Form) -> None:
    batch = bytearray(SOUND)
    batch[17] ^= 1
    assert "CRC" in str(outcome(form, bytes(batch)))
    assert form.records.decode_batch(batch, check_crc=False) == RECORDS
    with pytest.raises(CorruptBatchError, match="cut off"):
        form.records.decode_batch(batch[:-1], check_crc=False)


@both_forms
def test_unknown_compression_and_old_magic_are_named(form: Form) -> None:
    assert "compression type 6" in str(outcome(form, around(GOOD, attributes=6)))
    with pytest.raises(UnsupportedMagicError):
        form.records.decode_batch(SOUND[:16] + b"\x01" + SOUND[17:])


@both_forms
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_decompression_bomb_is_corrupt(form: Form, codec: Compression) -> None:
    chunk = compress(codec, bytes(MAX_DECOMPRESSED_BATCH_BYTES // 4 + 1))
    assert len(chunk) < MAX_DECOMPRESSED_BATCH_BYTES // 500
    bomb = around(chunk * 4, attributes=int(codec))
    with pytest.raises(CorruptBatchError, match="hold more than"):
        form.records.decode_batch(bomb)


@pytest.mark.parametrize("codec", Compression)
@given(data=st.data())
def test_a_changed_batch_is_read_alike_by_both_forms(codec: Compression, data: st.DataObject) -> None:
    batch = bytearray(INSTALLED.records.encode_batch(RECORDS, compression=codec))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(HEADER_BYTES - 8, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    seal(batch)
    assert outcome(INSTALLED, bytes(batch)) == outcome(INTERPRETED, bytes(batch))


@given(body=st.binary(max_size=60), count=st.integers(0, 6), attributes=st.integers(0, 15))
def test_garbage_is_read_alike_by_both_forms(body: bytes, count: int, attributes: int) -> None:
    batch = around(body, count, attributes=attributes)
    assert outcome(INSTALLED, batch) == outcome(INTERPRETED, batch)


@given(cut=st.integers(HEADER_BYTES, len(SOUND) - 1))
def test_a_body_cut_short_is_corrupt(cut: int) -> None:
    body = SOUND[HEADER_BYTES:cut]
    for form in (INSTALLED, INTERPRETED):
        assert isinstance(outcome(form, around(body, 3)), str)

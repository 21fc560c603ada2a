"""Record batches from outside: headers, integrity, what a producer may send, control batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.batch import (
    CONTROL_FLAG,
    HEADER_BYTES,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    BatchTooLargeError,
    Compression,
    CorruptBatchError,
    InvalidRecordError,
    TimestampType,
    UnsupportedCompressionError,
    UnsupportedMagicError,
    assign_offsets,
    check_integrity,
    is_transactional,
    iter_headers,
    pack_header,
    parse_header,
    seal,
    set_producer,
    stamped,
    validate,
)
from ottla.wire.markers import MARKER_BATCH_BYTES, control_batch, parse_end_txn_marker

NOW_MS = 1_700_000_000_000
MAX_BYTES = 1_048_588


def make_batch(body: bytes = b"not decoded here", *, fields: dict[str, int] | None = None) -> bytearray:
    """A sealed batch around `body`; `fields` replace those of its header."""
    header = BatchHeader(0, 49 + len(body), -1, 2, 0, 0, 2, NOW_MS, NOW_MS + 2, -1, -1, -1, 3)
    batch = bytearray(pack_header(header._replace(**(fields or {}))) + body)
    seal(batch)
    return batch


def check(batch: bytearray | bytes, max_bytes: int = MAX_BYTES) -> None:
    validate(batch, 0, parse_header(batch), max_bytes)


def test_header_is_61_bytes_and_round_trips() -> None:
    header = BatchHeader(7, 60, 3, 2, 0xFFFFFFFF, 0x1C, 9, -1, 2**62, 5, 6, 7, 10)
    packed = pack_header(header)
    assert len(packed) == HEADER_BYTES
    assert parse_header(b"xx" + packed, 2) == header


def test_header_properties() -> None:
    header = parse_header(make_batch(fields={"base_offset": 100, "attributes": 0x7C, "base_sequence": 2**31 - 2}))
    assert header.size_bytes == HEADER_BYTES + 16
    assert header.last_offset == 102
    assert header.last_sequence == 0
    assert header.compression is Compression.ZSTD
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.is_transactional and header.is_control
    plain = parse_header(make_batch())
    assert plain.last_sequence == NO_SEQUENCE
    assert plain.compression is Compression.NONE
    assert plain.timestamp_type is TimestampType.CREATE_TIME
    assert not (plain.is_transactional or plain.is_control or plain.has_producer_id)


def test_a_sound_batch_is_valid() -> None:
    check(make_batch())
    check(make_batch(fields={"producer_id": 4, "producer_epoch": 0, "base_sequence": 0, "attributes": 0x10}))


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_magics_are_refused_by_name(magic: int) -> None:
    batch = make_batch()
    batch[16] = magic
    with pytest.raises(UnsupportedMagicError, match=f"magic {magic} "):
        parse_header(batch)
    with pytest.raises(UnsupportedMagicError):
        list(iter_headers(batch))


def test_a_short_message_set_of_magic_1_is_named_too() -> None:
    message_set = bytes(8) + (22).to_bytes(4, "big") + bytes(4) + b"\x01" + bytes(17)
    with pytest.raises(UnsupportedMagicError):
        parse_header(message_set)


@pytest.mark.parametrize("size", range(HEADER_BYTES))
def test_a_truncated_header_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatchError):
        parse_header(make_batch()[:size])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("position", [0, 1, HEADER_BYTES, 200])
def test_so_is_what_is_left_of_one_behind_others(position: int, kind: type[bytes | bytearray | memoryview]) -> None:
    """It may begin behind all there is."""
    for left in (0, 16, 17, HEADER_BYTES - 1):
        buffer = kind(make_batch(bytes(200))[:position] + make_batch()[:left])
        for behind in (0, 5) if left == 0 else (0,):
            with pytest.raises(CorruptBatchError, match=f" {left} are left at {position + behind}$") as raised:
                parse_header(buffer, position + behind)
            assert type(raised.value) is CorruptBatchError
    old = make_batch()[:17]
    old[16] = 1
    with pytest.raises(UnsupportedMagicError, match=f"magic 1 at {position};"):
        parse_header(kind(bytes(position) + old), position)


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 48])
def test_an_impossible_length_is_corrupt(length: int) -> None:
    batch = make_batch(fields={"length": 65})
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatchError, match="batch length"):
        parse_header(batch)


def test_a_batch_that_ends_early_is_corrupt() -> None:
    with pytest.raises(CorruptBatchError, match="are there"):
        check(make_batch()[:-1])


@given(position=st.integers(21, 76), flip=st.integers(1, 255))
def test_any_changed_byte_under_the_crc_is_found(position: int, flip: int) -> None:
    batch = make_batch()
    batch[position] ^= flip
    with pytest.raises(CorruptBatchError, match="CRC"):
        check_integrity(batch, 0, parse_header(batch))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"record_count": 0, "last_offset_delta": -1}, InvalidRecordError),
        ({"record_count": -1}, InvalidRecordError),
        ({"record_count": 4}, InvalidRecordError),
        ({"last_offset_delta": 3}, InvalidRecordError),
        ({"attributes": 5}, UnsupportedCompressionError),
        ({"producer_id": 1, "base_sequence": -1}, InvalidRecordError),
        ({"producer_id": 0, "base_sequence": -1}, InvalidRecordError),
        ({"attributes": TRANSACTIONAL_FLAG}, InvalidRecordError),
        ({"attributes": TRANSACTIONAL_FLAG, "producer_id": -2, "base_sequence": 0}, InvalidRecordError),
    ],
)
def test_what_no_producer_may_send(fields: dict[str, int], error: type[CorruptBatchError]) -> None:
    with pytest.raises(error):
        check(make_batch(fields=fields))


def test_a_batch_over_the_limit_has_its_own_error() -> None:
    batch = make_batch()
    check(batch, len(batch))
    with pytest.raises(BatchTooLargeError):
        check(batch, len(batch) - 1)


def test_the_error_names_kafkas_code() -> None:
    assert CorruptBatchError("").error_code == 2
    assert InvalidRecordError("").error_code == 87
    assert UnsupportedMagicError("").error_code == 43
    assert UnsupportedCompressionError("").error_code == 76
    assert BatchTooLargeError("").error_code == 10


def test_iteration_ends_at_a_batch_cut_off() -> None:
    first, second = make_batch(), make_batch(b"", fields={"base_offset": 3})
    buf = bytes(first + second)
    assert [(pos, header.base_offset) for pos, header in iter_headers(buf)] == [(0, 0), (len(first), 3)]
    for cut in range(len(first), len(buf)):
        assert [pos for pos, _ in iter_headers(buf[:cut])] == [0]
    with pytest.raises(CorruptBatchError, match="not a whole batch"):
        list(iter_headers(buf[:-1], strict=True))
    assert len(list(iter_headers(memoryview(buf), strict=True))) == 2


def test_offsets_are_assigned_without_touching_the_crc() -> None:
    buf = make_batch() + make_batch()
    pos = len(buf) // 2
    before = parse_header(buf, pos)
    assign_offsets(memoryview(buf), pos, 2**40, 17)
    header = parse_header(buf, pos)
    assert header == before._replace(base_offset=2**40, partition_leader_epoch=17)
    check_integrity(buf, pos, header)
    assert parse_header(buf) == before


def test_log_append_time_sets_flag_and_max_timestamp_and_seals_without_touching_the_batch() -> None:
    before = make_batch()
    produced = parse_header(before)
    head, body = stamped(before, produced, 2**40, 17, NOW_MS + 99)
    assert (len(head), body) == (HEADER_BYTES, memoryview(before)[HEADER_BYTES:])
    header = parse_header(head + body)
    check_integrity(head + body, 0, header)
    assert header == produced._replace(
        base_offset=2**40,
        partition_leader_epoch=17,
        crc=header.crc,
        attributes=TIMESTAMP_TYPE_FLAG,
        max_timestamp_ms=NOW_MS + 99,
    )
    assert parse_header(before) == produced


@pytest.mark.parametrize("commit", [True, False])
def test_t7_a_control_batch_holds_one_marker(commit: bool) -> None:
    batch = control_batch(
        commit=commit, producer_id=2**40, producer_epoch=7, coordinator_epoch=2**31 - 1, timestamp_ms=NOW_MS
    )
    header = parse_header(batch)
    check(batch)
    assert len(batch) == MARKER_BATCH_BYTES
    assert header.attributes == TRANSACTIONAL_FLAG | CONTROL_FLAG
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 7, NO_SEQUENCE)
    assert header.record_count == 1 and header.max_timestamp_ms == NOW_MS
    assert parse_end_txn_marker(batch) == (commit, 2**31 - 1)
    # attribute bits 4 and 5; key = version 0, type; value = version 0, coordinator epoch
    assert batch[HEADER_BYTES:] == bytes.fromhex(f"20000000080000000{int(commit)}0c00007fffffff00")


@given(st.binary(max_size=40))
def test_a_marker_of_garbage_is_corrupt_or_parses(body: bytes) -> None:
    batch = make_batch(body, fields={"attributes": 0x30, "record_count": 1, "last_offset_delta": 0})
    try:
        commit, epoch = parse_end_txn_marker(batch)
    except CorruptBatchError:
        return
    assert isinstance(commit, bool) and isinstance(epoch, int)


def test_a_data_batch_is_no_marker() -> None:
    with pytest.raises(CorruptBatchError, match="not a control batch"):
        parse_end_txn_marker(make_batch())
    marker = control_batch(commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0)
    with pytest.raises(CorruptBatchError, match="cut off"):
        parse_end_txn_marker(marker[:-1])
    other = bytearray(marker)
    other[69] = 9
    with pytest.raises(CorruptBatchError, match="type 9"):
        parse_end_txn_marker(other)


@given(st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1), st.booleans(), st.booleans())
def test_a_batch_becomes_a_producers_and_nothing_else_of_it_changes(
    producer_id: int, epoch: int, sequence: int, before: bool, transactional: bool
) -> None:
    batch = make_batch(fields={"attributes": TIMESTAMP_TYPE_FLAG})
    set_producer(batch, 1, 1, 1, transactional=before)
    untouched = parse_header(batch)
    set_producer(batch, producer_id, epoch, sequence, transactional=transactional)
    header = parse_header(batch)
    check_integrity(batch, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, epoch, sequence)
    assert is_transactional(batch) == transactional
    flag = TRANSACTIONAL_FLAG
    same = {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0, "crc": 0, "attributes": 0}
    assert header._replace(**same) == untouched._replace(**same)
    assert header.attributes & ~flag == untouched.attributes & ~flag

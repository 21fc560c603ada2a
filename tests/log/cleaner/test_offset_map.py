"""The offset map is a dict with a fixed size."""

from collections.abc import Sequence
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.cleaner.offset_map import BYTES_PER_KEY, OffsetMap
from ottla.wire.batch import parse_header
from ottla.wire.record_codec import RecordCursor
from ottla.wire.records import Record, encode_batch, open_batch


def _cursor(keys: Sequence[bytes | None], base_offset: int = 0) -> RecordCursor:
    rows = [Record(base_offset + n, 0, key, b"v") for n, key in enumerate(keys)]
    batch = encode_batch(rows, base_offset=base_offset)
    return open_batch(batch, 0, parse_header(batch))


@given(st.lists(st.binary(max_size=3), min_size=1), st.integers(1, 40), st.floats(0.0, 1.0), st.integers(1, 9))
def test_it_knows_the_newest_offset_of_each_key_until_it_is_full(
    keys: list[bytes], slots: int, load: float, at_most: int
) -> None:
    offsets, known, cursor = OffsetMap(slots * BYTES_PER_KEY, load), dict[bytes, int](), _cursor(keys)
    while cursor.taken < len(keys) and offsets.put_some(cursor, at_most, 0):
        pass
    for offset, key in enumerate(keys[: offsets.latest_offset + 1]):
        known[key] = offset
    assert offsets.latest_offset == len(keys) - 1 or len(known) == offsets.max_keys
    assert offsets.keys == len(known)
    assert {key: offsets.get(key) for key in {*keys, b"never"}} == {
        key: known.get(key, -1) for key in {*keys, b"never"}
    }


def test_records_without_a_key_and_those_before_the_start_are_not_put() -> None:
    offsets = OffsetMap(10 * BYTES_PER_KEY, 1.0)
    assert offsets.put_some(_cursor([b"before", None, b"k"], 2), 9, 3)
    assert (offsets.keys, offsets.latest_offset, offsets.get(b"before")) == (1, 4, -1)


def test_a_full_map_takes_no_record_and_none_behind_it() -> None:
    offsets = OffsetMap(2 * BYTES_PER_KEY, 1.0)
    assert not offsets.put_some(_cursor([b"0", b"1", b"2"]), 9, 0)
    assert (offsets.keys, offsets.latest_offset, offsets.get(b"2")) == (2, 1, -1)


@given(st.binary(max_size=300))
def test_a_key_is_known_by_its_blake2b(key: bytes) -> None:
    _is_blake2b(key)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 127, 128, 129, 256, 257])
def test_a_key_is_known_by_its_blake2b_where_blocks_begin_and_end(size: int) -> None:
    _is_blake2b(b"\xff" * size)
    _is_blake2b(bytes(range(256))[:size])


def _is_blake2b(key: bytes) -> None:
    digest = blake2b(key, digest_size=16).digest()
    expected = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
    offsets = OffsetMap(10 * BYTES_PER_KEY, 1.0)
    assert offsets.hash_of(key) == expected
    assert offsets.put_some(_cursor([b"first", key, b"last"]), 9, 0)
    assert offsets.get(key) == 1


def test_offset_0_is_an_offset() -> None:
    offsets = OffsetMap(BYTES_PER_KEY, 1.0)
    offsets.put(b"k", 0)
    assert (offsets.get(b"k"), offsets.get(b"other")) == (0, -1)


@pytest.mark.parametrize(
    ("size_bytes", "load", "wanted", "most"),
    [(2_400, 0.9, None, 90), (2_400, 0.9, 9, 9), (0, 0.9, None, 1), (2_400, 0.0, None, 1), (2_400, 1.5, None, 100)],
)
def test_it_takes_no_more_memory_than_it_may_or_needs(
    size_bytes: int, load: float, wanted: int | None, most: int
) -> None:
    assert OffsetMap(size_bytes, load, wanted).max_keys == most

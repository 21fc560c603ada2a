"""The offset map is a dict with a fixed size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.cleaner.offset_map import BYTES_PER_KEY, OffsetMap
from ottla.wire.records import KeyRow


@given(st.lists(st.binary(max_size=3)), st.integers(1, 40), st.floats(0.0, 1.0))
def test_it_knows_the_newest_offset_of_each_key_until_it_is_full(keys: list[bytes], slots: int, load: float) -> None:
    offsets, known = OffsetMap(slots * BYTES_PER_KEY, load), dict[bytes, int]()
    for offset, key in enumerate(keys):
        if not offsets.put_all([(offset, key, True)]):
            break
        known[key] = offset
        assert offsets.latest_offset == offset
    assert offsets.keys == len(known)
    rows: list[KeyRow] = [(offset, key, True) for offset, key in enumerate(keys)]
    behind = [offset > offsets.latest_offset for offset in range(len(keys))]
    assert offsets.are_newest(rows) == [behind[offset] or known[key] == offset for offset, key in enumerate(keys)]
    assert {key: offsets.get(key) for key in {*keys, b"never"}} == {
        key: known.get(key, -1) for key in {*keys, b"never"}
    }


def test_records_without_a_key_are_not_put_and_never_the_newest() -> None:
    offsets = OffsetMap(10 * BYTES_PER_KEY, 1.0)
    assert offsets.put_all([(3, None, True), (4, b"k", False)])
    assert (offsets.keys, offsets.latest_offset) == (1, 4)
    assert offsets.are_newest([(3, None, True), (4, b"k", False), (5, None, True)]) == [False, True, True]


def test_a_full_map_takes_no_row_and_none_behind_it() -> None:
    offsets = OffsetMap(2 * BYTES_PER_KEY, 1.0)
    assert not offsets.put_all([(n, b"%d" % n, True) for n in range(3)])
    assert (offsets.keys, offsets.latest_offset, offsets.get(b"2")) == (2, 1, -1)


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

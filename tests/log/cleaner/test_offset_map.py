"""The offset map is a dict with a fixed size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.cleaner.offset_map import BYTES_PER_KEY, OffsetMap


@given(st.lists(st.binary(max_size=3)), st.integers(1, 40), st.floats(0.0, 1.0))
def test_it_knows_the_newest_offset_of_each_key_until_it_is_full(keys: list[bytes], slots: int, load: float) -> None:
    offsets, known = OffsetMap(slots * BYTES_PER_KEY, load), dict[bytes, int]()
    for offset, key in enumerate(keys):
        if offsets.is_full:
            break
        offsets.put(key, offset)
        known[key] = offset
        assert offsets.latest_offset == offset
    assert offsets.keys == len(known)
    assert {key: offsets.get(key) for key in {*keys, b"never"}} == {
        key: known.get(key, -1) for key in {*keys, b"never"}
    }


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

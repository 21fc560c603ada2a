"""Where batches begin: as their headers say, one after the other, whatever is damaged."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.batch import CorruptBatchError, assign_offsets, iter_headers, parse_header
from ottla.wire.batch_walk import batch_positions
from ottla.wire.records import Record, encode_batch


def _batches(counts: list[int], gaps: list[int]) -> bytearray:
    data, offset = bytearray(), 0
    for count, gap in zip(counts, gaps, strict=True):
        one = bytearray(encode_batch([Record(at, at, None, b"x" * at, ()) for at in range(count)]))
        assign_offsets(one, 0, offset + gap, 3)
        offset += gap + count
        data += one
    return data


def _by_headers(data: bytes) -> list[int]:
    """Up to the first that is none, or whose offsets do not follow."""
    found, behind = [], 0
    try:
        for pos, header in iter_headers(data):
            if header.last_offset_delta < 0 or header.base_offset < behind:
                break
            behind = header.last_offset + 1
            found.append(pos)
    except CorruptBatchError:
        pass
    return found


@given(
    batches=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 3)), max_size=8),
    damages=st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 255)), max_size=3),
    cut=st.integers(0, 80),
    header_only=st.booleans(),
)
def test_they_are_where_the_headers_say(
    batches: list[tuple[int, int]], damages: list[tuple[int, int]], cut: int, header_only: bool
) -> None:
    data = _batches([count for count, _ in batches], [gap for _, gap in batches])
    for at, flip in damages:
        if data:
            data[at % (min(61, len(data)) if header_only else len(data))] ^= flip
    whole = bytes(data[: max(0, len(data) - cut)])
    found, end = batch_positions(memoryview(whole))
    assert list(found) == _by_headers(whole)
    assert end == (found[-1] + parse_header(whole, found[-1]).size_bytes if found else 0)


def test_sizes_that_differ_are_counted_anew() -> None:
    data = _batches([400, *[1] * 300], [0] * 301)
    found, end = batch_positions(bytes(data))
    assert (len(found), end) == (301, len(data))
    assert list(found) == _by_headers(bytes(data))


def test_a_batch_takes_eight_bytes_of_memory() -> None:
    """With an object for each header one megabyte of the smallest batches took five."""
    many = bytes(_batches([1] * 15_000, [0] * 15_000))
    tracemalloc.start()
    try:
        found, _ = batch_positions(many)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == 15_000
    assert most < 8 * 2 * 15_000 + 10_000

"""Where records begin in what comes, however it is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.sockets.records import Records


@given(
    lengths=st.lists(st.integers(0, 300), min_size=1, max_size=40),
    pieces=st.lists(st.integers(1, 400), min_size=1),
    at_most=st.lists(st.integers(1, 9), min_size=1),
)
def test_each_record_is_counted_once_and_a_cut_is_where_one_begins(
    lengths: list[int], pieces: list[int], at_most: list[int]
) -> None:
    stream = b"".join(b"\x17\x03\x03" + length.to_bytes(2, "big") + bytes(length) for length in lengths)
    begins = {sum(lengths[:number]) + 5 * number for number in range(len(lengths))}
    records, position, counted, step = Records(), 0, 0, 0
    while position < len(stream):
        piece = memoryview(stream)[position : position + pieces[step % len(pieces)]]
        most = at_most[step % len(at_most)]
        taken, count = records.cut(piece, most)
        assert count <= most
        assert taken == len(piece) or (count == most and position + taken in begins)
        assert taken > 0
        position, counted, step = position + taken, counted + count, step + 1
    assert counted == len(lengths)

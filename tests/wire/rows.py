"""Records as rows, drawn at random."""

from hypothesis import strategies as st

NOW_MS = 1_700_000_000_000
HEADER = tuple[str, bytes | None]
Row = tuple[int, bytes | None, bytes | None, tuple[HEADER, ...]]
payloads = st.none() | st.binary(max_size=300)
rows = st.tuples(
    st.integers(-1, 2**62 - 1),
    payloads,
    payloads,
    st.lists(st.tuples(st.text(max_size=8), payloads), max_size=3).map(tuple),
)

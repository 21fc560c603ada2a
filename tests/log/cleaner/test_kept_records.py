"""What is written of a batch again, record by record in C, is what plain Python writes from whole records."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from ottla.log.cleaner.kept_records import KeptRecords, Marks
from ottla.log.cleaner.offset_map import OffsetMap
from ottla.wire.batch import BatchHeader, join_batch, parse_header
from ottla.wire.record_codec import RecordCursor
from ottla.wire.records import Record, decode_batch, open_batch
from tests.log.batches import varint

_BASE_OFFSET, _BASE_MS = 70, 1_000_000


def _long_varint(value: int, extra: bytes) -> bytes:
    """A number that takes more bytes than it need."""
    short = varint(value)
    return short if not extra or len(short) > 3 else short[:-1] + bytes([short[-1] | 0x80]) + extra


def _field(content: bytes | None, extra: bytes = b"") -> bytes:
    return _long_varint(-1, b"") if content is None else _long_varint(len(content), extra) + content


def _record(record: Record, base_ms: int, *, attributes: bytes = b"\0", extra: bytes = b"") -> bytes:
    rest = attributes + _long_varint(record.timestamp_ms - base_ms, b"") + varint(record.offset - _BASE_OFFSET)
    rest += _field(record.key, extra) + _field(record.value, extra) + _long_varint(len(record.headers), extra)
    for name, value in record.headers:
        rest += _field(name.encode("utf-8", "surrogateescape"), extra) + _field(value, extra)
    return _long_varint(len(rest), extra) + rest


_TEXTS = st.binary(max_size=9).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
_ROWS = st.lists(
    st.tuples(
        st.one_of(st.integers(-(2**40), 2**40), st.integers(-70, 70)),
        st.one_of(st.none(), st.binary(max_size=200)),
        st.one_of(st.none(), st.binary(max_size=200)),
        st.lists(st.tuples(_TEXTS, st.one_of(st.none(), st.binary(max_size=70))), max_size=3).map(tuple),
        st.booleans(),
        st.sampled_from([b"", b"\0"]),
    ),
    min_size=1,
    max_size=30,
)


def _cursor(rows: Iterable[tuple[Record, bytes]]) -> tuple[RecordCursor, list[Record]]:
    bodies = [_record(record, _BASE_MS, attributes=b"\7", extra=extra) for record, extra in rows]
    count = len(bodies)
    header = BatchHeader(_BASE_OFFSET, 0, -1, 2, 0, 0, 2 * count, _BASE_MS, 0, -1, -1, -1, count)
    batch = join_batch(header, b"".join(bodies))
    return open_batch(batch, 0, parse_header(batch)), decode_batch(batch)


@given(_ROWS, st.integers(1, 40), st.integers(1, 500), st.booleans())
def test_the_records_that_stay_are_written_as_short_as_they_can_be(
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], bool, bytes]],
    at_most: int,
    most_bytes: int,
    other_base: bool,
) -> None:
    given_records = [
        (Record(_BASE_OFFSET + 2 * n, _BASE_MS + time, key, value, headers), extra)
        for n, (time, key, value, headers, _, extra) in enumerate(rows)
    ]
    cursor, read = _cursor(given_records)
    offsets = OffsetMap(24_000, 0.9)
    newest: dict[bytes, int] = {}
    for record, (*_, stays, _) in zip(read, rows, strict=True):
        if record.key is not None:
            newest[record.key] = record.offset + (not stays)
            offsets.put(record.key, newest[record.key])
    offsets.latest_offset = 10_000
    marks = Marks(cursor.count)
    while not marks.take(cursor, offsets, at_most, False):
        pass
    kept = [each for each in read if each.key is not None and each.offset >= newest[each.key]]
    assert marks.kept == len(kept)
    if not kept:
        return
    times = [each.timestamp_ms for each in kept]
    assert (marks.first_ms, marks.earliest_ms, marks.latest_ms) == (times[0], min(times), max(times))
    assert marks.has_tombstone == any(each.value is None for each in kept)
    base_ms = times[0] + 10**9 if other_base else times[0]
    writer, written = KeptRecords(base_ms), bytearray()
    while cursor.taken < cursor.count:
        written += writer.take(cursor, marks, at_most, most_bytes)
    assert written == b"".join(_record(each, base_ms) for each in kept)


def test_without_a_map_all_stay_and_tombstones_go_where_they_may() -> None:
    rows = [(Record(_BASE_OFFSET + n, 5, b"%d" % n, None), b"") for n in range(4)]
    cursor, _ = _cursor(rows)
    marks = Marks(4)
    assert marks.take(cursor, None, 9, False)
    assert marks.kept == 4
    offsets = OffsetMap(240, 1.0)
    offsets.latest_offset = _BASE_OFFSET + 1
    marks = Marks(4)
    assert marks.take(cursor, offsets, 9, True)
    assert marks.kept == 2, "what the map has not come to stays"

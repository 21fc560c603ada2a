"""SPEC T9, C2, C5: columns of a fetch that come in parts are the records of the fetch, whatever it holds. No broker."""

from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.fetch_buffer import FetchBuffer
from ottla.client.core.consumer.fetched import COLUMNS_BYTES, Decoding, FetchedPartition
from ottla.client.core.consumer.positions import PartitionState
from ottla.client.errors import ClientError, CorruptRecordsError
from ottla.wire.batch import HEADER_BYTES, assign_offsets, join_batch, parse_header, seal
from ottla.wire.compression import Compression
from ottla.wire.markers import control_batch
from ottla.wire.records import Record, encode_batch, open_batch

pytest.importorskip("pyarrow")
TP = TopicPartition("t", 0)
#: Values of so many bytes: the last three end a part after three batches, after two, after one.
SIZES = [0, 9, 9, COLUMNS_BYTES // 3 + 1, COLUMNS_BYTES // 2, COLUMNS_BYTES]
#: What may be wrong with a batch: nothing, its checksum, or how many records its (right) checksum is of.
DAMAGES = ["", "", "", "", "crc", "count", "body"]


class ToldError(ClientError):
    """What is raised behind the last batch."""


class Made(NamedTuple):
    """A batch: its kind, and what of it a consumer gets."""

    data: bytes
    last_offset: int
    records: list[Record]
    damage: str
    is_left_out: bool


class Log(NamedTuple):
    """A fetch and how it is read."""

    batches: list[Made]
    aborted: list[tuple[int, int]]
    start: int
    read_committed: bool
    check_crcs: bool
    fails: bool

    def fetch(self) -> FetchedPartition:
        state = PartitionState(TP)
        state.seek(self.start)
        decoding = Decoding(check_crcs=self.check_crcs, read_committed=self.read_committed, key=None, value=None)
        fetch = FetchedPartition(state, b"".join(made.data for made in self.batches), self.aborted, decoding)
        if self.fails:
            fetch.fail(ToldError())
        return fetch

    def expected(self) -> tuple[list[Record], int, type[Exception] | None]:
        """The records, the position behind them, and the error that comes then."""
        found: list[Record] = []
        position = self.start
        for made in self.batches:
            is_opened = not made.is_left_out and made.last_offset >= self.start
            if (made.damage == "crc" and self.check_crcs) or (made.damage in ("count", "body") and is_opened):
                return found, position, CorruptRecordsError
            if is_opened:
                found += [record for record in made.records if record.offset >= self.start]
            position = max(position, made.last_offset + 1)
        return found, position, ToldError if self.fails else None


def damaged(data: bytes, damage: str) -> bytes:
    changed = bytearray(data)
    if damage == "crc":
        changed[17] ^= 1
    elif damage == "count":
        changed[60] ^= 2
        seal(changed)
    elif damage == "body":
        del changed[-1]
        changed[11] -= 1
        seal(changed)
    return bytes(changed)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Batches of two transactional producers, one of them aborted until its marker, and of others; some compacted."""
    read_committed, offset = draw(st.booleans()), 0
    batches: list[Made] = []
    aborted: list[tuple[int, int]] = []
    open_since: dict[int, bool] = {}
    for _ in range(draw(st.integers(1, 14))):
        offset += draw(st.sampled_from([0, 0, 0, 3]))
        producer = draw(st.sampled_from([-1, -1, 7, 8]))
        if producer in open_since and draw(st.booleans()):
            made = bytearray(
                control_batch(
                    commit=not open_since.pop(producer),
                    producer_id=producer,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp_ms=1,
                )
            )
            assign_offsets(made, 0, offset, 3)
            if draw(st.integers(0, 3)) == 0:
                made = bytearray(join_batch(parse_header(made)._replace(record_count=0), b""))
            damage = draw(st.sampled_from(["", "", "", "crc"]))
            batches.append(Made(damaged(bytes(made), damage), offset, [], damage, True))
        else:
            if producer >= 0 and producer not in open_since:
                open_since[producer] = draw(st.booleans())
                if open_since[producer]:
                    aborted.append((producer, offset))
            is_aborted = producer >= 0 and open_since[producer]
            batches.append(draw(data_batches(offset, producer, read_committed and is_aborted)))
        offset = batches[-1].last_offset + 1
    start = draw(st.sampled_from([0, 0, draw(st.integers(0, offset))]))
    return Log(batches, aborted, start, read_committed, draw(st.booleans()), draw(st.booleans()))


@st.composite
def data_batches(draw: st.DrawFn, base: int, producer: int, is_left_out: bool) -> Made:
    deltas = sorted(draw(st.sets(st.integers(0, 5), min_size=1, max_size=4)))
    size = draw(st.sampled_from(SIZES)) // len(deltas)
    records = [
        Record(base + delta, 1_000 + delta, [None, b"k%d" % delta][delta % 2], bytes(size), (("h", b"%d" % delta),))
        for delta in deltas
    ]
    data = encode_batch(
        records,
        compression=draw(st.sampled_from([Compression.NONE, Compression.LZ4, Compression.ZSTD])),
        base_offset=base,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=producer >= 0,
        partition_leader_epoch=3,
    )
    damage = draw(st.sampled_from(DAMAGES))
    return Made(damaged(data, damage), records[-1].offset, records, damage, is_left_out)


class Reader:
    """A user who takes records and columns, and is interrupted now and then."""

    def __init__(self, log: Log) -> None:
        self.fetch = log.fetch()
        self.got: list[Record] = []

    def take(self, how: int) -> None:
        """So many records; with 0 or less, columns."""
        if how > 0:
            taken = self.fetch.take_records(how)
            self.got += [Record(each.offset, each.timestamp_ms, each.key, each.value, each.headers) for each in taken]
            return
        columns = self.fetch.take_columns(with_headers=True)
        names = ["offset", "timestamp_ms", "key", "value", "headers"]
        *rows, headers = (columns.column(name).to_pylist() for name in names)
        pairs = [tuple((each["key"], each["value"]) for each in row) for row in headers]
        self.got += [Record(*row) for row in zip(*rows, pairs, strict=True)]

    def interrupted(self, how: int) -> None:
        """It takes, and gets nothing: what `FetchBuffer.put_back` does."""
        before, place = len(self.got), (self.fetch.state.position, self.fetch.state.position_epoch)
        with suppress(ClientError):
            self.take(how)
        del self.got[before:]
        self.fetch.rewind(*place)

    def rest(self) -> type[Exception] | None:
        """All that is left, as columns; and the error that ends it."""
        while not self.fetch.exhausted:
            try:
                self.take(0)
            except ClientError as error:
                return type(error)
        return None


@settings(max_examples=150, deadline=None)
@given(logs(), st.lists(st.tuples(st.integers(-2, 4), st.booleans()), max_size=6))
def test_t9_whatever_a_fetch_holds_each_record_comes_once_and_in_order(log: Log, steps: list[tuple[int, bool]]) -> None:
    records, position, error = log.expected()
    reader = Reader(log)
    for how, is_interrupted in steps:
        try:
            (reader.interrupted if is_interrupted else reader.take)(how)
        except ClientError as raised:
            assert type(raised) is error
            assert len(reader.got) == len(records)
    for _ in range(2):
        assert reader.rest() is error
        assert summary(reader.got) == summary(records)
        assert reader.fetch.state.position == position


def summary(records: list[Record]) -> list[Any]:
    """Short enough to be printed."""
    return [record._replace(value=b"%d" % len(record.value or b"")) for record in records]


def plain(base: int, size: int, compression: Compression = Compression.NONE) -> bytes:
    return encode_batch([Record(base, 1, None, bytes(size), ())], compression=compression, base_offset=base)


def fetched(partition: int, *batches: bytes) -> FetchedPartition:
    state = PartitionState(TopicPartition("t", partition))
    state.seek(0)
    decoding = Decoding(check_crcs=True, read_committed=True, key=None, value=None)
    return FetchedPartition(state, b"".join(batches), [], decoding)


def rows(fetch: FetchedPartition) -> int:
    found: int = fetch.take_columns(with_headers=False).num_rows
    return found


@pytest.mark.parametrize("bad", range(1, 9))
def test_c2_all_that_is_good_before_damage_comes_at_once(bad: int) -> None:
    batches = [plain(base, 9) for base in range(9)]
    fetch = fetched(0, *batches[:bad], damaged(batches[bad], "crc"), *batches[bad + 1 :])
    assert rows(fetch) == bad


def test_a_part_ends_with_the_batch_that_fills_it() -> None:
    framing = len(plain(0, COLUMNS_BYTES - 99)) - (COLUMNS_BYTES - 99) - HEADER_BYTES
    filling = [plain(base, COLUMNS_BYTES - framing, Compression.LZ4) for base in range(3)]
    assert open_batch(filling[0], 0, parse_header(filling[0])).body_bytes == COLUMNS_BYTES
    fetch = fetched(0, *filling)
    assert [rows(fetch) for _ in filling] == [1, 1, 1]


def test_nothing_is_given_only_where_nothing_is_left() -> None:
    """A table without rows would be taken for a fetch that has not come."""
    compacted = encode_batch(
        [Record(0, 1, None, bytes(COLUMNS_BYTES), ()), Record(5, 1, None, b"", ())], compression=Compression.LZ4
    )
    gone = bytearray(join_batch(parse_header(compacted)._replace(last_offset_delta=9), compacted[HEADER_BYTES:]))
    fetch = fetched(0, bytes(gone), plain(10, 9))
    fetch.state.seek(6)
    fetch.version = fetch.state.version
    assert fetch.take_columns(with_headers=False).column("offset").to_pylist() == [10]
    made = control_batch(commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1)
    only_error = fetched(0, made)
    only_error.fail(ToldError())
    with pytest.raises(ToldError):
        only_error.take_columns(with_headers=False)


@pytest.mark.parametrize("with_headers", [False, True])
def test_headers_come_when_they_are_asked_for(with_headers: bool) -> None:
    names = fetched(0, plain(0, 9)).take_columns(with_headers=with_headers).schema.names
    assert names == ["offset", "timestamp_ms", "timestamp_type", "key", "value", *["headers"] * with_headers]


def buffer_of(*fetches: FetchedPartition) -> FetchBuffer:
    buffer = FetchBuffer()
    for fetch in fetches:
        buffer.add(fetch)
    return buffer


def test_an_error_comes_with_the_next_call_although_another_partition_has_parts_left() -> None:
    large = [plain(base, COLUMNS_BYTES, Compression.LZ4) for base in range(4)]
    bad = fetched(1, damaged(plain(0, 9), "crc"))
    behind_it = FetchedPartition(bad.state, plain(1, 9), [], bad._decoding)
    buffer = buffer_of(fetched(0, *large), bad, fetched(2, plain(0, 9)), behind_it)
    assert [tp.partition for tp in buffer.take_one_per_partition(rows)] == [0]
    for came in [[0, 2], [0], [0]]:
        with pytest.raises(CorruptRecordsError, match="t-1"):
            buffer.take_one_per_partition(rows)
        assert [tp.partition for tp in buffer.take_one_per_partition(rows)] == came
    for _ in range(2):
        with pytest.raises(CorruptRecordsError, match="t-1"):
            buffer.take_one_per_partition(rows)
    bad.state.seek(1)
    assert buffer.take_one_per_partition(rows) == {}
    assert not buffer


def test_between_parts_a_pause_keeps_the_rest_and_a_seek_drops_it() -> None:
    fetch = fetched(0, *(plain(base, COLUMNS_BYTES, Compression.LZ4) for base in range(3)))
    later = FetchedPartition(fetch.state, plain(3, 9), [], fetch._decoding)
    buffer, tp = buffer_of(fetch, later), fetch.state.tp
    assert buffer.take_one_per_partition(rows) == {tp: 1}
    assert not buffer.made_room()
    fetch.state.paused = True
    assert buffer.take_one_per_partition(rows) == {}
    fetch.state.paused = False
    assert [buffer.take_one_per_partition(rows), buffer.take_records(9)[0].offset] == [{tp: 1}, 2]
    buffer.put_back()
    assert [buffer.take_one_per_partition(rows) for _ in range(2)] == [{tp: 1}] * 2
    assert fetch.state.position == 2
    fetch.state.seek(3)
    assert buffer.take_one_per_partition(rows) == {}
    assert not buffer

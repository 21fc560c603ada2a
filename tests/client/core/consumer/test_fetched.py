"""SPEC T9, C5: what a fetch's bytes become; aborted and control records; positions. No broker."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.fetch_buffer import FetchBuffer
from ottla.client.core.consumer.fetched import COLUMNS_BYTES, Decoding, FetchedPartition
from ottla.client.core.consumer.positions import PartitionState, Positions
from ottla.client.errors import CorruptRecordsError
from ottla.wire.batch import assign_offsets, join_batch, parse_header
from ottla.wire.compression import Compression
from ottla.wire.markers import control_batch
from ottla.wire.records import Record, encode_batch

TP = TopicPartition("t", 0)


def batch(base: int, count: int, *, producer: int = -1, transactional: bool = False) -> bytes:
    records = [Record(base + i, 1_000 + base + i, None, b"%d" % (base + i), ()) for i in range(count)]
    return encode_batch(
        records,
        compression=Compression.LZ4 if base % 2 else Compression.NONE,
        base_offset=base,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=transactional,
        partition_leader_epoch=3,
    )


def marker(base: int, producer: int, *, commit: bool) -> bytes:
    made = bytearray(
        control_batch(commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1)
    )
    assign_offsets(made, 0, base, 3)
    return bytes(made)


def decoding(*, read_committed: bool = True) -> Decoding:
    return Decoding(check_crcs=True, read_committed=read_committed, key=None, value=None)


def all_columns(fetch: FetchedPartition) -> list[int]:
    found: list[int] = fetch.take_columns(with_headers=False).column("offset").to_pylist()
    return found


def at(position: int) -> PartitionState:
    state = PartitionState(TP)
    state.seek(position)
    return state


#: 0-1 plain, 2-3 of producer 7 (aborted by 6), 4-5 of producer 8 (committed by 7), 8 of producer 7 (committed by 9).
LOG = b"".join(
    [
        batch(0, 2),
        batch(2, 2, producer=7, transactional=True),
        batch(4, 2, producer=8, transactional=True),
        marker(6, 7, commit=False),
        marker(7, 8, commit=True),
        batch(8, 1, producer=7, transactional=True),
        marker(9, 7, commit=True),
    ]
)
ABORTED = [(7, 2)]


def test_t9_read_committed_leaves_out_what_was_aborted_and_moves_over_it() -> None:
    state = at(0)
    fetch = FetchedPartition(state, LOG, ABORTED, decoding())
    assert [record.offset for record in fetch.take_records(100)] == [0, 1, 4, 5, 8]
    assert fetch.exhausted
    assert (state.position, state.position_epoch, fetch.end_offset) == (10, 3, 10)


def test_t9_read_uncommitted_sees_all_data_records_and_no_control_record() -> None:
    fetch = FetchedPartition(at(0), LOG, ABORTED, decoding(read_committed=False))
    assert [record.offset for record in fetch.take_records(100)] == [0, 1, 2, 3, 4, 5, 8]


def test_t9_columns_leave_out_the_same() -> None:
    state = at(0)
    columns = FetchedPartition(state, LOG, ABORTED, decoding()).take_columns(with_headers=False)
    assert columns.column("offset").to_pylist() == [0, 1, 4, 5, 8]
    assert state.position == 10


def test_t9_a_marker_that_compaction_has_emptied_ends_its_transaction() -> None:
    """Apache Kafka's log cleaner empties the marker that is its producer's last batch, when no record is left."""
    last = marker(6, 7, commit=False)
    emptied = join_batch(parse_header(last)._replace(record_count=0), b"")
    log = batch(0, 2) + emptied + batch(8, 1, producer=7, transactional=True) + marker(9, 7, commit=True)
    fetch = FetchedPartition(at(0), log, [(7, 2)], decoding())
    assert [record.offset for record in fetch.take_records(100)] == [0, 1, 8]
    columns = FetchedPartition(at(0), log, [(7, 2)], decoding()).take_columns(with_headers=False)
    assert columns.column("offset").to_pylist() == [0, 1, 8]


def test_t9_a_fetch_that_holds_only_markers_still_moves_the_position() -> None:
    state = at(6)
    fetch = FetchedPartition(state, marker(6, 7, commit=False) + marker(7, 8, commit=True), [], decoding())
    assert fetch.take_records(10) == []
    assert (state.position, fetch.end_offset) == (8, 8)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(
    ("epoch", "leader_epoch", "known"),
    [(3, 2, -1), (3, 3, 3), (3, -1, 3), (-(2**31), 3, -1), (-5, -1, -1), (-1, 3, -1)],
)
def test_a_batch_is_of_no_epoch_that_is_newer_than_its_leaders(
    columns: bool, epoch: int, leader_epoch: int, known: int
) -> None:
    """The simulator's find (broker-damage 1620003269): a changed one was committed with the position, and the next
    owner of the partition was told that the log had been cut, and began again."""
    state = at(0)
    state.leader_epoch = leader_epoch
    data = bytearray(batch(0, 2))
    assign_offsets(data, 0, 0, epoch)
    fetch = FetchedPartition(state, bytes(data), [], decoding())
    if columns:
        fetch.take_columns(with_headers=False)
    else:
        assert [record.leader_epoch for record in fetch.take_records(10)] == [None if known < 0 else known] * 2
    assert (state.position, state.position_epoch) == (2, known)


def test_a_fetch_from_the_middle_of_a_batch_begins_at_the_position() -> None:
    fetch = FetchedPartition(at(5), LOG, ABORTED, decoding())
    assert [record.offset for record in fetch.take_records(100)] == [5, 8]


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    fetch = FetchedPartition(at(0), batch(0, 2) + batch(2, 3)[:-5], [], decoding())
    assert fetch.end_offset == 2
    assert len(fetch.take_records(10)) == 2


def test_records_then_columns_of_one_fetch_give_each_record_once() -> None:
    state = at(0)
    fetch = FetchedPartition(state, LOG, ABORTED, decoding())
    first = [record.offset for record in fetch.take_records(3)]
    rest = fetch.take_columns(with_headers=True).column("offset").to_pylist()
    assert (first, rest) == ([0, 1, 4], [5, 8])
    assert fetch.exhausted


#: Three of them are more than is decompressed at once.
_LARGE = bytes(COLUMNS_BYTES // 3 + 1)


def _large(base: int, producer: int = -1, compression: Compression = Compression.LZ4) -> bytes:
    return encode_batch(
        [Record(base, 1, None, _LARGE, ())],
        compression=compression,
        base_offset=base,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=producer >= 0,
    )


def _parts(fetch: FetchedPartition) -> list[list[int]]:
    parts = []
    while not fetch.exhausted:
        parts.append(all_columns(fetch))
    return parts


def test_columns_of_compressed_batches_come_in_parts_and_others_whole() -> None:
    """A fetch of 1 MB may hold hundreds of megabytes."""
    fetch = FetchedPartition(at(0), b"".join(map(_large, range(8))), [], decoding())
    assert fetch.size_bytes < COLUMNS_BYTES // 20
    assert _parts(fetch) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    whole = FetchedPartition(
        at(0), b"".join(_large(base, compression=Compression.NONE) for base in range(8)), [], decoding()
    )
    assert _parts(whole) == [list(range(8))]


@pytest.mark.parametrize("first", range(4))
def test_t9_aborted_transactions_end_where_they_do_in_whichever_part(first: int) -> None:
    log = b"".join(
        [
            *map(_large, range(first)),
            _large(first, 7),
            _large(first + 1),
            _large(first + 2, 7),
            marker(first + 3, 7, commit=False),
            *(_large(first + more) for more in (4, 5)),
            _large(first + 6, 7),
            marker(first + 7, 7, commit=True),
        ]
    )
    fetch = FetchedPartition(at(0), log, [(7, first)], decoding())
    parts = _parts(fetch)
    assert [offset for part in parts for offset in part] == [*range(first), *(first + more for more in (1, 4, 5, 6))]
    assert fetch.state.position == first + 8
    assert len(parts) > 1
    fetch.rewind(0, -1)
    assert _parts(fetch) == parts


def test_what_is_before_damage_in_a_later_part_is_taken() -> None:
    log = bytearray(b"".join(map(_large, range(8))))
    log[len(_large(0)) * 5 - 1] ^= 1
    fetch = FetchedPartition(at(0), bytes(log), [], decoding())
    assert [all_columns(fetch), all_columns(fetch)] == [[0, 1, 2], [3]]
    for _ in range(2):
        with pytest.raises(CorruptRecordsError, match="offset 4"):
            fetch.take_columns(with_headers=False)
    assert fetch.state.position == 4


def test_records_and_then_parts_of_columns_give_each_record_once() -> None:
    fetch = FetchedPartition(at(1), b"".join(map(_large, range(8))), [], decoding())
    assert [record.offset for record in fetch.take_records(2)] == [1, 2]
    assert _parts(fetch) == [[3, 4, 5], [6, 7]]


def test_no_more_records_are_made_than_are_asked_for() -> None:
    """A batch of a megabyte may hold a hundred thousand records, which take a hundred times its memory."""
    fetch = FetchedPartition(at(0), batch(0, 1000), [], decoding())
    for _ in range(3):
        assert len(fetch.take_records(5)) == len(fetch._records) == 5


def test_records_say_where() -> None:
    record = FetchedPartition(at(1), LOG, [], decoding()).take_records(1)[0]
    assert (record.topic, record.partition, record.offset, record.timestamp_ms) == ("t", 0, 1, 1_001)
    assert (record.value, record.headers, record.leader_epoch) == (b"1", (), 3)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10), st.lists(st.integers(1, 4), max_size=12))
def test_polls_of_any_size_give_each_record_once(start: int, limits: list[int]) -> None:
    state = at(start)
    fetch = FetchedPartition(state, LOG, ABORTED, decoding())
    taken = [record.offset for limit in limits for record in fetch.take_records(limit)]
    taken += [record.offset for record in fetch.take_records(100)]
    assert taken == [offset for offset in (0, 1, 4, 5, 8) if offset >= start]
    assert state.position == 10


def test_a_seek_makes_what_was_fetched_void() -> None:
    state = at(0)
    buffer = FetchBuffer()
    buffer.add(FetchedPartition(state, LOG, ABORTED, decoding()))
    state.seek(8)
    assert buffer.take_records(100) == []
    buffer.add(FetchedPartition(state, LOG, ABORTED, decoding()))
    assert [record.offset for record in buffer.take_records(100)] == [8]
    assert state.buffered_fetches == 0


def test_a_paused_partition_keeps_what_was_fetched() -> None:
    state = at(0)
    buffer = FetchBuffer()
    buffer.add(FetchedPartition(state, LOG, ABORTED, decoding()))
    state.paused = True
    assert buffer.take_records(100) == []
    assert not buffer.has_takeable
    assert buffer.take_one_per_partition(all_columns) == {}
    state.paused = False
    assert len(buffer.take_records(100)) == 5


def test_a_partition_taken_away_gives_nothing_more() -> None:
    positions = Positions()
    positions.assign([TP])
    state = positions.get(TP)
    assert state is not None
    state.seek(0)
    buffer = FetchBuffer()
    buffer.add(FetchedPartition(state, LOG, ABORTED, decoding()))
    positions.assign([])
    assert buffer.take_records(100) == []


def test_the_loop_is_woken_only_for_room_in_the_store() -> None:
    state = at(0)
    buffer = FetchBuffer()
    buffer.add(FetchedPartition(state, batch(0, 4), (), decoding()))
    assert not buffer.made_room()
    buffer.take_records(3)
    assert not buffer.made_room()
    buffer.take_records(3)
    assert buffer.made_room()
    assert not buffer.made_room()

"""T10: what stays of a batch, field by field, as Apache Kafka's cleaner (MemoryRecords.filterTo) writes it."""

from collections.abc import Iterable

import pytest

from ottla.base.steps import result_of
from ottla.log.cleaner.batches import BatchFilter, LastRecord
from ottla.log.cleaner.offset_map import OffsetMap
from ottla.log.cleaner.transactions import CleanedTransactions
from ottla.log.txn_index import AbortedTxn
from ottla.wire.batch import BatchHeader, Compression, TimestampType, assign_offsets, check_integrity, parse_header
from ottla.wire.batch_errors import CorruptBatchError
from ottla.wire.markers import control_batch
from ottla.wire.records import Record, decode_batch, encode_batch
from tests.log.batches import batch as raw_batch

_NOW, _RETENTION = 5_000, 1_000
_HEADERS = (("h", b"x"), ("h", None))


def _filter(
    newest: dict[bytes, int],
    *,
    latest: int = 100,
    aborted: Iterable[AbortedTxn] = (),
    last: dict[int, LastRecord] | None = None,
    end_offset: int = 1_000,
    now_ms: int = _NOW,
) -> BatchFilter:
    offsets = OffsetMap(2_400, 1.0)
    for key, offset in newest.items():
        offsets.put(key, offset)
    offsets.latest_offset = latest
    return BatchFilter(
        offsets,
        CleanedTransactions(aborted),
        last or {},
        end_offset=end_offset,
        now_ms=now_ms,
        delete_retention_ms=_RETENTION,
    )


def _bytes_kept(how: BatchFilter, batch: bytes) -> bytes | None:
    return result_of(how.kept(batch, parse_header(batch)))


def _kept(batch: bytes, how: BatchFilter) -> tuple[BatchHeader, list[Record]] | None:
    kept = _bytes_kept(how, batch)
    if kept is None:
        return None
    header = parse_header(kept)
    check_integrity(kept, 0, header)
    return header, decode_batch(kept)


def _batch(*rows: tuple[int, int, bytes | None, bytes | None], **how: object) -> bytes:
    records = [Record(offset, time, key, value, _HEADERS) for offset, time, key, value in rows]
    return encode_batch(records, base_offset=10, producer_id=7, producer_epoch=2, base_sequence=30, **how)  # type: ignore[arg-type]


def _marker(offset: int, *, commit: bool, producer_epoch: int = 2) -> bytes:
    batch = bytearray(
        control_batch(
            commit=commit, producer_id=7, producer_epoch=producer_epoch, coordinator_epoch=4, timestamp_ms=3_000
        )
    )
    assign_offsets(batch, 0, offset, 3)
    return bytes(batch)


def test_a_batch_of_which_everything_stays_is_not_touched() -> None:
    batch = _batch((10, 1, b"a", b"1"), (11, 2, b"b", b"2"), compression=Compression.GZIP)
    assert _bytes_kept(_filter({b"a": 10, b"b": 11}), batch) is batch


@pytest.mark.parametrize("compression", list(Compression))
def test_what_stays_keeps_offsets_timestamps_headers_producer_and_last_offset(compression: Compression) -> None:
    rows = (10, 3_000, b"a", b"1"), (11, 2_000, b"b", b"2"), (12, 2_500, b"c", b"3"), (13, 9_000, b"a", b"4")
    batch = _batch(*rows, compression=compression, transactional=True, partition_leader_epoch=6)
    found = _kept(batch, _filter({b"a": 20, b"b": 11, b"c": 12}))
    assert found is not None
    header, records = found
    assert records == [Record(11, 2_000, b"b", b"2", _HEADERS), Record(12, 2_500, b"c", b"3", _HEADERS)]
    before = parse_header(batch)
    assert header == before._replace(
        base_timestamp_ms=2_000, max_timestamp_ms=2_500, record_count=2, length=header.length, crc=header.crc
    )
    assert (header.base_offset, header.last_offset, header.last_sequence) == (10, 13, 33)


def test_with_log_append_time_the_newest_time_stays() -> None:
    batch = _batch((10, 1, b"a", b"1"), (11, 3, b"b", b"2"), timestamp_type=TimestampType.LOG_APPEND_TIME)
    found = _kept(batch, _filter({b"a": 10, b"b": 20}))
    assert found is not None
    assert (found[0].timestamp_type, found[0].max_timestamp_ms) == (TimestampType.LOG_APPEND_TIME, 3)
    assert [each.timestamp_ms for each in found[1]] == [3]


def test_a_record_without_a_key_goes_and_what_the_map_has_not_come_to_stays() -> None:
    batch = _batch((10, 1, None, b"1"), (11, 1, b"a", b"2"), (12, 1, None, b"3"))
    found = _kept(batch, _filter({b"a": 11}, latest=11))
    assert found is not None
    assert [each.offset for each in found[1]] == [11, 12]
    assert _kept(_batch((10, 1, None, b"1")), _filter({})) is None


def test_a_tombstone_stays_until_its_horizon_which_the_first_pass_sets() -> None:
    found = _kept(_batch((10, 3_000, b"a", None), (11, 4_000, b"b", b"1")), _filter({b"a": 10, b"b": 11}))
    assert found is not None
    header, records = found
    assert (header.delete_horizon_ms, header.base_timestamp_ms) == (_NOW + _RETENTION, _NOW + _RETENTION)
    assert (header.max_timestamp_ms, [each.timestamp_ms for each in records]) == (4_000, [3_000, 4_000])
    once = _bytes_kept(_filter({b"a": 10, b"b": 11}), _batch((10, 3_000, b"a", None)))
    assert once is not None
    again = _filter({b"a": 10}, now_ms=_NOW + _RETENTION - 1)
    assert _bytes_kept(again, once) is once
    assert _kept(once, _filter({b"a": 10}, now_ms=_NOW + _RETENTION)) is None


def test_a_horizon_stays_when_other_records_of_the_batch_go() -> None:
    rows = _batch((10, 3_000, b"a", None), (11, 4_000, b"b", b"1"), (12, 3_500, b"c", b"2"))
    once = _bytes_kept(_filter({}), rows)
    assert once is not None
    found = _kept(once, _filter({b"b": 30}, now_ms=_NOW + _RETENTION))
    assert found is not None
    assert found[0].delete_horizon_ms == _NOW + _RETENTION
    assert found[1] == [Record(12, 3_500, b"c", b"2", _HEADERS)]


def test_the_last_batch_of_a_producer_stays_without_records() -> None:
    batch = _batch((10, 1, b"a", b"1"), (11, 3, b"a", b"2"), compression=Compression.LZ4)
    newest = {b"a": 20}
    assert _kept(batch, _filter(newest, last={7: LastRecord(20, 2)})) is None
    found = _kept(batch, _filter(newest, last={7: LastRecord(11, 2)}))
    assert found is not None
    header, records = found
    assert records == []
    before = parse_header(batch)
    assert header == before._replace(attributes=0, base_timestamp_ms=-1, record_count=0, length=49, crc=header.crc)
    assert (header.last_offset, header.last_sequence, header.max_timestamp_ms) == (11, 31, 3)


def test_the_batch_at_the_end_of_the_pass_stays_without_records() -> None:
    batch = _batch((10, 1, b"a", b"1"))
    assert _kept(batch, _filter({b"a": 20}, end_offset=12)) is None
    found = _kept(batch, _filter({b"a": 20}, end_offset=11))
    assert found is not None
    assert found[1] == []


def test_a_marker_stays_while_there_is_a_batch_of_its_transaction() -> None:
    how = _filter({b"a": 10})
    data = _batch((10, 1, b"a", b"1"), transactional=True)
    assert _bytes_kept(how, data) is data
    marker = _marker(11, commit=True)
    assert _bytes_kept(how, marker) is marker
    later = _marker(12, commit=True)  # of the next transaction, which has no batch any more
    found = _bytes_kept(how, later)
    assert found is not None
    assert parse_header(found).delete_horizon_ms == _NOW + _RETENTION
    check_integrity(found, 0, parse_header(found))
    over = _filter({}, now_ms=_NOW + _RETENTION)
    assert _bytes_kept(over, found) is None
    assert _bytes_kept(_filter({}, now_ms=_NOW + _RETENTION - 1), found) is found


def test_a_marker_with_an_old_horizon_stays_while_its_transaction_is_there() -> None:
    once = _bytes_kept(_filter({}), _marker(11, commit=True))
    assert once is not None
    how = _filter({b"a": 10}, now_ms=_NOW + 9_000)
    data = _batch((10, 1, b"a", b"1"), transactional=True)
    _bytes_kept(how, data)
    assert _bytes_kept(how, once) is once


def test_records_of_an_aborted_transaction_go_and_its_marker_and_entry_stay_as_long_as_a_batch_of_it() -> None:
    entry = AbortedTxn(7, 10, 12, 13)
    transactions = CleanedTransactions([entry])
    offsets = OffsetMap(240, 1.0)
    data, marker = _batch((10, 1, b"a", b"1"), transactional=True), _marker(12, commit=False)
    how = BatchFilter(
        offsets,
        transactions,
        {7: LastRecord(10, 2)},
        end_offset=1_000,
        now_ms=_NOW,
        delete_retention_ms=_RETENTION,
    )
    emptied = _bytes_kept(how, data)  # it is the producer's last one
    assert emptied is not None
    assert parse_header(emptied).record_count == 0
    assert _bytes_kept(how, marker) is marker
    assert transactions.kept == [entry]
    # no batch of it is left
    gone = CleanedTransactions([entry])
    assert gone.is_over(marker, parse_header(marker))
    assert gone.kept == []


def test_a_producers_next_transaction_is_not_aborted_with_the_one_before() -> None:
    transactions = CleanedTransactions([AbortedTxn(7, 10, 12, 13), AbortedTxn(7, 30, 31, 32)])
    data = _batch((10, 1, b"a", b"1"), transactional=True)
    header = parse_header(data)
    assert transactions.is_aborted(header)
    marker = _marker(12, commit=False)
    assert not transactions.is_over(marker, parse_header(marker))
    assert not transactions.is_aborted(header._replace(base_offset=20))
    marker = _marker(21, commit=True)
    assert not transactions.is_over(marker, parse_header(marker))
    assert transactions.is_aborted(header._replace(base_offset=30))


def test_a_marker_that_alone_knows_its_producers_epoch_stays_without_its_record() -> None:
    once = _bytes_kept(_filter({}), _marker(11, commit=True))
    assert once is not None
    last = {7: LastRecord(None, 2)}
    found = _kept(once, _filter({}, now_ms=_NOW + 9_000, last=last))
    assert found is not None
    header, records = found
    assert (header.is_control, header.record_count, header.producer_epoch, records) == (True, 0, 2, [])
    # another pass finds it empty; once its producer is forgotten, it goes
    emptied = _bytes_kept(_filter({}, now_ms=_NOW + 9_000, last=last), once)
    assert emptied is not None
    assert _kept(emptied, _filter({}, last=last)) is not None
    assert _kept(emptied, _filter({})) is None
    assert _kept(once, _filter({}, now_ms=_NOW + 9_000, last={7: LastRecord(None, 3)})) is None


def test_a_control_record_that_ends_no_transaction_is_an_error() -> None:
    marker = bytearray(_marker(11, commit=True))
    marker[61 + 8] = 9  # the type
    with pytest.raises(CorruptBatchError, match="ends no transaction"):
        _bytes_kept(_filter({}), bytes(marker))


@pytest.mark.parametrize("time_ms", [_NOW - 2**63 + 1, 2**63 - 1, -1, -(2**63)])
@pytest.mark.parametrize("retention_ms", [_RETENTION, 2**63 - 1])
def test_a_tombstone_stays_whose_time_is_too_far_from_its_horizon(time_ms: int, retention_ms: int) -> None:
    """64 bits do not hold the difference: what was written instead nobody could read."""
    horizon_ms = min(_NOW + retention_ms, 2**63 - 1)
    how = BatchFilter(
        OffsetMap(2_400, 1.0),
        CleanedTransactions(()),
        {},
        end_offset=1_000,
        now_ms=_NOW,
        delete_retention_ms=retention_ms,
    )
    found = _kept(raw_batch(key=b"gone", value=None, timestamps_ms=[time_ms]), how)
    assert found is not None
    header, (record,) = found
    assert header.delete_horizon_ms == (horizon_ms if time_ms - horizon_ms >= -(2**63) else None)
    assert (record.timestamp_ms, record.key, record.value) == (time_ms, b"gone", None)


def test_records_whose_times_are_too_far_apart_keep_their_base() -> None:
    times = [-(2**63) + 9, -1, 2**63 - 9]
    header = parse_header(batch := raw_batch(3, key=b"k", timestamps_ms=[-1, -(2**63) + 9, 2**63 - 9]))
    found = _kept(batch, _filter({b"k": 1}))
    assert found is not None
    assert (found[0].base_timestamp_ms, [each.timestamp_ms for each in found[1]]) == (-1, sorted(times)[::2])
    assert header.base_timestamp_ms == -1

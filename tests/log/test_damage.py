"""Files damaged after they were flushed, by a disk or by hand: indexes come back, lost records are told, not skipped.

Every case is tried after a clean stop and after a kill -9 that followed a flush.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import CorruptDataError, StorageError
from ottla.log.config import LogConfig
from ottla.log.damage import OffsetRange
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.replay import replay
from ottla.log.results import Isolation
from ottla.wire.batch import HEADER_BYTES, check_integrity, parse_header
from ottla.wire.batch_errors import CorruptBatchError
from ottla.wire.errors import ErrorCode
from ottla.wire.special_timestamp import SpecialTimestamp
from tests.log.batches import batch
from tests.log.logs import SMALL, append, append_in_transaction, committed_offsets, end, every_batch, open_log

_BATCHES = 60


def _stopped() -> tuple[MemoryStorage, PartitionLog, list[str]]:
    """A log of several segments, one record a batch, its timestamp a tenth of its offset; its segments' names."""
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    for number in range(_BATCHES):
        append(log, batch(timestamps_ms=[number // 10 * 10]))
    log.close()
    names = [name.removesuffix(".log") for name in storage.names() if name.endswith(".log")]
    assert len(names) >= 3
    return storage, log, names


def _again(storage: MemoryStorage, log: PartitionLog, *, clean: bool = True) -> PartitionLog:
    return open_log(storage.after_kill(), SMALL, clean=clean, recovery_point=log.recovery_point)


def _lookups(log: PartitionLog) -> list[tuple[int, int] | None]:
    found = [log.offset_for_timestamp(each) for each in (*range(0, 70, 5), SpecialTimestamp.MAX_TIMESTAMP)]
    return [None if each is None else (each.timestamp_ms, each.offset) for each in found]


def _damaged_indexes(storage: MemoryStorage, name: str) -> dict[str, bytes | None]:
    content = storage.read(name) or b""
    size = 12 if name.endswith(".timeindex") else 8
    middle = size * (len(content) // size // 2)
    entry = content[middle : middle + size]
    return {
        "missing": None,
        "empty": b"",
        "last entry gone": content[:-size],
        "half an entry gone": content[:-3],
        "half of it gone": content[:middle],
        "zeros behind it": content + bytes(4 * size),
        "garbage": b"\x7f\x13" * 120,
        "all ones": b"\xff" * 96,
        "another segment's": b"\0" * (size - 4) + b"\0\0\0\1",
        "an entry turned to zeros": content[:middle] + bytes(size) + content[middle + size :],
        "two entries swapped": content[: middle - size]
        + entry
        + content[middle - size : middle]
        + content[middle + size :],
    }


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment", [0, 1, -1])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", _damaged_indexes(MemoryStorage(), ".index"))
def test_a_damaged_index_answers_as_a_sound_one(damage: str, suffix: str, segment: int, clean: bool) -> None:
    storage, log, names = _stopped()
    sound = _again(storage, log)
    assert sound.findings.rebuilt == ()
    name = names[segment] + suffix
    content = _damaged_indexes(storage, name)[damage]
    storage.delete(name)
    if content is not None:
        storage.write(name, content)
    found = _again(storage, log, clean=clean)
    assert found.findings.damaged == ()
    assert found.findings.truncated_bytes == 0
    assert _lookups(found) == _lookups(sound)
    assert every_batch(found) == every_batch(sound)
    for offset in range(_BATCHES):
        assert (
            found.read(offset, 1).slices == () or found.read(offset, 1).slices[0].read() == every_batch(sound)[offset]
        )
    assert append(found, batch()).base_offset == _BATCHES


def _hole(found: PartitionLog, first: int, after: int) -> None:
    """The log has a hole there: told to readers, kept for the next start, passed by DeleteRecords."""
    assert found.findings.damaged == (OffsetRange(first, after),)
    assert found.end_offset == _BATCHES
    assert [found.read(offset, 100).error for offset in range(first, after)] == [ErrorCode.CORRUPT_MESSAGE] * (
        after - first
    )
    before = found.read(max(first - 1, 0), 1_000_000)
    if first:
        (piece,) = before.slices
        assert len(piece.read()) == len(batch(timestamps_ms=[0])), "whole batches up to the hole, and no half one"
    assert found.read(after, 1_000_000).error is ErrorCode.NONE
    assert append(found, batch()).base_offset == _BATCHES, "no offset is used twice"
    found.delete_records_before(after)
    assert found.read(after, 1_000_000).error is ErrorCode.NONE


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("keep", ["nothing", "half a batch", "whole batches"])
@pytest.mark.parametrize("segment", [0, 1])
def test_a_closed_log_cut_short_is_a_hole_and_what_follows_stays(segment: int, keep: str, clean: bool) -> None:
    storage, log, names = _stopped()
    size = len(batch(timestamps_ms=[0]))
    kept = {"nothing": 0, "half a batch": 5 * size + size // 2, "whole batches": 5 * size}[keep]
    del storage.files[names[segment] + ".log"].content[kept:]
    first, after = int(names[segment]) + kept // size, int(names[segment + 1])
    left = storage.after_kill()
    found = open_log(left, SMALL, clean=clean, recovery_point=log.recovery_point)
    assert found.findings.damaged == (OffsetRange(first, after),)
    found.close()
    _hole(open_log(left, SMALL, clean=True, recovery_point=found.recovery_point), first, after)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("keep", ["nothing", "half a batch", "whole batches"])
def test_the_last_log_cut_short_below_what_was_flushed_is_a_hole(keep: str, clean: bool) -> None:
    storage, log, names = _stopped()
    size = len(batch(timestamps_ms=[0]))
    kept = {"nothing": 0, "half a batch": 2 * size + size // 2, "whole batches": 2 * size}[keep]
    del storage.files[names[-1] + ".log"].content[kept:]
    first = int(names[-1]) + kept // size
    left = storage.after_kill()
    found = open_log(left, SMALL, clean=clean, recovery_point=log.recovery_point)
    assert found.findings.damaged == (OffsetRange(first, _BATCHES),)
    found.close()
    _hole(open_log(left, SMALL, clean=True, recovery_point=found.recovery_point), first, _BATCHES)


def test_a_log_file_put_back_mends_the_hole() -> None:
    storage, log, names = _stopped()
    before, whole = every_batch(log), bytes(storage.files[names[-1] + ".log"].content)
    del storage.files[names[-1] + ".log"].content[-10:]
    left = storage.after_kill()
    open_log(left, SMALL, clean=True, recovery_point=log.recovery_point).close()
    left.files[names[-1] + ".log"].content[:] = whole
    mended = open_log(left, SMALL, clean=True, recovery_point=log.recovery_point)
    assert mended.findings.damaged == ()
    assert every_batch(mended) == before
    assert "damaged-offsets" not in left.names()


def test_a_clean_stop_without_checkpoints_is_judged_by_the_last_snapshot() -> None:
    storage, _, names = _stopped()
    del storage.files[names[-1] + ".log"].content[-1:]
    found = open_log(storage.after_kill(), SMALL, clean=True)
    assert found.findings.damaged == (OffsetRange(_BATCHES - 1, _BATCHES),)


def test_a_flipped_byte_in_flushed_data_costs_no_other_batch() -> None:
    storage, log, names = _stopped()
    storage.files[names[-1] + ".log"].content[65] ^= 1  # a record: only its readers can tell
    storage.delete(names[-1] + ".index")
    for clean in (True, False):
        found = _again(storage, log, clean=clean)
        assert len(every_batch(found)) == _BATCHES
        assert found.findings.truncated_bytes == 0


def test_bytes_that_are_no_batch_are_an_error_and_no_endless_search() -> None:
    storage, log, names = _stopped()
    content = storage.files[names[0] + ".log"].content
    size = len(batch(timestamps_ms=[0]))
    content[2 * size : 3 * size] = bytes(size)
    storage.write(names[0] + ".index", b"")
    storage.write(names[0] + ".timeindex", b"")
    found = _again(storage, log)
    assert found.findings.damaged == (OffsetRange(2, 3),)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment", [0, 1, -1])
def test_a_length_that_is_wrong_costs_its_batch_and_none_behind_it(segment: int, clean: bool) -> None:
    """The simulator's find (broker-damage 430019043): all behind it were refused to readers, and producers had lost
    them."""
    storage, size = MemoryStorage(), len(batch(timestamps_ms=[0]))
    config = LogConfig(segment_bytes=25 * size)
    log = open_log(storage, config)
    for _ in range(_BATCHES):
        append(log, batch(timestamps_ms=[0]))
    log.close()
    base = (0, 25, 50)[segment]
    storage.files[f"{base:020}.log"].content[2 * size + 8] ^= 64
    lost = base + 2
    left = storage.after_kill()
    found = open_log(left, config, clean=clean, recovery_point=log.recovery_point)
    assert found.findings.damaged == (OffsetRange(lost, lost + 1),)
    found.close()
    again = open_log(left, config, clean=True, recovery_point=found.recovery_point)
    read = [each for each in range(_BATCHES) if again.read(each, 1).error is ErrorCode.NONE]
    assert read == [each for each in range(_BATCHES) if each != lost]
    _hole(again, lost, lost + 1)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment", [0, -1])
def test_a_length_that_leads_out_of_the_file_is_an_error_and_no_empty_answer(segment: int, clean: bool) -> None:
    storage, size = MemoryStorage(), len(batch(timestamps_ms=[1_000]))
    config = LogConfig(segment_bytes=20 * size, index_interval_bytes=6 * size)
    log = open_log(storage, config)
    for number in range(60):
        append(log, batch(timestamps_ms=[1_000 + number]))
    log.close()
    sound = every_batch(log)
    name = [each for each in storage.names() if each.endswith(".log")][segment]
    storage.files[name].content[3 * size + 8] ^= 0x10  # the highest byte of a length: 256 megabytes more
    first = int(name.removesuffix(".log"))
    found = open_log(storage.after_kill(), config, clean=clean, recovery_point=log.recovery_point)
    assert found.findings.damaged == (), "a look at the ends of flushed files cannot find it"
    for max_bytes in (1, 1_000_000):
        assert found.read(first + 2, max_bytes).slices[0].read()[:size] == sound[first + 2]
        with pytest.raises(CorruptDataError, match=r"should take \d+ bytes|on the way to"):
            found.read(first + 3, max_bytes)
        for offset in (first + 4, first + 19):  # the way to the first of them leads over the changed batch
            assert found.read(offset, max_bytes).slices[0].read()[:size] == sound[offset]
    with pytest.raises(StorageError, match=f"damaged at offset {first + 3}"):
        list(replay(found))
    with pytest.raises(CorruptDataError, match="no whole batch"):  # and not the first record of the next file
        found.offset_for_timestamp(1_000 + first + 4)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("byte", [8, 11, 16])
def test_a_changed_header_that_a_start_cannot_find_keeps_nobody_from_writing(byte: int, clean: bool) -> None:
    """The highest and the lowest byte of the first batch's length; its magic."""
    storage, config = MemoryStorage(), LogConfig(index_interval_bytes=0)
    log = open_log(storage, config)
    for number in range(5):
        append(log, batch(timestamps_ms=[100 - number]))
    log.close()
    storage.files["00000000000000000000.log"].content[byte] ^= 0x10
    found = open_log(storage.after_kill(), config, clean=clean, recovery_point=log.recovery_point)
    assert found.findings.damaged == ()
    assert append(found, batch(timestamps_ms=[50])).base_offset == 5
    with pytest.raises(CorruptDataError):
        found.offset_for_timestamp(SpecialTimestamp.MAX_TIMESTAMP)


def test_gaps_between_sound_segments_are_told_but_no_damage() -> None:
    """A directory of Apache Kafka's, compacted once, or recovered by it after a loss of power."""
    storage, log, names = _stopped()
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        storage.delete(names[1] + suffix)
    gap = OffsetRange(int(names[1]), int(names[2]))
    found = _again(storage, log)
    assert (found.findings.damaged, found.findings.unexplained) == ((), (gap,))
    compacted = open_log(
        storage.after_kill(),
        LogConfig(segment_bytes=2_000, index_interval_bytes=0, cleanup_policy=frozenset({"compact"})),
        clean=True,
        recovery_point=log.recovery_point,
    )
    assert (compacted.findings.damaged, compacted.findings.unexplained) == ((), ())
    assert found.read(gap.first_offset, 1_000).error is ErrorCode.NONE


@pytest.mark.parametrize("content", [b"", b"\0" * 17, b"\0" * 34, b"\xff" * 34])
def test_a_damaged_index_of_aborted_transactions_is_made_again(content: bytes) -> None:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    for number in range(40):
        append_in_transaction(log, number)
        if number % 4 == 3:
            end(log, commit=number % 8 == 3)
    expected = committed_offsets(log)
    log.close()
    for name in [each for each in storage.names() if each.endswith(".txnindex")]:
        left = storage.after_kill()
        left.write(name, content)
        found = open_log(left, SMALL, clean=True, recovery_point=log.recovery_point)
        assert committed_offsets(found) == expected
        assert found.last_stable_offset == log.last_stable_offset
        assert found.read(0, 1, isolation=Isolation.READ_COMMITTED).error is ErrorCode.NONE


def _is_whole(records: bytes) -> bool:
    try:
        check_integrity(records, 0, parse_header(records))
    except CorruptBatchError:
        return False
    return True


@settings(max_examples=150)
@given(data=st.data(), clean=st.booleans())
def test_whatever_happens_to_one_file_no_record_is_passed_over(data: st.DataObject, clean: bool) -> None:
    storage, log, _ = _stopped()
    original = every_batch(log)
    names = [name for name in storage.names() if name.endswith((".log", ".index", ".timeindex", ".snapshot"))]
    name = data.draw(st.sampled_from(names))
    content = storage.files[name].content
    position = data.draw(st.integers(0, len(content)))
    match data.draw(
        st.sampled_from(["cut", "append", "zeros"] if name.endswith(".log") else ["cut", "append", "over"])
    ):
        case "cut":
            del content[position:]
        case "append":
            content += data.draw(st.binary(max_size=200))
        case "zeros":  # a file whose length reached the device, and whose end did not
            content[position:] = bytes(len(content) - position)
        case _:
            content[position:] = data.draw(st.binary(max_size=200))
    found = _again(storage, log, clean=clean)
    assert found.end_offset == _BATCHES
    for offset in range(_BATCHES):
        read = found.read(offset, 1)
        if read.error is ErrorCode.NONE:
            (piece,) = read.slices
            assert piece.read() == original[offset] or not _is_whole(piece.read()), "a reader sees it by the CRC"
        else:
            assert name.endswith(".log")
            assert read.error is ErrorCode.CORRUPT_MESSAGE
    if not name.endswith(".log"):
        assert _lookups(found) == _lookups(log)
    assert append(found, batch()).base_offset == _BATCHES


@pytest.mark.parametrize("clean", [True, False])
def test_a_last_log_of_zeros_is_a_hole_and_no_reason_not_to_start(clean: bool) -> None:
    storage, log, names = _stopped()
    content = storage.files[names[-1] + ".log"].content
    content[:] = bytes(len(content))
    _hole(_again(storage, log, clean=clean), int(names[-1]), _BATCHES)


@pytest.mark.parametrize("clean", [True, False])
def test_a_bit_that_makes_a_commit_of_an_abort_shows_nobody_aborted_records(clean: bool) -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    append_in_transaction(log, 0)
    end(log, commit=False)
    append(log, batch())
    log.close()
    content = storage.files[f"{0:020}.log"].content
    at = content.index(b"\0\0\0\0", len(every_batch(log)[0]) + HEADER_BYTES)  # the marker's key: version, type
    content[at + 3] ^= 1
    for name in [each for each in storage.names() if each.endswith(".snapshot")]:
        storage.delete(name)
    found = open_log(storage.after_kill(), clean=clean, recovery_point=log.recovery_point)
    assert committed_offsets(found) == [2]
    assert found.last_stable_offset == found.end_offset == 3
    assert "the transaction marker at offset 1 is damaged" in found.findings.mended[-1]


def test_a_damaged_marker_keeps_no_partition_from_opening() -> None:
    """The simulator's find (broker-damage 136287759): the index of aborts was gone, and the markers were read again."""
    storage = MemoryStorage()
    log = open_log(storage)
    append_in_transaction(log, 0)
    end(log, commit=True)
    append_in_transaction(log, 1, producer_id=8)
    end(log, commit=True, producer_id=8)
    log.close()
    size = len(every_batch(log)[0])
    storage.files[f"{0:020}.log"].content[size + 60] ^= 8  # how many records the marker has
    for name in [each for each in storage.names() if each.endswith(".snapshot")]:
        storage.delete(name)
    found = open_log(storage.after_kill(), clean=True, recovery_point=log.recovery_point)
    aborted = found.read(0, 1_000, isolation=Isolation.READ_COMMITTED).aborted
    assert [each.first_offset for each in aborted or ()] == [0]
    assert found.last_stable_offset == found.end_offset == 4
    assert found.findings.mended[-1] == (
        f"{0:020}.log: the transaction marker at offset 1 is damaged: its transaction counts as aborted here"
    )


@pytest.mark.parametrize("recovery_point", [0, 1, 3])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("interval", [0, 4_096])
@pytest.mark.parametrize("count", [1, 3])
def test_a_changed_base_offset_of_the_last_batch_is_found(
    count: int, interval: int, clean: bool, recovery_point: int
) -> None:
    """No CRC covers it. Nothing goes on behind an offset that never was, and nothing is gone without a word."""
    storage, config = MemoryStorage(), LogConfig(index_interval_bytes=interval)
    log = open_log(storage, config)
    for _ in range(count):
        append(log, batch())
    log.close()
    for at in range(8):
        for bits in (1, 2, 128):
            left = storage.after_kill()
            left.files[f"{0:020}.log"].content[(count - 1) * len(batch()) + at] ^= bits
            found = open_log(left, config, clean=clean, recovery_point=count if clean else min(recovery_point, count))
            assert found.end_offset <= count
            told = [each.first_offset for each in found.findings.damaged]
            told += [each.first_offset for each in found.findings.cuts]
            assert count - 1 in told


@pytest.mark.parametrize("clean", [True, False])
def test_a_changed_batch_opens_no_transaction(clean: bool) -> None:
    """The simulator's finds (broker-damage 955123518, after kill -9 330002191): readers of committed records were held
    up for ever."""
    storage = MemoryStorage()
    log = open_log(storage)
    append_in_transaction(log, 0)
    end(log, commit=True)
    log.close()
    storage.files[f"{0:020}.log"].content[50] ^= 8  # the producer's id
    for name in [each for each in storage.names() if each.endswith(".snapshot")]:
        storage.delete(name)
    found = open_log(storage.after_kill(), clean=clean, recovery_point=log.recovery_point)
    assert found.last_stable_offset == found.end_offset == 2


@pytest.mark.parametrize("delta", [1, 5])
def test_after_a_clean_stop_a_changed_last_offset_in_the_newest_batch_is_a_hole(delta: int) -> None:
    """Taken at its word, the log went on behind the wrong offset: it left offsets out, or used some a second time."""
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, batch())
    append(log, batch(3))
    log.close()
    at = len(batch()) + 23
    content = storage.files[f"{0:020}.log"].content
    assert content[at : at + 4] == (2).to_bytes(4, "big")
    content[at : at + 4] = delta.to_bytes(4, "big")
    found = open_log(storage.after_kill(), clean=True, recovery_point=4)
    assert found.findings.damaged == (OffsetRange(1, 4),)
    assert found.end_offset == 4
    assert found.read(1, 1000).error is ErrorCode.CORRUPT_MESSAGE
    assert append(found, batch()).base_offset == 4


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, 3])
def test_a_changed_header_before_an_empty_file_makes_no_failed_roll_of_it(clean: bool, recovery_point: int) -> None:
    """The simulator's find (broker-damage 955123511): the file went, its hole too, and the log ended at 6094868."""
    storage = MemoryStorage()
    log = open_log(storage)
    for _ in range(3):
        append(log, batch())
    log.close()
    storage.files[f"{0:020}.log"].content[2 * len(batch()) + 24] ^= 0x5D  # its last offset delta
    left = storage.after_kill()
    assert open_log(left, recovery_point=3).findings.damaged == (OffsetRange(2, 3),)
    left = left.after_kill()
    found = open_log(left, clean=clean, recovery_point=recovery_point)
    assert f"{3:020}.log" in left.names()
    assert found.end_offset == 3
    assert found.findings.damaged == (OffsetRange(2, 3),) or found.findings.cuts


def test_a_changed_header_does_not_hide_the_batches_behind_it() -> None:
    """The simulator's find (broker-damage 330005935): whoever went on behind the changed batch got it again."""
    storage, count, changed = MemoryStorage(), 200, 80
    log = open_log(storage)
    for _ in range(count):
        append(log, batch())
    log.close()
    # Index entries are behind it, so that no start looks at it: its last offset delta becomes 3.
    storage.files[f"{0:020}.log"].content[changed * len(batch()) + 26] ^= 3
    found = open_log(storage.after_kill(), recovery_point=count)
    read = [found.read(each, 10_000, isolation=Isolation.READ_UNCOMMITTED).slices[0].read() for each in range(count)]
    assert [parse_header(each, 0).base_offset for each in read] == list(range(count))

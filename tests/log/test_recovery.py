"""Opening a directory after every kind of end (SPEC P7, T13; the issue: a torn tail is cut, an index is rebuilt)."""

import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.damage import OffsetRange
from ottla.log.memory import CrashedError, MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.results import Isolation
from ottla.wire.batch import parse_header
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import SMALL, TP, append, append_in_transaction, committed_offsets, end, every_batch, open_log

_LOG = "00000000000000000000.log"
_INDEX = "00000000000000000000.index"


def _filled(storage: MemoryStorage, config: LogConfig = SMALL, batches: int = 40) -> PartitionLog:
    log = open_log(storage, config)
    for number in range(batches):
        append(log, idempotent(number, size=1 + number % 50))
    return log


@settings(max_examples=100)
@given(batches=st.integers(0, 12), torn=st.integers(0, 200), size=st.integers(1, 100))
def test_a_write_torn_at_any_byte_leaves_the_prefix(batches: int, torn: int, size: int) -> None:
    storage, config = MemoryStorage(), LogConfig(index_interval_bytes=0)
    log = open_log(storage, config)
    for number in range(batches):
        append(log, idempotent(number, size=size))
    acknowledged = every_batch(log)
    last = idempotent(batches, size=size)
    storage.tear_next = torn
    with pytest.raises(CrashedError):
        append(log, last)
    left = open_log(storage.after_kill(), config)
    whole = torn >= len(last)
    assert len(every_batch(left)) == batches + whole
    assert every_batch(left)[:batches] == acknowledged
    assert left.findings.truncated_bytes == (0 if whole else torn)
    again = append(left, last)
    assert (again.duplicate, again.base_offset) == (whole, batches)


@given(torn=st.integers(0, 100), also_flushed=st.booleans())
def test_a_death_in_the_middle_of_a_roll_leaves_all_that_was_acknowledged(torn: int, also_flushed: bool) -> None:
    storage, number = MemoryStorage(), 0
    log = open_log(storage, SMALL)
    while len(log._segments) == 1:
        storage.tear_next = None
        before, left_over = every_batch(log), storage.after_kill()
        append(log, idempotent(number, size=50))
        number += 1
    # The last append rolled: do it once more on what was there before it, and die in the roll's first write.
    log = open_log(left_over, SMALL)
    if also_flushed:
        log.flush()
    left_over.tear_next = torn
    with pytest.raises(CrashedError):
        append(log, idempotent(number - 1, size=50))
    found = open_log(left_over.after_kill(), SMALL, recovery_point=log.recovery_point)
    assert every_batch(found) == before
    assert append(found, idempotent(number - 1, size=50)).base_offset == number - 1


@pytest.mark.parametrize("step", range(8))
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("stays", [False, True])
def test_a_roll_that_fails_at_any_step_costs_nothing_that_is_acknowledged(step: int, clean: bool, stays: bool) -> None:
    """The simulator's find: it left an empty segment, the one before went on, and the next start cut that one there."""
    storage, number = MemoryStorage(), 0
    log = open_log(storage, SMALL)
    while log._segments.active.size_bytes < 1_700:
        append(log, idempotent(number, size=50))
        number += 1
    calls = 0

    def refuses(action: str, name: str) -> bool:
        nonlocal calls
        calls += action in ("open", "append", "truncate", "write")
        return calls > step or (stays and action == "delete")

    storage.refuses = refuses
    with suppress(StorageError):  # the last steps are those of the append
        append(log, idempotent(number, size=400))
    storage.refuses = None
    number = log.end_offset
    append(log, idempotent(number, size=50))  # there is room for it in the old segment
    append(log, idempotent(number + 1, size=400))
    acknowledged = every_batch(log)
    if clean:
        log.close()
    found = open_log(storage.after_kill(), SMALL, clean=clean, recovery_point=log.end_offset if clean else 0)
    assert every_batch(found) == acknowledged
    assert found.findings.truncated_bytes == 0


@settings(max_examples=150)
@given(data=st.data(), flush_at=st.integers(0, 40))
def test_a_loss_of_power_leaves_a_prefix_that_holds_all_that_was_flushed(data: st.DataObject, flush_at: int) -> None:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    for number in range(40):
        append_in_transaction(log, number)
        if number % 7 == 3:
            end(log, commit=number % 2 == 0)
        if number == flush_at:
            log.flush()
    before, flushed = every_batch(log), log.recovery_point
    left = storage.after_power_loss(
        lambda name, synced, size: data.draw(st.integers(synced, size), label=name) if size > synced else size,
        lambda name: data.draw(st.booleans(), label=f"{name} itself"),
    )
    found = open_log(left, SMALL, recovery_point=flushed)
    after = every_batch(found)
    assert (found.log_start_offset, after) == (0, before[: len(after)])
    assert found.end_offset >= flushed
    assert found.findings.damaged == ()
    assert sum(header.last_offset_delta + 1 for header in map(parse_header, after)) == found.end_offset
    plain = open_log(left.after_kill(), SMALL)  # checked from the beginning, without any recovery point
    assert every_batch(plain) == after
    assert committed_offsets(plain) == committed_offsets(found)
    assert plain.last_stable_offset == found.last_stable_offset


def test_a_log_of_which_only_an_index_is_left_does_not_begin_behind_its_end() -> None:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    for number in range(40):
        append_in_transaction(log, number)
    left = storage.after_power_loss(
        lambda name, synced, size: synced, lambda name: name == "00000000000000000028.timeindex"
    )
    found = open_log(left, SMALL)
    assert (found.log_start_offset, found.end_offset) == (0, 0)


def test_a_roll_and_a_flush_survive_a_loss_of_power() -> None:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    for number in range(40):
        append(log, idempotent(number, size=50))
    assert len(log._segments) > 2
    log.flush()
    append(log, idempotent(40, size=50))
    left = storage.after_power_loss(lambda name, synced, size: synced)
    found = open_log(left, SMALL, recovery_point=log.recovery_point)
    assert found.findings.damaged == ()
    assert every_batch(found) == every_batch(log)[:40]
    assert append(found, idempotent(39, size=50)).duplicate


@settings(max_examples=100)
@given(position=st.integers(0, 5_000), batches=st.integers(1, 40))
def test_a_flipped_byte_in_unflushed_data_cuts_the_log_there(position: int, batches: int) -> None:
    storage = MemoryStorage()
    log = _filled(storage, LogConfig(index_interval_bytes=200), batches)
    before = every_batch(log)
    content = storage.files[_LOG].content
    position %= len(content)
    content[position] ^= 0x40
    after = every_batch(open_log(storage.after_kill()))
    sizes = [sum(map(len, before[:number])) for number in range(batches + 1)]
    damaged = max(number for number in range(batches) if sizes[number] <= position)
    if position - sizes[damaged] in range(12, 16):  # the leader epoch is the one field without a checksum
        assert len(after) == batches
    else:
        # The base offset has none either: a larger one is believed, and the batch stays.
        assert after[:damaged] == before[:damaged]
        assert len(after) <= batches


def test_indexes_are_rebuilt_byte_for_byte() -> None:
    storage = MemoryStorage()
    log = _filled(storage, LogConfig(index_interval_bytes=300))
    log.flush()
    for suffix in (".index", ".timeindex"):
        name = _LOG.replace(".log", suffix)
        written = storage.read(name)
        storage.files[name].content[:] = b"\0" * 4_000  # as Kafka leaves a preallocated one
        recovered = storage.after_kill()
        open_log(recovered, LogConfig(index_interval_bytes=300)).flush()
        assert recovered.read(_INDEX) == storage.after_kill().read(_INDEX) or suffix == ".index"
        assert recovered.read(name) == written
        storage.files[name].content[:] = written or b""


@pytest.mark.parametrize("damage", ["missing", "garbage", "odd"])
def test_a_damaged_index_of_a_flushed_segment_is_rebuilt(damage: str) -> None:
    storage = MemoryStorage()
    log = _filled(storage)
    before = every_batch(log)
    log.close()
    written = storage.read(_INDEX)
    match damage:
        case "missing":
            storage.delete(_INDEX)
        case "garbage":
            storage.files[_INDEX].content[:] = b"\xff" * 64
        case _:
            storage.files[_INDEX].content += b"\x01\x02\x03"
    again = open_log(storage, SMALL, clean=True)
    assert every_batch(again) == before
    assert append(again, idempotent(40)).base_offset == 40
    again.close()
    assert storage.read(_INDEX) == written


def test_only_unflushed_segments_are_scanned() -> None:
    storage = MemoryStorage()
    log = _filled(storage, batches=200)
    assert len(log._segments) > 5
    log.flush()
    found = open_log(storage.after_kill(), SMALL, recovery_point=log.recovery_point)
    scanned = [segment for segment in found._segments if segment._since_index_bytes]
    assert scanned == [found._segments.active]
    assert found.end_offset == 200


def test_later_segments_go_when_an_earlier_one_is_cut() -> None:
    storage = MemoryStorage()
    log = _filled(storage, batches=100)
    before = every_batch(log)
    names = [name for name in storage.names() if name.endswith(".log")]
    storage.files[names[1]].content[30] ^= 1
    left = storage.after_kill()
    found = open_log(left, SMALL)
    assert every_batch(found) == before[: found.end_offset]
    assert [name for name in left.names() if name.endswith(".log")] == names[:2]
    expected = found.end_offset
    assert append(found, idempotent(expected)).base_offset == expected


def test_a_log_behind_its_start_begins_anew_there() -> None:
    storage = MemoryStorage()
    _filled(storage, batches=3).close()
    found = open_log(storage, log_start_offset=10, clean=True)
    assert (found.log_start_offset, found.end_offset) == (10, 10)
    assert append(found, batch()).base_offset == 10
    assert storage.names()[0] == "00000000000000000010.index"


@pytest.mark.parametrize("flushed", [True, False])
def test_a_log_cut_before_its_start_is_no_silent_loss(flushed: bool) -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    for number in range(8):
        append(log, idempotent(number))
    log.delete_records_before(5)
    if flushed:
        log.flush()
    content = storage.files["00000000000000000000.log"].content
    del content[len(content) // 8 * 4 :]
    recovery_point = 8 if flushed else 5
    found = open_log(storage.after_kill(), log_start_offset=5, recovery_point=recovery_point)
    assert (found.log_start_offset, found.end_offset) == (5, recovery_point)
    if flushed:
        assert found.findings.damaged == (OffsetRange(5, 8),)
    else:
        assert "end at offset 4, before its start, 5" in " ".join(found.findings.losses)


@pytest.mark.parametrize("put_back", [True, False])
def test_a_damaged_file_stays_though_what_can_be_read_of_it_was_deleted(put_back: bool) -> None:
    """Somebody may mend it, record by record: a start must not remove the only file that has them."""
    storage = MemoryStorage()
    log = open_log(storage)
    for number in range(8):
        append(log, idempotent(number))
    log.delete_records_before(5)
    before = every_batch(log)
    log.close()
    content = storage.files["00000000000000000000.log"].content
    whole, size = bytes(content), len(content) // 8
    for position in range(0, len(content), size):
        content[position] ^= 1
    damaged = bytes(content)
    found = open_log(storage, log_start_offset=5, recovery_point=8, clean=True)
    assert (found.log_start_offset, found.end_offset) == (5, 8)
    assert found.findings.damaged == (OffsetRange(5, 8),)
    assert found.findings.files == ("00000000000000000000.log",)
    assert storage.read("00000000000000000000.log") == damaged
    append(found, idempotent(8))
    found.close()
    if put_back:
        storage.files["00000000000000000000.log"].content[:] = whole
    again = open_log(storage, log_start_offset=5, recovery_point=9, clean=True)
    assert again.findings.damaged == (() if put_back else (OffsetRange(5, 8),))
    if put_back:
        assert every_batch(again)[: len(before)] == before
        return
    again.delete_records_before(6)  # the hole is known by its end: its beginning moves
    again.flush()
    killed = open_log(storage.after_kill(), log_start_offset=6, recovery_point=9)
    assert (killed.findings.damaged, killed.end_offset) == ((OffsetRange(6, 8),), 9)


def test_deleted_records_stay_deleted() -> None:
    storage = MemoryStorage()
    log = _filled(storage)
    log.delete_records_before(7)
    found = open_log(storage.after_kill(), SMALL, log_start_offset=7)
    assert found.log_start_offset == 7


@pytest.mark.parametrize("clean", [False, True])
def test_when_all_records_are_deleted_their_epoch_is_known_after_a_restart(clean: bool) -> None:
    """broker-groups 39: a consumer who had read all asked where its epoch ends, and was told that nobody knows it."""
    storage = MemoryStorage()
    log = open_log(storage)
    for number in range(3):
        log.append(idempotent(number), now_ms=NOW_MS, leader_epoch=4)
    log.delete_records_before(3)
    log.close()
    for _ in range(2):
        left = open_log(storage, clean=clean, recovery_point=3, log_start_offset=3)
        assert left.end_offset_for_epoch(4) == (4, 3)
        assert not left.findings.losses
        left.close()


def test_an_aborted_transaction_that_outlives_a_roll_is_found_after_a_crash() -> None:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    append_in_transaction(log, 0, producer_id=9)
    for number in range(100):
        append(log, idempotent(number, size=40))
    log.flush()
    end(log, commit=False, producer_id=9)
    found = open_log(storage.after_kill(), SMALL, recovery_point=log.recovery_point)
    assert committed_offsets(found) == list(range(1, 101))
    assert found.read(0, 100, isolation=Isolation.READ_COMMITTED).aborted == ((9, 0),)


def test_leftovers_of_a_dead_process_are_removed() -> None:
    storage = MemoryStorage()
    _filled(storage, batches=3).close()
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000007.timeindex",
        "00000000000000000000.log.cleaned",
    ):
        storage.write(name, b"x")
    open_log(storage, clean=True)
    assert [name for name in storage.names() if "7.t" in name or name.endswith(("deleted", "cleaned"))] == []


def test_messages_from_before_record_batches_are_not_taken_for_damage() -> None:
    storage = MemoryStorage()
    message = b"\1\0" + bytes(8) + b"\0\0\0\1k" + b"\0\0\0\1v"
    checked = zlib.crc32(message).to_bytes(4, "big") + message
    content = bytes(8) + len(checked).to_bytes(4, "big") + checked
    storage.write(_LOG, content)
    with pytest.raises(StorageError, match="magic 1"):
        open_log(storage)
    assert storage.read(_LOG) == content
    storage.files[_LOG].content[-1] ^= 1
    assert open_log(storage).findings.truncated_bytes == len(content)


def test_a_directory_belongs_to_one_topic_id() -> None:
    storage, first, second = MemoryStorage(), bytes(range(16)), bytes(16)
    log = PartitionLog.open(TP, storage, LogConfig(), NOW_MS, topic_id=first)
    assert log.topic_id == first
    assert storage.read("partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert PartitionLog.open(TP, storage, LogConfig(), NOW_MS).topic_id == first
    storage.write("partition.metadata", b"version: 0")
    assert PartitionLog.open(TP, storage, LogConfig(), NOW_MS, topic_id=first).topic_id == first
    with pytest.raises(StorageError, match="AAECAwQFBgcICQoLDA0ODw"):
        PartitionLog.open(TopicPartition("orders", 0), storage, LogConfig(), NOW_MS, topic_id=second)


def test_closing_twice_and_reopening_changes_nothing() -> None:
    storage = MemoryStorage()
    log = _filled(storage)
    log.close()
    log.close()
    files = {name: storage.read(name) for name in storage.names()}
    open_log(storage, SMALL, clean=True, recovery_point=log.recovery_point).close()
    assert {name: storage.read(name) for name in storage.names()} == files

"""Every byte of a log against the files beside it: what a start does not see, each with its file and cause."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

import pytest

from ottla.log.damage import OffsetRange
from ottla.log.examination import Flaw, FlawKind, Scope, examine
from ottla.log.memory import MemoryStorage
from ottla.log.names import SNAPSHOT
from ottla.log.snapshot import decode_snapshot, encode_snapshot
from ottla.wire.batch import parse_header
from ottla.wire.records import Record, encode_batch
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.cleaner.passes import COMPACT, clean_all
from tests.log.logs import SMALL, append, append_in_transaction, end, every_batch, open_log

_LOG, _INDEX, _TIMES, _ABORTS = (f"{0:020}.{suffix}" for suffix in ("log", "index", "timeindex", "txnindex"))
_ENTRY = Struct(">hqqqq")
_SIZE = len(idempotent(0))


def _written() -> MemoryStorage:
    """Two aborted transactions, a committed one, an open one; four batches of another producer; a stop in order."""
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    for number, commit in enumerate((False, True, False)):
        append_in_transaction(log, number)
        end(log, commit=commit)
    append_in_transaction(log, 3)
    for number in range(4):
        append(log, idempotent(number, producer_id=8))
    log.close()
    return storage


def _flaws(storage: MemoryStorage, scope: Scope | None = None) -> list[Flaw]:
    before = {name: bytes(file.content) for name, file in storage.files.items()}
    read: list[int] = []
    found = list(examine(storage, scope or Scope(OffsetRange(0, 11)), read.append))
    assert {name: bytes(file.content) for name, file in storage.files.items()} == before
    assert sum(read) == sum(len(content) for name, content in before.items() if name.endswith(".log"))
    return found


def _only(storage: MemoryStorage, scope: Scope | None = None) -> tuple[FlawKind, str, str]:
    (flaw,) = _flaws(storage, scope)
    return flaw.kind, flaw.file, flaw.cause


def test_a_sound_log_has_no_flaw() -> None:
    assert _flaws(_written()) == []


def _drop_abort(content: bytearray) -> None:
    del content[_ENTRY.size :]


def _move_abort(content: bytearray) -> None:
    content[: _ENTRY.size] = _ENTRY.pack(0, 7, 0, 3, 2)  # where a marker commits


def _invent_abort(content: bytearray) -> None:
    content += _ENTRY.pack(0, 8, 7, 9, 6)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_drop_abort, "the transaction of producer 7 that was aborted at offset 5 is missing: readers would be shown"),
        (_move_abort, "the transaction of producer 7 that was aborted at offset 1 is missing"),
        (_invent_abort, "there is no abort marker at offset 9"),
    ],
)
def test_an_index_of_aborts_must_name_what_the_markers_aborted(change: Callable[[bytearray], None], why: str) -> None:
    storage = _written()
    change(storage.files[_ABORTS].content)
    kind, file, cause = _only(storage)
    assert (kind, file) == (FlawKind.DERIVED, _ABORTS)
    assert cause.startswith(why)


def test_index_entries_must_lead_to_their_batches() -> None:
    storage = _written()
    storage.files[_INDEX].content[7] += 1
    kind, file, cause = _only(storage)
    assert (kind, file) == (FlawKind.DERIVED, _INDEX)
    assert cause.startswith("no batch begins at position")
    storage = _written()
    storage.files[_TIMES].content[7] += 1
    assert _only(storage)[:2] == (FlawKind.DERIVED, _TIMES)


def test_a_snapshot_must_say_what_the_batches_say() -> None:
    storage, other = _written(), MemoryStorage()
    log = open_log(other)
    for number in range(11):  # as many offsets, another producer
        append(log, idempotent(number, producer_id=9))
    log.close()
    name = f"{11:020}.snapshot"
    storage.write(name, other.read(name) or b"")
    assert _only(storage) == (FlawKind.DERIVED, name, "producer 9 did not write what it says at 11")
    storage.files[name].content[-1] ^= 1
    assert _only(storage)[:2] == (FlawKind.DERIVED, name)


def test_a_snapshot_must_say_of_earlier_batches_what_the_log_says() -> None:
    storage = _written()
    name = f"{11:020}.snapshot"
    state = decode_snapshot(storage.read(name) or b"", 11)
    batches = state.producers[8].batches
    batches[1] = batches[1]._replace(last_sequence=batches[1].last_sequence + 1)
    storage.write(name, encode_snapshot(state.producers.values()))
    assert _only(storage) == (FlawKind.DERIVED, name, "producer 8 did not write what it says at 11")
    del batches[1]  # gone from the log, too, if this one had been compacted
    storage.write(name, encode_snapshot(state.producers.values()))
    assert _flaws(storage) == []


def test_a_leader_epoch_that_no_checksum_covers_is_compared() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    for _ in range(3):
        log.append(batch(), now_ms=NOW_MS, leader_epoch=4)
    log.close()
    storage.files[_LOG].content[len(batch()) + 15] = 5
    assert _flaws(storage) == [
        Flaw(
            FlawKind.CONTRADICTION,
            _LOG,
            "the batch at offset 1 is of leader epoch 5, and leader-epoch-checkpoint says 4",
            len(batch()),
            1,
            2,
        )
    ]


def test_a_changed_base_offset_is_a_gap_and_then_one_that_does_not_follow() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    for _ in range(4):
        append(log, batch())
    log.close()
    storage.files[_LOG].content[len(batch()) + 7] = 2  # 1 becomes 2
    gap, follows = _flaws(storage, Scope(OffsetRange(0, 4)))
    assert (gap.kind, gap.position, gap.first_offset, gap.end_offset) == (FlawKind.GAP, len(batch()), 1, 2)
    assert (follows.kind, follows.position) == (FlawKind.UNREADABLE, 2 * len(batch()))
    assert "its offset 2 does not follow 2" in follows.cause


def test_from_a_damaged_log_nothing_is_to_be_made_again() -> None:
    """An index may know better than a log whose bytes were changed."""
    storage = _written()
    storage.files[_LOG].content[-1] ^= 1
    storage.files[_INDEX].content[7] += 1
    damage, index = _flaws(storage)
    assert (damage.kind, damage.first_offset, damage.end_offset) == (FlawKind.UNREADABLE, 10, 11)
    assert (index.kind, index.file) == (FlawKind.CONTRADICTION, _INDEX)
    assert index.cause.endswith("but the log itself is damaged")


def test_a_known_hole_is_no_new_flaw_and_deleted_records_are_none() -> None:
    storage = _written()
    storage.files[_LOG].content[-1] ^= 1
    (known,) = _flaws(storage, Scope(OffsetRange(0, 11), (OffsetRange(10, 11),)))
    assert known.kind is FlawKind.KNOWN
    assert _flaws(storage, Scope(OffsetRange(11, 11))) == []


def test_gaps_that_follow_each_other_are_told_at_once() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    for _ in range(9):
        append(log, batch())
    log.close()
    content, size = storage.files[_LOG].content, len(batch())
    for number in (7, 6, 4, 2):
        del content[number * size : (number + 1) * size]
    for name in (_INDEX, _TIMES):
        storage.delete(name)
    (flaw,) = _flaws(storage, Scope(OffsetRange(0, 9)))
    assert (flaw.kind, flaw.position, flaw.first_offset, flaw.end_offset) == (FlawKind.GAP, 2 * size, 2, 8)
    assert flaw.cause == (
        "there are no records at offsets 2–2, and 4 offsets in all are missing in 3 places from here on"
    )
    (rest,) = _flaws(storage, Scope(OffsetRange(0, 9), compacted_below=6))
    assert (rest.first_offset, rest.end_offset, rest.cause) == (6, 8, "there are no records at offsets 6–7")


def test_a_compacted_log_may_lack_offsets_and_markers() -> None:
    storage = _written()
    content = storage.files[_LOG].content
    del content[: len(content) - 4 * _SIZE]
    for name in (_INDEX, _TIMES, f"{11:020}.snapshot"):
        storage.delete(name)
    assert _flaws(storage, Scope(OffsetRange(0, 11), compacted_below=100)) == []
    assert {flaw.kind for flaw in _flaws(storage)} >= {FlawKind.GAP}


def test_the_last_batch_that_a_snapshot_names_may_be_cleaned_away_while_earlier_ones_stay() -> None:
    storage, name = MemoryStorage(), f"{6:020}{SNAPSHOT}"
    log = open_log(storage, COMPACT)
    for number, key in enumerate([b"a", b"b", b"c", b"d", b"e", *[b"f"] * 13]):
        record = Record(0, NOW_MS, key, b"value" * 10)
        append(log, encode_batch([record], producer_id=8, producer_epoch=0, base_sequence=number))
    assert clean_all(log)
    assert [parse_header(each).last_offset for each in every_batch(log)] == [0, 1, 2, 3, 4, 14, 15, 16, 17]
    state = decode_snapshot(storage.read(name) or b"", 6)
    said = state.producers[8].batches
    assert said[-1].last_offset == 5
    scope = Scope(OffsetRange(0, 18), compacted_below=100)
    assert list(examine(storage, scope, lambda _: None)) == []
    last = said.pop()
    said.append(last._replace(first_offset=6, last_offset=6))  # behind the snapshot
    storage.write(name, encode_snapshot(state.producers.values()))
    assert [each.file for each in examine(storage, scope, lambda _: None)] == [name]
    while said[-1].last_offset > 3:  # of 4, which the log has, the snapshot must know
        said.pop()
    storage.write(name, encode_snapshot(state.producers.values()))
    (flaw,) = examine(storage, scope, lambda _: None)
    assert (flaw.kind, flaw.file) == (FlawKind.DERIVED, name)

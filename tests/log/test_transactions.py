"""Transactions in one partition (SPEC T2, T7, T8, T12; KIP-890, KIP-1228)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import StorageError
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.replay import replay
from ottla.log.results import NO_GUARD, AbortedTransaction, Isolation, Origin
from ottla.wire.batch import join_batch, parse_header
from ottla.wire.errors import ErrorCode
from ottla.wire.markers import parse_end_txn_marker
from ottla.wire.special_timestamp import SpecialTimestamp
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import (
    SMALL,
    append,
    append_in_transaction,
    committed_offsets,
    content,
    end,
    every_batch,
    open_log,
)

_COMMITTED = Isolation.READ_COMMITTED


def test_t7_a_marker_is_a_transactional_control_batch() -> None:
    log = open_log()
    append_in_transaction(log, 0)
    assert end(log, commit=True, coordinator_epoch=3).base_offset == 1
    marker = every_batch(log)[1]
    header = parse_header(marker)
    assert header.is_control
    assert header.is_transactional
    assert header.attributes == 0x30
    assert parse_end_txn_marker(marker) == (True, 3)


def test_t7_a_marker_that_apache_kafkas_log_cleaner_has_emptied_says_nothing() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    append_in_transaction(log, 0)
    end(log, commit=True)
    log.close()
    marker = every_batch(log)[1]
    emptied = join_batch(parse_header(marker)._replace(record_count=0), b"")
    file = storage.open("00000000000000000000.log")
    file.truncate(file.size_bytes - len(marker))
    file.append([emptied])
    storage.delete("00000000000000000002.snapshot")
    found = open_log(storage, LogConfig(cleanup_policy=frozenset({"compact"})))
    assert found.end_offset == 2
    assert [batch.commit for batch in replay(found)] == [None, None]


def test_t8_an_open_transaction_holds_the_lso_back() -> None:
    log = open_log()
    append(log, batch(2))
    append_in_transaction(log, 0, 3)
    append(log, batch())
    assert (log.last_stable_offset, log.end_offset) == (2, 6)
    read = log.read(0, 10_000, isolation=_COMMITTED)
    assert content(read) == every_batch(log)[0]
    assert content(log.read(2, 10_000, isolation=_COMMITTED)) == b""
    assert log.offset_for_timestamp(SpecialTimestamp.LATEST, _COMMITTED).offset == 2  # type: ignore[union-attr]
    assert log.offset_for_timestamp(SpecialTimestamp.LATEST).offset == 6  # type: ignore[union-attr]
    end(log, commit=True)
    assert log.last_stable_offset == 7


def test_t8_a_read_committed_fetch_carries_the_aborted_list() -> None:
    log = open_log()
    append_in_transaction(log, 0, 3)
    end(log, commit=False)
    append(log, batch())
    read = log.read(0, 10_000, isolation=_COMMITTED)
    assert read.aborted == (AbortedTransaction(7, 0),)
    assert log.read(4, 10_000, isolation=_COMMITTED).aborted == ()
    assert log.read(0, 10_000).aborted is None
    assert committed_offsets(log) == [4]


def test_t8_the_index_holds_the_lso_at_the_abort() -> None:
    log = open_log()
    append_in_transaction(log, 0, producer_id=1)
    append_in_transaction(log, 0, producer_id=2)
    append_in_transaction(log, 0, producer_id=3)
    end(log, commit=False, producer_id=2)
    end(log, commit=False, producer_id=1)
    end(log, commit=False, producer_id=3)
    entries = log._segments.active.txn_index.entries
    assert entries == [(2, 1, 3, 0), (1, 0, 4, 2), (3, 2, 5, 6)]


def test_t2_a_marker_of_an_older_epoch_is_fenced() -> None:
    log = open_log()
    append_in_transaction(log, 0, epoch=4)
    assert end(log, commit=False, epoch=3).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(log, commit=False, epoch=5).error is ErrorCode.NONE
    assert append(log, idempotent(1, epoch=4)).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_t2_a_marker_of_an_older_coordinator_is_fenced() -> None:
    log = open_log()
    end(log, commit=True, coordinator_epoch=5)
    assert end(log, commit=True, coordinator_epoch=4).error is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert end(log, commit=True, coordinator_epoch=5).error is ErrorCode.NONE


def test_kip_1228_a_late_marker_of_version_2_is_refused_and_a_repeated_one_is_not() -> None:
    log = open_log()
    append_in_transaction(log, 0, epoch=1)
    assert end(log, commit=True, epoch=1, transaction_version=2).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(log, commit=True, epoch=2, transaction_version=2).error is ErrorCode.NONE
    assert end(log, commit=True, epoch=2, transaction_version=2).error is ErrorCode.NONE
    append_in_transaction(log, 0, epoch=2)
    assert end(log, commit=True, epoch=2, transaction_version=2).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_without_a_transaction_changes_no_lso() -> None:
    log = open_log()
    assert end(log, commit=False).error is ErrorCode.NONE
    assert log.last_stable_offset == log.end_offset == 1
    assert log._segments.active.txn_index.entries == []


def test_a_plain_batch_inside_a_transaction_is_refused() -> None:
    log = open_log()
    append_in_transaction(log, 0)
    assert append(log, idempotent(1)).error is ErrorCode.INVALID_TXN_STATE


def test_t12_transactional_and_plain_producers_interleave() -> None:
    log = open_log()
    append_in_transaction(log, 0, producer_id=1)
    append(log, idempotent(0, producer_id=2))
    append_in_transaction(log, 0, producer_id=3)
    append_in_transaction(log, 1, producer_id=1)
    end(log, commit=False, producer_id=1)
    append(log, batch())
    end(log, commit=True, producer_id=3)
    assert committed_offsets(log) == [1, 2, 5]


# ---- KIP-890: verification


def test_kip_890_a_transaction_must_be_verified_before_its_first_batch() -> None:
    log = open_log()
    records = idempotent(0, transactional=True)
    assert append(log, records).error is ErrorCode.INVALID_TXN_STATE
    guard = log.producers.begin_verification(7, 0, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    assert guard.needed
    assert append(log, records, guard=guard.guard + 1).error is ErrorCode.INVALID_TXN_STATE
    assert append(log, records, guard=guard.guard).error is ErrorCode.NONE
    assert not log.producers.begin_verification(7, 1, 0, supports_epoch_bump=False, now_ms=NOW_MS).needed
    assert append(log, idempotent(1, transactional=True)).error is ErrorCode.NONE


def test_kip_890_a_confirmation_that_comes_after_the_end_fits_no_later_transaction() -> None:
    log = open_log()
    late = log.producers.begin_verification(7, 0, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    end(log, commit=False)
    assert append(log, idempotent(0, transactional=True), guard=late.guard).error is ErrorCode.INVALID_TXN_STATE
    fresh = log.producers.begin_verification(7, 0, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    assert fresh.guard not in (late.guard, NO_GUARD)


def test_kip_890_a_higher_sequence_does_not_overtake_the_one_that_waits() -> None:
    log = open_log()
    log.producers.begin_verification(7, 5, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    guard = log.producers.begin_verification(7, 0, 0, supports_epoch_bump=False, now_ms=NOW_MS).guard
    records = idempotent(5, transactional=True)
    assert append(log, records, guard=guard).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, idempotent(0, transactional=True), guard=guard).error is ErrorCode.NONE


def test_kip_890_a_version_2_transaction_starts_at_sequence_zero() -> None:
    log = open_log()
    guard = log.producers.begin_verification(7, 3, 0, supports_epoch_bump=True, now_ms=NOW_MS).guard
    refused = append(log, idempotent(3, transactional=True), guard=guard)
    assert refused.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_kip_890_the_marker_of_the_transaction_before_keeps_a_version_2_verification() -> None:
    log = open_log()
    append_in_transaction(log, 0, epoch=0)
    guard = log.producers.begin_verification(7, 0, 1, supports_epoch_bump=True, now_ms=NOW_MS).guard
    end(log, commit=True, epoch=1, transaction_version=2)
    assert append(log, idempotent(0, epoch=1, transactional=True), guard=guard).error is ErrorCode.NONE


def test_kip_890_an_old_epoch_is_told_so_before_anything_is_asked() -> None:
    log = open_log()
    append(log, idempotent(0, epoch=2))
    refused = log.producers.begin_verification(7, 0, 1, supports_epoch_bump=False, now_ms=NOW_MS)
    assert refused.error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert append(log, idempotent(0, epoch=1, transactional=True)).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_kip_890_verification_can_be_switched_off() -> None:
    log = open_log(config=LogConfig(transaction_verification=False))
    assert append(log, idempotent(0, transactional=True)).error is ErrorCode.NONE


def test_kip_890_the_group_coordinators_batches_are_verified_too() -> None:
    log = open_log()
    records = batch(producer_id=7, producer_epoch=0, transactional=True)
    refused = log.append(records, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    assert refused.error is ErrorCode.INVALID_TXN_STATE
    guard = log.producers.begin_verification(7, -1, 0, supports_epoch_bump=False, now_ms=NOW_MS).guard
    appended = log.append(records, now_ms=NOW_MS, origin=Origin.COORDINATOR, verification_guard=guard)
    assert appended.error is ErrorCode.NONE
    assert log.producers.has_ongoing_transaction(7)


def test_kip_890_a_confirmed_verification_lets_the_group_coordinator_append_until_a_marker_comes() -> None:
    log = open_log()
    records = batch(producer_id=7, producer_epoch=0, transactional=True)
    late = log.producers.begin_verification(7, -1, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    log.producers.confirm_verification(7, late.guard)
    end(log, commit=False)
    refused = log.append(records, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    assert refused.error is ErrorCode.INVALID_TXN_STATE
    fresh = log.producers.begin_verification(7, -1, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    log.producers.confirm_verification(7, late.guard)
    assert log.append(records, now_ms=NOW_MS, origin=Origin.COORDINATOR).error is ErrorCode.INVALID_TXN_STATE
    log.producers.confirm_verification(7, fresh.guard)
    assert append(log, idempotent(0, transactional=True)).error is ErrorCode.INVALID_TXN_STATE
    assert log.append(records, now_ms=NOW_MS, origin=Origin.COORDINATOR).error is ErrorCode.NONE


# ---- against a naive model


class _Model:
    """Every batch with its fate, nothing cleverer."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int | None]] = []  # first offset, count, transaction number
        self.fate: dict[int, str] = {}
        self.open: dict[int, int] = {}
        self.end = 0

    def append(self, count: int, producer_id: int | None) -> None:
        number = None
        if producer_id is not None:
            number = self.open.setdefault(producer_id, len(self.fate))
            self.fate.setdefault(number, "open")
        self.batches.append((self.end, count, number))
        self.end += count

    def mark(self, producer_id: int, fate: str) -> None:
        number = self.open.pop(producer_id, None)
        if number is not None:
            self.fate[number] = fate
        self.end += 1

    @property
    def stable(self) -> int:
        return min(
            (first for first, _, n in self.batches if n is not None and self.fate[n] == "open"), default=self.end
        )

    def visible(self) -> list[int]:
        return [
            offset
            for first, count, number in self.batches
            if number is None or self.fate[number] == "committed"
            for offset in range(first, first + count)
            if offset < self.stable
        ]


_ACTIONS = st.lists(
    st.tuples(st.sampled_from(["plain", "txn", "txn", "commit", "abort"]), st.integers(1, 4), st.integers(1, 5)),
    max_size=60,
)


def _drive(log: PartitionLog, model: _Model, actions: list[tuple[str, int, int]]) -> None:
    sequences = dict.fromkeys(range(1, 5), 0)
    for action, producer_id, count in actions:
        match action:
            case "plain":
                append(log, batch(count))
                model.append(count, None)
            case "txn":
                done = append_in_transaction(log, sequences[producer_id], count, producer_id=producer_id)
                assert done.error is ErrorCode.NONE, done.message
                sequences[producer_id] += count
                model.append(count, producer_id)
            case _:
                end(log, commit=action == "commit", producer_id=producer_id)
                model.mark(producer_id, "committed" if action == "commit" else "aborted")


@settings(max_examples=150)
@given(actions=_ACTIONS)
def test_t8_lso_and_committed_reads_equal_a_naive_model(actions: list[tuple[str, int, int]]) -> None:
    storage, model = MemoryStorage(), _Model()
    log = open_log(storage, SMALL)
    _drive(log, model, actions)
    killed = open_log(storage.after_kill(), SMALL)
    log.close()
    for each in (log, killed, open_log(storage, SMALL, clean=True)):
        assert each.end_offset == model.end
        assert each.last_stable_offset == model.stable
        assert committed_offsets(each) == model.visible()


def test_t8_what_was_aborted_on_a_full_disk_is_never_read() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    append_in_transaction(log, 0, 3)
    marker_bytes = 78
    storage.limit_bytes = storage.size_bytes + marker_bytes  # room for the marker, none for the index
    assert end(log, commit=False).error is ErrorCode.NONE
    assert log.read(0, 10_000, isolation=_COMMITTED).aborted == (AbortedTransaction(7, 0),)
    with pytest.raises(StorageError):
        log.flush()  # or the entry would be missing after a clean start
    storage.limit_bytes = None
    killed = open_log(storage.after_kill())
    assert killed.read(0, 10_000, isolation=_COMMITTED).aborted == (AbortedTransaction(7, 0),)
    append_in_transaction(log, 3)
    end(log, commit=False)
    log.close()
    again = open_log(storage, clean=True)
    found = again.read(0, 10_000, isolation=_COMMITTED).aborted
    assert found == (AbortedTransaction(7, 0), AbortedTransaction(7, 4))

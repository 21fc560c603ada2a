"""The ledger's records and its fold over a log with transactions of several sinks."""

from collections.abc import Iterable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ottla.spark.errors import LedgerFormatError
from ottla.spark.ledger import (
    BatchKey,
    Decision,
    Done,
    Entry,
    Forgotten,
    Handle,
    Ledger,
    LedgerBatch,
    LedgerRecord,
    Ledgers,
    Plan,
    QueryPast,
    ReadMark,
    SlotDecision,
    SlotMarker,
    decode,
    encode,
)
from ottla.spark.ledger_io import ledger_batches
from ottla.wire.batch import assign_offsets, join_batch, parse_header
from ottla.wire.markers import control_batch
from ottla.wire.records import Record, encode_batch

KEYS = st.builds(BatchKey, st.text(max_size=8), st.integers(0, 2**40))
HANDLES = st.builds(Handle, st.text(max_size=8), st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
SLOTS = st.integers(0, 5_000)
DIGESTS = st.text("0123456789abcdef", max_size=16)
RECORDS: st.SearchStrategy[LedgerRecord] = st.one_of(
    st.builds(SlotMarker, KEYS, SLOTS, SLOTS, DIGESTS),
    st.builds(
        Decision,
        KEYS,
        HANDLES,
        st.lists(st.builds(SlotDecision, SLOTS, SLOTS, DIGESTS, st.none() | HANDLES), max_size=4).map(tuple),
        st.builds(Plan, st.none() | DIGESTS, st.none() | st.text(max_size=8)),
    ),
    st.builds(Done, KEYS),
    st.builds(Forgotten, st.text(max_size=8), st.sampled_from(["slot", "decision", "done"]), st.none() | SLOTS),
    st.just(ReadMark()),
)
KEY = BatchKey("q", 7)
DRIVER = Handle("s-driver", 1, 0)


class Log:
    """Writes ledger batches with running offsets."""

    def __init__(self) -> None:
        self.batches: list[LedgerBatch] = []

    def data(self, producer_id: int, *records: LedgerRecord, sink: str = "s", epoch: int = 0) -> None:
        self._add(producer_id, epoch, None, [encode(sink, record) for record in records])

    def control(self, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
        self._add(producer_id, epoch, commit, [])

    def _add(self, pid: int, epoch: int, commit: bool | None, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        base = self.batches[-1].last_offset + 1 if self.batches else 0
        last = base + max(0, len(list(records)) - 1)
        self.batches.append(LedgerBatch(base, last, pid, epoch, pid >= 0, commit, tuple(records)))

    def read(self, sink: str = "s") -> Ledger:
        ledger = Ledger(sink)
        ledger.apply(self.batches)
        return ledger


@given(st.text(max_size=8), RECORDS)
def test_a_record_is_read_as_it_was_written(sink: str, record: LedgerRecord) -> None:
    assert decode(*encode(sink, record)) == Entry(sink, record)


@given(RECORDS)
def test_the_same_thing_has_the_same_key_in_every_batch_so_that_compaction_keeps_the_last(record: LedgerRecord) -> None:
    assume(not isinstance(record, Forgotten | ReadMark))
    assert not isinstance(record, Forgotten | ReadMark)
    later = record._replace(key=record.key._replace(batch=record.key.batch + 1))
    assert encode("s", record)[0] == encode("s", later)[0]
    assert encode("s", record) != encode("s", later)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"user data", b"x"),
        (b'{"sink":"s","query":"q","kind":"slot","slot":1}', b'{"v":1,"batch":1}'),
        (b'{"sink":"s","query":"q","kind":"new"}', b'{"v":1,"batch":1}'),
        (b'{"sink":"s","query":"q","kind":"done"}', b'{"v":2,"batch":1}'),
        (b"[]", b"{}"),
    ],
)
def test_a_record_of_anybody_else_is_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(LedgerFormatError):
        decode(key, value)


def test_a_tombstone_says_what_it_takes_away() -> None:
    assert decode(encode("s", Done(KEY))[0], None) == Entry("s", Forgotten("q", "done"))
    assert decode(encode("s", SlotMarker(KEY, 3, 1, "aa"))[0], None) == Entry("s", Forgotten("q", "slot", 3))


def test_a_record_counts_when_its_transaction_is_committed() -> None:
    log = Log()
    log.data(5, SlotMarker(KEY, 0, 3, "aa"))
    log.data(6, SlotMarker(KEY, 1, 3, "bb"))
    assert log.read().past() == {}
    log.control(6, commit=False)
    log.control(5, commit=True)
    assert log.read().past() == {"q": QueryPast(-1, 7, (SlotMarker(KEY, 0, 3, "aa"),))}


def test_an_open_transaction_below_does_not_hide_a_decision() -> None:
    log = Log()
    handle = Handle("s-0", 5, 1)
    log.data(5, SlotMarker(KEY, 0, 3, "aa"))
    log.data(1, Decision(KEY, DRIVER, (SlotDecision(0, 3, "aa", handle),), Plan("ab")))
    log.control(1, commit=True)
    (decision,) = log.read().undone()
    assert decision.slots[0].handle == handle
    assert log.read().past() == {"q": QueryPast(-1, 7, (), Plan("ab"))}
    log.control(5, commit=True)
    assert log.read().past() == {"q": QueryPast(7, 7, (), Plan("ab"))}
    log.data(-1, Done(KEY))
    assert log.read().undone() == []


def test_an_aborted_decision_was_never_made() -> None:
    log = Log()
    log.data(1, Decision(KEY, DRIVER, ()))
    log.control(1, commit=False)
    assert log.read().decision("q") is None


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_that_was_compacted_away_is_not_taken_from_the_next_one(commit: bool) -> None:
    log = Log()
    log.data(5, SlotMarker(KEY, 0, 3, "aa"), epoch=1)
    ledger = log.read()  # a worker reads it so far, and goes on days later: the end of epoch 1 is not there any more
    later = SlotMarker(BatchKey("r", 0), 0, 3, "bb")
    log.data(5, later, epoch=2)
    log.control(5, commit=commit, epoch=3)
    ledger.apply(log.batches)
    assert ledger.past() == ({"r": QueryPast(-1, 0, (later,))} if commit else {})


def test_what_apache_kafkas_log_cleaner_leaves_of_a_ledger_can_be_read() -> None:
    marker = SlotMarker(KEY, 0, 3, "aa")
    record = Record(0, 1, *encode("s", marker), ())
    data = bytes(encode_batch([record], producer_id=5, producer_epoch=1, base_sequence=0, transactional=True))

    def end(offset: int, *, emptied: bool) -> bytes:
        whole = bytearray(
            control_batch(commit=True, producer_id=5, producer_epoch=1, coordinator_epoch=0, timestamp_ms=1)
        )
        assign_offsets(whole, 0, offset, 0)
        return join_batch(parse_header(whole)._replace(record_count=0), b"") if emptied else bytes(whole)

    ledger = Ledger("s")
    ledger.apply(ledger_batches(data + end(1, emptied=True)))  # what was pending when it was read is gone by now
    assert (ledger.past(), ledger.next_offset) == ({}, 2)
    ledger = Ledger("s")
    ledger.apply(ledger_batches(data + end(1, emptied=False) + end(2, emptied=True)))
    assert (ledger.past(), ledger.next_offset) == ({"q": QueryPast(-1, 7, (marker,))}, 3)


def test_a_record_that_is_not_understood_is_not_passed_over_by_reading_again() -> None:
    log = Log()
    log.data(-1, Done(KEY))
    ledger = log.read()
    log.batches.append(LedgerBatch(1, 1, -1, -1, False, None, ((b"user data", b"x"),)))
    for _ in range(2):
        with pytest.raises(LedgerFormatError):
            ledger.apply(log.batches)


def test_other_sinks_in_the_same_ledger_are_left_alone() -> None:
    log = Log()
    log.data(5, SlotMarker(KEY, 0, 3, "aa"), sink="t")
    log.control(5, commit=True)
    assert log.read("s").past() == {}
    assert set(log.read("t").past()) == {"q"}


def test_who_reads_says_nothing_of_batches_and_who_has_only_read_is_no_sink() -> None:
    log = Log()
    log.data(-1, ReadMark(), sink="s")
    log.data(-1, ReadMark(), sink="t")
    log.data(-1, Done(KEY), sink="t")
    assert (log.read("s").past(), log.read("s").next_offset) == ({}, 3)
    ledgers = Ledgers()
    ledgers.apply(log.batches)
    assert set(ledgers.of) == {"t"}


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["slot", "commit", "abort"])), max_size=30),
    st.integers(0, 30),
)
def test_reading_in_two_parts_is_reading_at_once(steps: list[tuple[int, str]], cut: int) -> None:
    log = Log()
    for at, (producer_id, step) in enumerate(steps):
        if step == "slot":
            log.data(producer_id, SlotMarker(BatchKey("q", at), producer_id, at, "dd"))
        else:
            log.control(producer_id, commit=step == "commit")
    parts = Ledger("s")
    parts.apply(log.batches[:cut])
    parts.apply(log.batches[max(0, cut - 2) :])  # a fetch gives whole batches: some are known already
    assert parts.past() == log.read().past()
    assert parts.next_offset == log.read().next_offset

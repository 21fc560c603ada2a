"""What damaged files have taken: what is excused by it, and what is not."""

from __future__ import annotations

import random

from ottla.base.types import TopicPartition
from ottla.testing.history.facts import Acknowledged, Drained, Fact, Log, LogRecord, Polled, Read, Sent
from ottla.wire.batch import parse_header
from ottla.wire.markers import control_batch
from ottla.wire.records import Record, encode_batch
from sim.check import Told
from sim.cluster.log import Entry
from sim.deletions import Deletions
from sim.history import History
from sim.loop import SimLoop
from sim.losses import Losses, ended, missing, new_records

_TP = TopicPartition("t", 0)


def _entry(offset: int, uid: str, *, producer_id: int = -1) -> Entry:
    transactional = producer_id >= 0
    payload = bytearray(
        encode_batch(
            [Record(0, 1, None, uid.encode(), ())],
            producer_id=producer_id,
            producer_epoch=0 if transactional else -1,
            base_sequence=offset if transactional else -1,
            transactional=transactional,
        )
    )
    payload[:8] = offset.to_bytes(8)
    return Entry(offset, offset, 0, parse_header(payload), bytes(payload))


def _of_producer(offset: int, uid: str, epoch: int, sequence: int) -> Entry:
    batch = encode_batch(
        [Record(0, 1, None, uid.encode(), ())], producer_id=7, producer_epoch=epoch, base_sequence=sequence
    )
    payload = bytearray(batch)
    payload[:8] = offset.to_bytes(8)
    return Entry(offset, offset, 0, parse_header(payload), bytes(payload))


def _marker(offset: int, producer_id: int) -> Entry:
    payload = bytearray(
        control_batch(commit=True, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1)
    )
    payload[:8] = offset.to_bytes(8)
    return Entry(offset, offset, 0, parse_header(payload), bytes(payload))


def _names(losses: Losses, *facts: Fact) -> list[str]:
    return [each.name for each in losses.judge([Told(float(at), "p.1", fact) for at, fact in enumerate(facts)])]


def test_what_is_gone_and_what_is_new() -> None:
    before, after = [_entry(0, "a"), _entry(1, "b")], [_entry(1, "b"), _entry(2, "c")]
    assert [entry.base_offset for entry in missing(before, after)] == [0]
    assert [record.uid for record in new_records(before, after)] == ["c"]


def test_a_marker_belongs_to_the_batches_before_it() -> None:
    log = [_entry(0, "a", producer_id=7), _entry(1, "b", producer_id=8), _marker(2, 7)]
    assert [(marker.base_offset, [each.base_offset for each in batches]) for marker, batches in ended(log)] == [
        (2, [0])
    ]


def test_a_marker_that_is_gone_leaves_its_transaction_open_wherever_that_begins() -> None:
    losses, rest = Losses(), [_entry(1, "b"), _marker(2, 7), _marker(3, 8)]
    log = [_entry(0, "a", producer_id=7), *rest]
    losses.add(_TP, log, log[:1])
    assert not losses.is_hanging(_TP, 7, 0)
    losses.add(_TP, rest, rest[1:2])
    assert losses.is_hanging(_TP, 7, 0)
    assert not losses.is_hanging(_TP, 7, -1), "no transaction is open"
    assert not losses.is_hanging(_TP, 7, 1), "this one has begun at a batch that is there"
    assert not losses.is_hanging(_TP, 8, 0), "its marker is there"
    losses.begin()
    assert not losses.is_hanging(_TP, 7, 0), "another transaction, at the same offset"
    losses.add(_TP, log, log[2:3])
    losses.begin()
    assert losses.is_hanging(_TP, 7, 0), "it may show at a later start, when the log is read again"
    losses.add(_TP, log, log[:2])
    assert not losses.is_hanging(_TP, 7, 0)


def test_a_transaction_that_began_in_what_was_deleted_loses_its_marker_too() -> None:
    """broker-damage 530000037: its end was taken from the producer's next transaction."""
    deletions, losses = Deletions(History(SimLoop(random.Random(1)))), Losses()
    log = [_entry(0, "a", producer_id=7), _marker(1, 7)]
    deletions.ask("broker", _TP, 1)
    deletions.keep(_TP, lambda: log)
    losses.add(_TP, deletions.with_deleted(_TP, log[1:]), log[1:])
    assert losses.unsettled == {"a"}


def test_a_transaction_at_offsets_that_are_used_again_is_not_the_operators() -> None:
    """broker-damage 530000340: one that was going on was aborted, because an older one had lost its marker."""
    losses, log = Losses(), [_entry(0, "a", producer_id=7), _marker(1, 7), _entry(2, "b"), _entry(3, "c")]
    losses.begin()
    losses.add(_TP, log, log[2:])
    losses.begin()
    losses.add(_TP, [*log[:2], _entry(2, "d", producer_id=7)], log[:2])
    assert not losses.is_hanging(_TP, 7, 2)
    assert losses.is_hanging(_TP, 7, 0)


def test_a_record_that_is_gone_is_excused_and_no_other() -> None:
    losses = Losses()
    left = [_entry(0, "a"), _entry(1, "b"), _entry(2, "c")]
    losses.add(_TP, left, left[1:2])
    facts: list[Fact] = [Sent(uid) for uid in ("a", "b", "c")]
    facts += [Acknowledged(uid, _TP, offset) for offset, uid in enumerate(("a", "b", "c"))]
    assert _names(losses, *facts, Log(_TP, (LogRecord(0, "a"), LogRecord(2, "c")))) == []
    assert _names(losses, *facts, Log(_TP, (LogRecord(0, "a"),))) == ["lost-write"]
    assert "lost-write" in _names(Losses(), *facts, Log(_TP, (LogRecord(0, "a"), LogRecord(2, "c"))))


def test_readers_may_miss_what_is_at_offsets_that_were_gone_and_nothing_else() -> None:
    losses = Losses()
    before = [_entry(0, "a"), _entry(1, "b")]
    losses.add(_TP, before, before[1:])
    log = Log(_TP, (LogRecord(0, "a"), LogRecord(1, "new"), LogRecord(2, "c")))
    sent: list[Fact] = [Sent(uid) for uid in ("a", "b", "new", "c")]
    sent += [
        Acknowledged("a", _TP, 0),
        Acknowledged("b", _TP, 1),
        Acknowledged("new", _TP, 1),
        Acknowledged("c", _TP, 2),
    ]
    polled = Polled("g", (Read(_TP, 0, "a"), Read(_TP, 1, "b"), Read(_TP, 2, "c")), read_committed=True)
    drained = Drained("g", (_TP,))
    assert _names(losses, *sent, polled, log, drained) == []
    less = Polled("g", (Read(_TP, 0, "a"),), read_committed=True)
    assert _names(losses, *sent, less, log, drained) == ["unseen"]


def test_a_transaction_that_lost_its_marker_hangs_until_the_operator_ends_it() -> None:
    losses = Losses()
    before = [_entry(0, "a", producer_id=7), _marker(1, 7)]
    losses.add(_TP, before, before[1:])
    assert losses.unsettled == {"a"}
    assert losses.is_hanging(_TP, 7, 0)


def test_what_was_on_its_way_beside_a_batch_that_is_gone_may_be_there_again() -> None:
    """World 2200025449 of broker-damage: nobody knew the batch any more, and its producer began another epoch."""
    losses, log = Losses(), [_of_producer(at, f"r{at}", 0, at) for at in range(8)]
    again = [_of_producer(8 + at, uid, 1, at) for at, uid in enumerate(("r1", "r2", "r3", "r7"))]
    left = [log[0], *log[2:], *again]
    assert losses.but_sent_again(_TP, left) == left
    losses.add(_TP, log, log[1:2])
    served = losses.but_sent_again(_TP, left)
    assert [entry.base_offset for entry in left if entry not in served] == [2, 3], "the last one was sent too late"
    assert losses.offsets[_TP] == {1, 2, 3}

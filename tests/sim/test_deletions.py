"""Deleted records in a world: what may go, what has to be there, and what is remembered."""

from __future__ import annotations

import random

from ottla.base.types import TopicPartition
from ottla.log.config import LogConfig
from ottla.wire.batch import parse_header
from ottla.wire.records import Record, encode_batch
from sim.cluster.log import Entry
from sim.damage import Damage
from sim.deletions import Deletions, LogFile, retirable
from sim.history import History
from sim.loop import SimLoop
from sim.world import Kind, World
from tests.log.batches import idempotent
from tests.log.logs import append, open_log

_TP = TopicPartition("orders", 0)


def _entry(offset: int) -> Entry:
    payload = bytearray(encode_batch([Record(0, 1_000 * offset, None, b"x", ())]))
    payload[:8] = offset.to_bytes(8)
    return Entry(offset, offset, 0, parse_header(payload), bytes(payload))


def _file(base_offset: int, count: int, size_bytes: int = 100) -> LogFile:
    content = b"".join(_entry(base_offset + number).payload for number in range(count))
    return LogFile(base_offset, base_offset + count, size_bytes, lambda: content)


def _damage(name: str) -> Damage:
    return Damage("orders-0", name, "removed", b"")


def _deletions() -> Deletions:
    return Deletions(History(SimLoop(random.Random(1))))


def _offsets(entries: list[Entry]) -> list[int]:
    return [entry.base_offset for entry in entries]


def test_retention_takes_the_oldest_files_that_are_too_much_and_no_more() -> None:
    files = [_file(0, 3), _file(3, 3), _file(6, 3)]
    for most, offset in ((300, 0), (201, 0), (200, 3), (199, 3), (100, 6), (0, 9)):
        assert retirable(files, 0, 9, LogConfig(retention_ms=-1, retention_bytes=most), 0) == offset
    assert retirable(files, 0, 9, LogConfig(retention_ms=-1), 0) == 0
    assert retirable(files, 4, 9, LogConfig(retention_ms=-1, retention_bytes=200), 0) == 4, "the first file is gone"


def test_retention_takes_the_oldest_files_that_are_too_old() -> None:
    files = [_file(0, 3), _file(3, 3)]  # their newest records are of second 2 and 5
    for now_ms, offset in ((3_000, 0), (3_001, 3), (6_000, 3), (6_001, 6)):
        assert retirable(files, 0, 6, LogConfig(retention_ms=1_000), now_ms) == offset


def test_a_deletion_that_a_loss_of_power_has_undone_leaves_nothing_to_remember() -> None:
    """broker-power 600100037 and 600100167: the records were lost, not deleted, and others got their offsets."""
    deletions, log = _deletions(), [_entry(offset) for offset in range(5)]
    deletions.ask("d0.1", _TP, 4)
    deletions.keep(_TP, lambda: log)
    deletions.began[_TP] = 4
    assert deletions.done_below(_TP, 1) == 1
    assert _offsets(deletions.with_deleted(_TP, log[3:])) == [0, 3, 4]
    assert deletions.done_below(_TP, 5) == 4, "no more than the broker had deleted before"


def test_of_hurt_files_what_the_log_does_not_know_any_more_is_not_looked_for() -> None:
    """broker-damage 1620000736, 1620002132: a producer that nobody knows writes again; and offsets are used again."""
    deletions, log = _deletions(), open_log()
    append(log, idempotent(0, producer_id=7))
    entries = [
        Entry(offset, offset, 0, header._replace(base_offset=offset), b"")
        for offset, producer_id in enumerate((8, 7, 7))
        for header in [parse_header(idempotent(0, producer_id=producer_id))]
    ]
    deletions.ask("d0.1", log.tp, 3)
    deletions.keep(log.tp, lambda: entries[:1])
    assert deletions.forget(log, _damage("00000000000000000000.index"), is_told=True) == []
    assert _offsets(deletions.forget(log, _damage("00000000000000000001.snapshot"), is_told=True)) == [0]
    deletions.keep(log.tp, lambda: [entries[1]._replace(base_offset=0, last_offset=0), entries[2]])
    damage = _damage("00000000000000000000.log")
    assert deletions.forget(log, damage, is_told=False) == []
    assert _offsets(deletions.forget(log, damage, is_told=True)) == [2], "the log ends at offset 1"
    assert _offsets(deletions.with_deleted(log.tp, [])) == [0]


def test_what_a_loss_of_power_has_taken_of_producers_is_not_looked_for() -> None:
    """broker-power 4100001665: a producer had no answer for records that were deleted, and the power took the log."""
    deletions, log = _deletions(), open_log()
    append(log, idempotent(0, producer_id=7))
    entries = [
        Entry(offset, offset, 0, header._replace(base_offset=offset), b"")
        for offset, (producer_id, sequence) in enumerate(((8, 0), (7, 0), (7, 1)))
        for header in [parse_header(idempotent(sequence, producer_id=producer_id))]
    ]
    deletions.ask("d0.1", log.tp, 3)
    deletions.keep(log.tp, lambda: entries)
    deletions.forget_unknown(log)
    assert _offsets(deletions.with_deleted(log.tp, [])) == [1], "the log knows that the producer has sent this one"


def test_what_may_go_is_remembered_and_what_may_not_is_missed() -> None:
    deletions, log = _deletions(), [_entry(offset) for offset in range(5)]
    deletions.ask("d0.1", _TP, 2)
    deletions.keep(_TP, lambda: log)
    assert _offsets(deletions.with_deleted(_TP, log[2:])) == [0, 1, 2, 3, 4]
    assert _offsets(deletions.with_deleted(_TP, log[3:])) == [0, 1, 3, 4]


def test_after_a_start_nothing_is_missed_but_what_the_last_broker_had_deleted() -> None:
    deletions, log = _deletions(), open_log()
    for number in range(4):
        append(log, idempotent(number))
    log.delete_records_before(3)
    left = [_entry(offset) for offset in range(4)]
    assert _offsets(deletions.expected(_TP, left)) == [0, 1, 2, 3]
    deletions.dies([log])
    assert _offsets(deletions.expected(_TP, left)) == [3]


def test_a_log_that_begins_before_an_acknowledged_deletion_is_an_anomaly() -> None:
    deletions, log = _deletions(), open_log()
    append(log, idempotent(0))
    deletions.ask("d0.1", _TP, 1)
    assert not deletions.check([log])
    deletions.answered("d0.1", _TP, 1)
    assert [found.name for found in deletions.check([log])] == ["undeleted"]
    log.delete_records_before(1)
    assert not deletions.check([log])


def test_some_worlds_of_the_real_broker_delete_and_no_others() -> None:
    for kind in Kind:
        some = {World(seed, kind).deletions is not None for seed in range(60)}
        can = kind.real and kind not in (Kind.BROKER_PIPELINE, Kind.BROKER_EXACTLY_ONCE)
        assert some == ({False, True} if can else {False}), kind

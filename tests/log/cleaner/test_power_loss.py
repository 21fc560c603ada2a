"""T10, T4: what a pass removes, a start finishes and a loss of power takes, together."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ottla.log.cleaner.swap import Swap
from ottla.log.memory import CrashedError, MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.witnesses import Outside
from tests.log.batches import NOW_MS, batch
from tests.log.cleaner.passes import COMPACT, MEMORY, begin, clean, put, records
from tests.log.logs import TP, append, append_in_transaction, committed_offsets, end, open_log

_CONFIG = replace(COMPACT, transaction_verification=False)


def _synced(storage: MemoryStorage) -> MemoryStorage:
    """What is left when the machine has lost its power, and its device had only what was synced."""
    return storage.after_power_loss(keep=lambda name, synced, size: synced, keep_name=lambda name: False)


def test_a_record_stays_until_what_commits_the_newer_one_is_on_the_device() -> None:
    """The marker came when the flush was over, and the checkpoint was being written: a loss of power takes it."""
    storage = MemoryStorage()
    log = open_log(storage, replace(_CONFIG, segment_bytes=200))
    put(log, b"k", b"old")
    for value in (b"1", b"2"):
        put(log, b"a", value)
    append_in_transaction(log, 0)  # of the same key
    for value in (b"1", b"2", b"3"):
        put(log, b"b", value)
    log.compaction.prepare()
    log.flush()
    point = log.recovery_point
    end(log, commit=True)
    cleaning = log.compaction.begin(NOW_MS, MEMORY, point)
    assert cleaning is not None
    for step in cleaning.steps():
        if isinstance(step, Swap):
            log.compaction.turn(step)
    log.compaction.end(cleaning)
    log = PartitionLog.open(TP, _synced(storage), _CONFIG, NOW_MS, recovery_point=point, log_start_offset=0)
    end(log, commit=False)
    committed = set(committed_offsets(log))
    assert [each.value for each in records(log) if each.key == b"k" and each.offset in committed] == [b"old"]


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_log_ends_where_an_unsynced_marker_is_gone(policy: str) -> None:
    """Nothing is cleaned behind the recovery point. The next marker would have committed the aborted records."""
    config = replace(_CONFIG, segment_bytes=100_000, cleanup_policy=frozenset({policy}))
    storage = MemoryStorage()
    log = open_log(storage, config)
    append(log, batch(key=b"x"))
    log.flush()
    append_in_transaction(log, 0)
    end(log, commit=False)
    log.roll(NOW_MS)
    append_in_transaction(log, 1)
    end(log, commit=True)
    first = f"{0:020}.log"
    marker_bytes = 78
    left = storage.after_power_loss(
        keep=lambda name, synced, size: size - marker_bytes if name == first else size, keep_name=lambda name: True
    )
    log = PartitionLog.open(TP, left, config, NOW_MS, recovery_point=1, log_start_offset=0)
    assert log.end_offset == 2
    assert committed_offsets(log) == [0]


@pytest.mark.parametrize("outside", [Outside(may_be_cleaned_further=True), Outside(flush_is_unknown=True)])
def test_offsets_are_missing_behind_the_recovery_point_of_a_log_that_others_have_cleaned(outside: Outside) -> None:
    """Apache Kafka cleans what it has not flushed. So does somebody of whom the checkpoint is gone."""
    storage = MemoryStorage()
    log = open_log(storage, _CONFIG)
    for number in range(20):
        put(log, b"%d" % (number % 2), b"v%d" % number)
    log.roll(NOW_MS)
    cleaning = begin(log)
    assert cleaning is not None
    for step in cleaning.steps():
        if isinstance(step, Swap):
            log.compaction.turn(step)
    kept = records(log)
    assert len(kept) < 5
    log = PartitionLog.open(TP, storage.after_kill(), _CONFIG, NOW_MS, log_start_offset=0, outside=outside)
    assert records(log) == kept


@pytest.mark.parametrize("flush_is_unknown", [False, True])
def test_a_log_that_is_not_compacted_any_more_has_been(flush_is_unknown: bool) -> None:
    """What was compacted is no gap, and no hole, when the topic's policy changes."""
    storage = MemoryStorage()
    log = open_log(storage, _CONFIG)
    for number in range(40):
        put(log, b"%d" % (number % 2), b"v%d" % number)
    log.flush()
    assert clean(log)
    kept, cleaned_offset, point = records(log), log.compaction.cleaned_offset, log.recovery_point
    log = PartitionLog.open(
        TP,
        storage.after_kill(),
        replace(_CONFIG, cleanup_policy=frozenset({"delete"})),
        NOW_MS,
        recovery_point=0 if flush_is_unknown else point,
        log_start_offset=0,
        outside=Outside(is_known=True, flush_is_unknown=flush_is_unknown, cleaned_offset=cleaned_offset),
    )
    assert records(log) == kept
    assert (log.findings.damaged, log.findings.losses) == ((), ())
    assert flush_is_unknown or log.findings.unexplained == ()  # else it is told, as of a log that is compacted
    assert log.compaction.cleaned_offset == cleaned_offset


def test_a_start_in_which_the_power_fails_finishes_what_it_has_begun() -> None:
    """It puts one segment into the place of several. Their names go one after the other, also on the device."""
    storage = MemoryStorage()
    log = open_log(storage, COMPACT)
    for number in range(20):
        put(log, b"%d" % number, b"v")
    put(log, b"0", b"new")
    log.roll(NOW_MS)
    put(log, b"z", b"z")
    log.flush()
    log.config = replace(COMPACT, segment_bytes=10_000)
    cleaning, point = begin(log), log.recovery_point
    assert cleaning is not None
    for step in cleaning.steps():
        if isinstance(step, Swap):
            if step.is_accepted:
                break  # it is announced, and the broker is killed
            log.compaction.turn(step)
    storage = storage.after_kill()
    storage.sync_names()
    count = 0
    for left in _starts_without_power(storage, point):
        log = PartitionLog.open(TP, left, COMPACT, NOW_MS, recovery_point=point, log_start_offset=0)
        assert {each.value for each in records(log) if each.key == b"0"} == {b"new"}
        assert len(records(log)) == 21
        count += 1
    assert count > 10


def _starts_without_power(storage: MemoryStorage, point: int) -> Iterator[MemoryStorage]:
    """The power fails at each call of a start. The device has one of the deletions that were not synced."""
    at = 0
    while True:
        begun = storage.after_kill()
        left = at

        def refuses(action: str, name: str) -> bool:
            nonlocal left
            left -= action in ("delete", "rename", "sync_names", "sync", "append", "write", "truncate")
            if left < 0:
                raise CrashedError(f"{action} {name}")
            return False

        begun.refuses = refuses
        try:
            PartitionLog.open(TP, begun, COMPACT, NOW_MS, recovery_point=point, log_start_offset=0)
        except CrashedError:
            pass
        else:
            return
        gone = [name for name in storage.names() if name not in begun.files]
        for kept in gone:
            yield begun.after_power_loss(keep=lambda name, synced, size: size, keep_name=kept.__eq__)
        at += 1

"""A replica of Apache Kafka that has fetched a compacted log has gaps in its newest segment: they are no damage.

A partition that was moved between two directories of a broker (KIP-113) is such a replica. In a log of our own nobody
cleans the newest segment, so a gap there is a changed offset, which no checksum covers.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.witnesses import Outside
from ottla.wire.batch import at_offset, parse_header
from tests.log.batches import NOW_MS, batch
from tests.log.cleaner.passes import COMPACT, records
from tests.log.logs import TP, append

_OFFSETS = (0, 3, 4, 9, 10, 15)
_DELETE = LogConfig(segment_bytes=100_000)
_CONFIG = replace(COMPACT, segment_bytes=100_000)
_LOG = "00000000000000000000.log"
_INDEXES = ("00000000000000000000.index", "00000000000000000000.timeindex")
THEIRS = Outside(is_known=True, may_be_cleaned_further=True, is_theirs=True)


def _replica() -> MemoryStorage:
    storage = MemoryStorage()
    file = storage.open(_LOG, create=True)
    for offset in _OFFSETS:
        content = batch(1)
        file.append(at_offset(content, parse_header(content), offset, 0))
    for name in _INDEXES:
        storage.open(name, create=True)
    storage.write("leader-epoch-checkpoint", b"0\n1\n0 0\n")
    file.sync()
    storage.sync_names()
    return storage


def _open(
    storage: MemoryStorage, outside: Outside, *, clean: bool, recovery_point: int, config: LogConfig = _CONFIG
) -> PartitionLog:
    return PartitionLog.open(
        TP, storage, config, NOW_MS, clean=clean, recovery_point=recovery_point, log_start_offset=0, outside=outside
    )


@pytest.mark.parametrize("config", [_CONFIG, _DELETE], ids=["compact", "delete"])
@pytest.mark.parametrize("recovery_point", [0, 4, 16])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("indexes", ["empty", "gone"])
def test_nothing_is_cut_at_a_gap_that_apache_kafka_has_left(
    clean: bool, recovery_point: int, indexes: str, config: LogConfig
) -> None:
    storage = _replica()
    if indexes == "gone":
        for name in _INDEXES:
            storage.delete(name)
    log = _open(storage, THEIRS, clean=clean, recovery_point=recovery_point, config=config)
    assert tuple(each.offset for each in records(log)) == _OFFSETS
    assert log.end_offset == 16
    assert log.findings.cuts == ()
    assert log.findings.damaged == ()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_our_next_start_knows_of_these_gaps(clean: bool) -> None:
    storage = _replica()
    log = _open(storage, THEIRS, clean=False, recovery_point=0)
    append(log, batch(1))
    known = Outside(is_known=True, thinned_below=log.compaction.thinned_below)
    again = _open(storage.after_kill(), known, clean=clean, recovery_point=0)
    assert tuple(each.offset for each in records(again)) == (*_OFFSETS, 16)
    assert again.findings.cuts == ()
    assert again.compaction.thinned_below == log.compaction.thinned_below == 16


def test_a_gap_behind_what_apache_kafka_has_left_is_damage() -> None:
    storage = _replica()
    log = _open(storage, THEIRS, clean=False, recovery_point=0)
    thinned_below = log.compaction.thinned_below
    for _ in range(3):
        append(log, batch(1))
    content = storage.read(_LOG) or b""
    size = len(batch(1))
    last = content[-size:]
    storage.write(_LOG, content[:-size] + b"".join(at_offset(last, parse_header(last), 40, 0)))
    again = _open(storage, Outside(is_known=True, thinned_below=thinned_below), clean=False, recovery_point=0)
    assert tuple(each.offset for each in records(again)) == (*_OFFSETS, 16, 17)
    assert len(again.findings.cuts) == 1


def test_an_empty_newest_segment_of_apache_kafka_is_no_loss() -> None:
    """It rolls one when retention deletes all records."""
    storage = MemoryStorage()
    storage.open("00000000000000000010.log", create=True)
    storage.write("leader-epoch-checkpoint", b"0\n1\n0 10\n")
    log = PartitionLog.open(TP, storage, _DELETE, NOW_MS, recovery_point=0, log_start_offset=0, outside=THEIRS)
    assert log.end_offset == 10
    assert log.findings.losses == ()


@pytest.mark.parametrize("is_theirs", [True, False])
def test_an_empty_file_of_leader_epochs_is_apache_kafkas_after_a_move(is_theirs: bool) -> None:
    storage = MemoryStorage()
    storage.open(_LOG, create=True)
    storage.write("leader-epoch-checkpoint", b"")
    outside = THEIRS if is_theirs else Outside(is_known=True)
    log = PartitionLog.open(TP, storage, _DELETE, NOW_MS, recovery_point=0, log_start_offset=0, outside=outside)
    assert bool(log.findings.mended) is not is_theirs

"""T10: the same random logs, cleaned by our cleaner and by Apache Kafka's, are the same logs afterwards.

Each partition is a history of its own: keys, tombstones, transactions of both outcomes, compressed batches, and
deletions of the oldest records (DeleteRecords), with the segments that go with them. Both clean it; more is written to
both, and both clean it again, when the tombstones' time is over. All batches that were not deleted are compared, field
by field and record by record, and so are the segments and their aborted transactions.
"""

from __future__ import annotations

import random
import shutil
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.base.errors import CorruptDataError
from ottla.base.types import TopicPartition
from ottla.broker.storage import DirectoryStorage
from ottla.log.checkpoint import CLEANER_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, decode_offsets, encode_offsets
from ottla.log.config import LogConfig
from ottla.log.names import CLEANED, LOG, PARTITION_METADATA, SWAP, TXN_INDEX, base_offset, file_name
from ottla.log.partition import PartitionLog
from ottla.log.results import Origin
from ottla.wire.batch import Compression, iter_headers
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, decode_batch, encode_batch
from tests.broker.crash_points import CrashPoints
from tests.interop.apache import ApacheKafka
from tests.log.cleaner.passes import clean_all, records
from tests.log.logs import latest_epoch

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_jars")]

_TOPIC = "cleaned"
_SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "1500",
    "index.interval.bytes": "0",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "0",
}
_CONFIG = LogConfig(
    segment_bytes=1_500,
    index_interval_bytes=0,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
    transaction_verification=False,
)
_BROKER = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.initial.task.delay.ms": "100",
}
_WAIT_S = 240
#: An entry of a `.txnindex`: version, producer id, first and last offset, last stable offset.
_ABORTED = struct.Struct(">hqqqq")
_LAST_OFFSET = 3


class _History:
    """What is written to one partition, from a seed."""

    def __init__(self, seed: int, *, deletes: bool) -> None:
        self._kinds = ("plain", "plain", "idempotent", "write", "write", "end", *(["delete"] if deletes else []))
        self._rng = random.Random(seed)
        self._sequences: dict[int, int] = {}
        self._open: set[int] = set()
        self._leader_epoch = 0
        #: Records before it were deleted.
        self.log_start_offset = 0

    def write_to(self, logs: tuple[PartitionLog, ...], now_ms: int, leader_epoch: int) -> None:
        """One round, the same to each."""
        state, sequences, self._leader_epoch = self._rng.getstate(), self._sequences, leader_epoch
        for log in logs:
            self._rng.setstate(state)
            self._sequences = dict(sequences)
            self._write(log, now_ms)

    def _write(self, log: PartitionLog, now_ms: int) -> None:
        """It ends with a segment that nobody cleans. What was deleted is gone before a cleaner comes, else it is a race
        of Apache Kafka's retention and its cleaner whether a marker's transaction has records left."""
        rng = self._rng
        for _ in range(rng.randint(15, 40)):
            match rng.choice(self._kinds):
                case "plain":
                    self._append(log, now_ms)
                case "idempotent":
                    self._append(log, now_ms, producer_id=rng.choice((20, 21)))
                case "write":
                    producer_id = rng.choice((10, 11, 12))
                    self._open.add(producer_id)
                    self._append(log, now_ms, producer_id=producer_id, transactional=True)
                case "delete":
                    self._delete(log, now_ms)
                case _:
                    self._end(log, now_ms)
        while self._open:
            self._end(log, now_ms)
        log.roll(now_ms)
        self._append(log, now_ms)
        _retire(log, now_ms)

    def _delete(self, log: PartitionLog, now_ms: int) -> None:
        """DeleteRecords, now and then as far as everything that there is; whole segments go at once."""
        first, end = log.log_start_offset, log.high_watermark
        offset = end if self._rng.random() < 0.1 else self._rng.randint(first, first + (end - first) // 2)
        assert log.delete_records_before(offset).error is ErrorCode.NONE
        self.log_start_offset = log.log_start_offset
        _retire(log, now_ms)

    def _end(self, log: PartitionLog, now_ms: int) -> None:
        if self._open:
            producer_id = self._rng.choice(sorted(self._open))
            self._open.remove(producer_id)
            marker = log.append_control(
                producer_id=producer_id,
                producer_epoch=0,
                commit=self._rng.random() < 0.5,
                coordinator_epoch=0,
                now_ms=now_ms,
                leader_epoch=self._leader_epoch,
            )
            assert marker.error is ErrorCode.NONE

    def _append(self, log: PartitionLog, now_ms: int, *, producer_id: int = -1, transactional: bool = False) -> None:
        rng = self._rng
        rows = [
            Record(
                number,
                now_ms - rng.randint(0, 1_000),
                b"key %d" % rng.randint(0, 7),
                None if rng.random() < 0.3 else rng.randbytes(rng.randint(0, 60)),
                tuple((f"h{each}", rng.choice((None, b"x"))) for each in range(rng.randint(0, 2))),
            )
            for number in range(rng.randint(1, 4))
        ]
        sequence = self._sequences.get(producer_id, 0)
        if producer_id >= 0:
            self._sequences[producer_id] = sequence + len(rows)
        batch = encode_batch(
            rows,
            compression=rng.choice(list(Compression)) if rng.random() < 0.5 else Compression.NONE,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=transactional,
        )
        appended = log.append(batch, now_ms=now_ms, origin=Origin.COORDINATOR, leader_epoch=self._leader_epoch)
        assert appended.error is ErrorCode.NONE


def _retire(log: PartitionLog, now_ms: int) -> None:
    if log.retire(now_ms):
        log.delete_retired()


def _open(folder: Path, number: int, now_ms: int, log_start_offset: int = 0) -> PartitionLog:
    return PartitionLog.open(
        TopicPartition(_TOPIC, number),
        DirectoryStorage(folder),
        _CONFIG,
        now_ms,
        clean=True,
        log_start_offset=log_start_offset,
    )


def _seen(folder: Path, log_start_offset: int) -> Iterator[tuple[object, ...]]:
    """A partition's segments, as far as two cleaners at different times must agree.

    What DeleteRecords has taken away nobody reads, and a segment that has nothing else goes with the next retention.
    Apache Kafka's cleaner does not look up which transactions before the start of the log were aborted; ours does.
    """
    for path in sorted(folder.iterdir()):
        base = base_offset(path.name, LOG)
        if base is not None:
            content = path.read_bytes()
            batches = []
            for at, header in iter_headers(content, strict=True):
                if header.last_offset < log_start_offset:
                    continue
                has_horizon = header.delete_horizon_ms is not None
                plain = header._replace(length=0, crc=0)
                plain = plain._replace(base_timestamp_ms=0) if has_horizon else plain
                batches.append((plain, decode_batch(content, at)))
            index = path.with_suffix(TXN_INDEX)
            entries = _ABORTED.iter_unpack(index.read_bytes() if index.exists() else b"")
            aborts = [each for each in entries if each[_LAST_OFFSET] >= log_start_offset]
            if batches or aborts or base >= log_start_offset:
                yield base, batches, aborts


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.suffix == LOG)


def _await_cleaned(kafka: ApacheKafka, wanted: dict[TopicPartition, int]) -> None:
    path, deadline = kafka.data_dir / CLEANER_OFFSET_CHECKPOINT, time.monotonic() + _WAIT_S
    cleaned: dict[TopicPartition, int] = {}
    while any(cleaned.get(tp, -1) < offset for tp, offset in wanted.items()):
        assert time.monotonic() < deadline, {tp: (cleaned.get(tp), wanted[tp]) for tp in wanted}
        kafka.tick()
        with suppress(OSError, CorruptDataError):  # it is empty at first
            cleaned = decode_offsets(path.read_bytes())
    assert {tp: cleaned[tp] for tp in wanted} == wanted


@pytest.mark.parametrize("partitions", [25, pytest.param(500, marks=pytest.mark.slow)])
def test_both_cleaners_leave_the_same_records_at_the_same_offsets(tmp_path: Path, partitions: int) -> None:
    kafka = ApacheKafka(tmp_path / "kafka", _BROKER)
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(_TOPIC, partitions, 1, config=_SETTINGS)])[_TOPIC].result(60)
    histories = [_History(seed, deletes=True) for seed in range(partitions)]
    ours = tmp_path / "ours"
    wanted: dict[TopicPartition, int] = {}
    untouched: set[tuple[int, int]] = set()
    cleaned_before: dict[int, int | None] = {}
    written: dict[int, int] = {}
    for round_number in range(2):
        now_ms = int(time.time() * 1000)
        for number, history in enumerate(histories):
            theirs, own = kafka.data_dir / f"{_TOPIC}-{number}", ours / f"{_TOPIC}-{number}"
            if round_number == 0:
                shutil.copytree(theirs, own)
            begins_at = history.log_start_offset
            copy, log = _open(theirs, number, now_ms, begins_at), _open(own, number, now_ms, begins_at)
            history.write_to((copy, log), now_ms, latest_epoch(copy))
            copy.close(sync=False)
            log.close(sync=False)
            written[number] = _size(own)
            log = _open(
                own, number, now_ms, history.log_start_offset
            )  # Apache Kafka knows of a producer what a snapshot knows
            log.compaction.cleaned_offset = cleaned_before.get(number)
            if (passes := clean_all(log, int(time.time() * 1000))) == 1:
                wanted[log.tp] = log.compaction.cleaned_offset or 0
            else:  # all records but those of the active segment were deleted
                assert passes == 0
                untouched.add((round_number, number))
                wanted.pop(log.tp, None)
                assert [path.name for path in own.glob(f"*{LOG}")] == [file_name(log.log_start_offset, LOG)]
            cleaned_before[number] = log.compaction.cleaned_offset
            log.close(sync=False)
        starts = {TopicPartition(_TOPIC, number): each.log_start_offset for number, each in enumerate(histories)}
        (kafka.data_dir / LOG_START_OFFSET_CHECKPOINT).write_bytes(encode_offsets(starts))
        with kafka:
            _await_cleaned(kafka, wanted)
        for number in range(partitions):
            theirs, own = kafka.data_dir / f"{_TOPIC}-{number}", ours / f"{_TOPIC}-{number}"
            begins_at = histories[number].log_start_offset
            assert list(_seen(own, begins_at)) == list(_seen(theirs, begins_at)), (round_number, number)
        left = sum(_size(ours / f"{_TOPIC}-{number}") for number in range(partitions))
        assert left < sum(written.values()) * 0.6
    assert len(untouched) < partitions / 10


def _records(log: PartitionLog) -> dict[int, Record]:
    return {each.offset: each for each in records(log)}


def _unfinished(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.iterdir() if path.suffix in (CLEANED, SWAP)))


def test_apache_kafka_finishes_a_pass_in_which_we_were_killed(tmp_path: Path) -> None:
    """Each partition is a directory as kill -9 leaves it at one call of a pass."""
    count, now_ms = 120, int(time.time() * 1000)
    kafka = ApacheKafka(tmp_path / "kafka", {"log.cleaner.enable": "false"})
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(_TOPIC, count, 1, config=_SETTINGS)])[_TOPIC].result(60)
        while not all((kafka.data_dir / f"{_TOPIC}-{n}" / PARTITION_METADATA).exists() for n in range(count)):
            kafka.tick()
        kafka.kill9()
    own = tmp_path / "ours" / f"{_TOPIC}-0"
    shutil.copytree(kafka.data_dir / own.name, own)
    log = _open(own, 0, now_ms)
    history = _History(1, deletes=False)
    for _ in range(3):
        history.write_to((log,), now_ms, 0)
    before = _records(log)
    points = CrashPoints(own.parent, tmp_path / "points", None)
    with points.taken():
        clean_all(log, now_ms)
    after = _records(log)
    log.close(sync=False)
    left = {_unfinished(point.data_dir / own.name): point for point in points.points}
    assert 10 < len(left) <= count
    for number, point in enumerate(left.values()):
        folder = kafka.data_dir / f"{_TOPIC}-{number}"
        for path in folder.iterdir():
            if path.name != PARTITION_METADATA:
                path.unlink()
        for path in (point.data_dir / own.name).iterdir():
            if path.name != PARTITION_METADATA:
                shutil.copy(path, folder)
    with kafka:
        pass
    for number, (names, point) in enumerate(left.items()):
        folder = kafka.data_dir / f"{_TOPIC}-{number}"
        assert _unfinished(folder) == (), names
        log = _open(folder, number, now_ms)
        assert after.items() <= _records(log).items() <= before.items(), (point.call, names)
        assert log.end_offset == log.last_stable_offset
        log.close(sync=False)

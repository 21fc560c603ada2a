"""Apache Kafka's DumpLogSegments reads every file of a partition that our log wrote (issue 3, room log)."""

import random
from pathlib import Path

import pytest

from ottla.broker.storage import DirectoryStorage
from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.log.snapshot import decode_snapshot
from ottla.wire.errors import ErrorCode
from tests.interop.apache import run_tool
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import TP, append, append_in_transaction, end

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_jars")]

_CONFIG = LogConfig(segment_bytes=60_000, index_interval_bytes=1_000)


def _fill(log: PartitionLog) -> None:
    chance = random.Random(3)
    sequences: dict[int, int] = {}
    for number in range(1_200):
        producer_id = number % 5
        sequence = sequences.get(producer_id, 0)
        count = chance.randint(1, 4)
        match producer_id:
            case 0:
                times = [NOW_MS + number * 10 + chance.randint(-50, 50) for _ in range(count)]
                done = append(log, batch(timestamps_ms=times, value=b"line %d" % number, key=None))
            case 1:
                done = append(log, idempotent(sequence, count, producer_id=1, size=chance.randint(1, 200)))
            case _:
                done = append_in_transaction(log, sequence, count, producer_id=producer_id)
        assert done.error is ErrorCode.NONE, done.message
        sequences[producer_id] = sequence + count
        if number % 37 == 0 and producer_id > 1:
            end(log, commit=chance.random() < 0.5, producer_id=producer_id, coordinator_epoch=2)


def _dump(files: list[Path], *options: str) -> str:
    done = run_tool("DumpLogSegments", *options, "--files", ",".join(map(str, files)))
    # Of every segment but the first the tool says that its first offset does not follow -1.
    expected = {f"Non-consecutive offsets in {file}" for file in files}
    expected |= {f"  -1 is followed by {int(file.name[:20])}" for file in files}
    assert [line for line in done.stderr.splitlines() if line not in expected] == []
    for word in ("invalid bytes", "Mismatch", "not found", "corrupt", "isvalid: false"):
        assert word not in done.stdout
    return done.stdout


@pytest.fixture(params=["stopped", "killed"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A partition's directory with every kind of file, after a clean stop, or after kill -9 and recovery."""
    path = tmp_path / str(TP)
    log = PartitionLog.open(TP, DirectoryStorage(path), _CONFIG, NOW_MS, topic_id=bytes(range(16)))
    _fill(log)
    if request.param == "killed":
        torn = sorted(path.glob("*.log"))[-1]
        torn.write_bytes(torn.read_bytes() + batch()[:50])
        log = PartitionLog.open(TP, DirectoryStorage(path), _CONFIG, NOW_MS)
        assert log.findings.truncated_bytes == 50
    log.close(sync=False)
    return path


def test_apache_kafka_dumps_every_file_without_complaint(directory: Path) -> None:
    files = {suffix: sorted(directory.glob(f"*{suffix}")) for suffix in (".log", ".index", ".timeindex", ".txnindex")}
    assert all(len(each) > 1 for each in files.values())
    logs = _dump(files[".log"], "--deep-iteration", "--print-data-log")
    assert "line 0" in logs
    assert "endTxnMarker: COMMIT coordinatorEpoch: 2" in logs
    assert "endTxnMarker: ABORT coordinatorEpoch: 2" in logs
    assert logs.count("baseOffset:") == sum(len(list(_batches(path))) for path in files[".log"])
    offsets = _dump(files[".index"])
    assert offsets.count("offset: ") == sum(path.stat().st_size for path in files[".index"]) // 8
    times = _dump(files[".timeindex"])
    assert times.count("timestamp: ") == sum(path.stat().st_size for path in files[".timeindex"]) // 12
    aborted = _dump(files[".txnindex"])
    assert aborted.count("producerId: ") == sum(path.stat().st_size for path in files[".txnindex"]) // 34


def _batches(path: Path) -> list[int]:
    data, position, found = path.read_bytes(), 0, []
    while position < len(data):
        found.append(position)
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found


def test_the_indexes_pass_apache_kafkas_sanity_check(directory: Path) -> None:
    files = [*directory.glob("*.index"), *directory.glob("*.timeindex")]
    checked = _dump(files, "--index-sanity-check")
    assert checked.count("passed sanity check.") + checked.count("is empty.") == len(files)


def test_producer_snapshots_hold_what_our_log_holds(directory: Path) -> None:
    newest = sorted(directory.glob("*.snapshot"))[-1]
    dumped = _dump([newest])
    log = PartitionLog.open(TP, DirectoryStorage(directory), _CONFIG, NOW_MS, clean=True)
    assert int(newest.name[:20]) == log.end_offset
    assert decode_snapshot(newest.read_bytes(), log.end_offset).history_is_known  # Apache Kafka passes over these
    for producer in log.producers.active():
        (line,) = (line for line in dumped.splitlines() if line.startswith(f"producerId: {producer.producer_id} "))
        assert f"coordinatorEpoch: {producer.coordinator_epoch} " in line
        assert f"lastSequence: {producer.last_sequence} " in line
        opened = "OptionalLong.empty"
        if producer.transaction_start_offset >= 0:
            opened = f"OptionalLong[{producer.transaction_start_offset}]"
        assert f"currentTxnFirstOffset: {opened} " in line

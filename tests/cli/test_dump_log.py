"""`ottla dump-log` believes no index: each entry is checked against the segment beside it."""

from __future__ import annotations

import json
from pathlib import Path
from struct import Struct

import pytest

from ottla.broker.storage import DirectoryStorage
from ottla.cli.main import main
from ottla.log.partition import PartitionLog
from ottla.log.producers import ProducerState
from ottla.log.snapshot import encode_snapshot
from ottla.wire.batch import join_batch, parse_header
from ottla.wire.markers import control_batch
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import SMALL, TP

_OFFSET_ENTRY, _TIME_ENTRY = Struct(">ii"), Struct(">qi")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A partition of two segments; timestamps go up and down, and are younger from batch to batch on the whole."""
    path = tmp_path / str(TP)
    log = PartitionLog.open(TP, DirectoryStorage(path), SMALL, NOW_MS)
    for number in range(8):
        if number == 5:
            log.roll(NOW_MS)
        timestamp_ms = NOW_MS + (number if number % 3 else -number)
        assert log.append(batch(timestamps_ms=[timestamp_ms, NOW_MS - 9]), now_ms=NOW_MS).base_offset == 2 * number
    log.close(sync=False)
    return path


@pytest.fixture
def times(directory: Path) -> Path:
    """The time index of the first segment."""
    path = min(directory.glob("*.timeindex"))
    assert len(list(_TIME_ENTRY.iter_unpack(path.read_bytes()))) > 2
    return path


@pytest.fixture
def offsets(directory: Path) -> Path:
    """The offset index of the first segment."""
    path = min(directory.glob("*.index"))
    assert len(list(_OFFSET_ENTRY.iter_unpack(path.read_bytes()))) > 2
    return path


def _refused(path: Path, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["dump-log", str(path)]) == 1
    said = capfd.readouterr().err
    assert str(path) in said
    assert why in said
    assert "Traceback" not in said


def _write(path: Path, entry: Struct, slot: int, *numbers: int) -> None:
    content = bytearray(path.read_bytes())
    entry.pack_into(content, slot * entry.size, *numbers)
    path.write_bytes(content)


def test_sound_indexes_pass(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["dump-log", "--json", str(directory)]) == 0
    printed = capfd.readouterr().out.splitlines()
    entries = sum(path.stat().st_size // 12 for path in directory.glob("*.timeindex"))
    assert sum(".timeindex" in line for line in printed) == entries


def test_a_marker_that_apache_kafka_has_compacted_away_is_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    marker = control_batch(commit=True, producer_id=7, producer_epoch=1, coordinator_epoch=0, timestamp_ms=NOW_MS)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(marker + join_batch(parse_header(marker)._replace(base_offset=1, record_count=0), b""))
    assert main(["dump-log", "--json", str(path)]) == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [row["marker"] for row in rows] == ["commit", "compacted away"]


def test_room_that_apache_kafka_has_not_used_passes(
    times: Path, offsets: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for path, size in ((times, 12), (offsets, 8)):
        entries = path.stat().st_size // size
        path.write_bytes(path.read_bytes() + bytes(100 * size))
        assert main(["dump-log", "--json", str(path)]) == 0
        assert len(capfd.readouterr().out.splitlines()) == entries
        path.write_bytes(bytes(100 * size))
        assert main(["dump-log", "--json", str(path)]) == 0
        assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ((2**47 - 1, 2**31 - 1), "offset 2147483647 is not in the segment"),
        ((NOW_MS, -1), "offset -1 is not in the segment"),
        ((2**47 - 1, 3), "not 140737488355327"),
        ((NOW_MS - 1, 3), f"the newest timestamp up to offset 3 is {NOW_MS + 1}, not {NOW_MS - 1}"),
        ((0, 0), "the newest timestamp up to offset 0 is"),
    ],
)
def test_an_entry_of_the_time_index_that_is_wrong_is_told(
    times: Path, entry: tuple[int, int], why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    _write(times, _TIME_ENTRY, 0, *entry)
    _refused(times, why, capfd)


def test_entries_of_the_time_index_ascend(times: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = list(_TIME_ENTRY.iter_unpack(times.read_bytes()))[:2]
    _write(times, _TIME_ENTRY, 1, *first)
    _refused(times, "does not follow", capfd)
    _write(times, _TIME_ENTRY, 0, *second)
    _write(times, _TIME_ENTRY, 1, *first)
    times.with_suffix(".log").rename(times.with_suffix(".elsewhere"))  # order needs no segment
    _refused(times, "does not follow", capfd)


def test_an_index_that_ends_within_an_entry_is_told(
    times: Path, offsets: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in (times, offsets):
        path.write_bytes(path.read_bytes() + b"\1\2\3")
        _refused(path, "3 bytes at the end are no whole entry", capfd)


def test_an_entry_of_the_offset_index_that_is_wrong_is_told(offsets: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (first, position), (second, after) = list(_OFFSET_ENTRY.iter_unpack(offsets.read_bytes()))[:2]
    for entry, why in (
        ((first, position + 1), "no batch starts at position"),
        ((2**31 - 1, position), "offset 2147483647 is not in the segment"),
        ((first, after), f"offset {first} lies before position {after}"),
        ((second, position), "does not follow"),
    ):
        _write(offsets, _OFFSET_ENTRY, 0, *entry)
        _refused(offsets, why, capfd)


def test_a_producer_snapshot_is_shown_with_the_batches_that_it_knows(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    state = ProducerState()
    for sequence in range(7):
        header = parse_header(idempotent(sequence))
        state.apply_batch(header, sequence, NOW_MS, NOW_MS)
    path = tmp_path / "00000000000000000007.snapshot"
    path.write_bytes(encode_snapshot(state.producers.values()))
    assert main(["dump-log", "--json", str(path)]) == 0
    row = json.loads(capfd.readouterr().out)
    assert (row["producer_id"], row["last_sequence"], row["known_batches"]) == (7, 6, "2-2,3-3,4-4,5-5,6-6")

"""`ottla storage`: what it prints, when it refuses, and what it leaves as it is."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.base.errors import StorageError
from ottla.broker.directory.reading import ReadOnlyDisk
from ottla.broker.storage import DirectoryDisk
from ottla.cli.main import main
from ottla.testing import AsyncBroker
from tests.broker.records_io import produce
from tests.broker.wire_client import WireClient, batch
from tests.log.cleaner.passes import clean_all, put
from tests.log.logs import append_in_transaction

_LOG = f"t-0/{0:020}.log"


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    """Ten records in topic `t`, and a stop in order."""
    path = tmp_path / "data"
    async with AsyncBroker(data_dir=path) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, {})
        for _ in range(10):
            await produce(client, batch(b"v"))
    return path


def _files(directory: Path) -> Mapping[str, tuple[bytes, int]]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def _flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_a_sound_directory_is_shown_and_nothing_is_changed(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = _files(directory)
    assert main(["storage", "info", str(directory)]) == 0
    shown = capfd.readouterr().out
    assert "Ottla's; cluster " in shown
    assert "node 1; metadata.version 25; stopped in order; 2 partitions" in shown
    assert main(["storage", "info", str(directory), "--json"]) == 0
    (_, partition) = json.loads(capfd.readouterr().out)["partitions"]
    assert (partition["partition"], partition["start_offset"], partition["end_offset"]) == ("t-0", 0, 10)
    assert main(["storage", "check", str(directory)]) == 0
    assert capfd.readouterr().out.endswith("Nothing is wrong.\n")
    assert main(["storage", "repair", str(directory)]) == 0
    assert _files(directory) == before


def test_bytes_that_are_no_text_in_meta_properties_are_told(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (directory / "meta.properties").write_bytes(b"\xff\xfe\0")
    (directory / "ottla-manifest").unlink()
    assert main(["storage", "check", str(directory)]) == 1
    shown = capfd.readouterr()
    assert "the broker does not start: " in shown.out
    assert "meta.properties is damaged" in shown.out
    assert shown.err == ""


async def _leave_compacted(path: Path) -> None:
    """Three compacted topics: one is clean, one is dirty, one is dirty and a transaction holds its cleaning back."""
    keep = {"cleanup.policy": "compact", "internal.segment.bytes": "100", "min.cleanable.dirty.ratio": "0"}
    async with AsyncBroker({"log.cleaner.enable": "false"}, data_dir=path) as broker:
        for name in ("clean", "dirty", "held"):
            await broker.node.topics.create(name, 1, keep)
            partition = broker.node.partitions.find(name, 0)
            assert partition is not None
            log = partition.log
            if name == "held":
                append_in_transaction(log, 0, 1, producer_id=77)
            for number in range(10):
                put(log, b"key", b"%d" % number)
            if name == "clean":
                clean_all(log, broker.node.clock.now_ms())


def test_of_a_compacted_log_it_says_how_dirty_it_is_and_what_holds_its_cleaning_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_leave_compacted(tmp_path))
    assert main(["storage", "info", str(tmp_path), "--json"]) == 0
    rows = {each["partition"]: each for each in json.loads(capfd.readouterr().out)["partitions"]}
    found = {name: (row["cleaned_offset"], row["dirty_percent"], row["dirty_bytes"]) for name, row in rows.items()}
    dirty_bytes = found["dirty-0"][2]
    assert found["__cluster_metadata-0"] == (None, None, None)
    assert found["clean-0"] == (9, 0, 0)
    assert found["dirty-0"] == (None, 100, dirty_bytes)
    assert 0 < dirty_bytes < rows["dirty-0"]["size_bytes"]
    assert found["held-0"] == (None, 0, 0)
    reasons = {name: row["cleaning_is_held_back"] for name, row in rows.items()}
    held = "a transaction of producer id 77 (epoch 0) is open since offset 0: from there on nothing is cleaned"
    assert reasons.pop("held-0").startswith(held)
    assert set(reasons.values()) == {None}
    assert main(["storage", "info", str(tmp_path)]) == 0
    assert f"held-0 is not cleaned, or not to its end: {held}" in capfd.readouterr().out
    segment = tmp_path / "dirty-0" / f"{3:020}.log"
    segment.write_bytes(segment.read_bytes()[:-5])
    assert main(["storage", "info", str(tmp_path)]) == 0
    assert "dirty-0 is not cleaned, or not to its end: the records at offsets" in capfd.readouterr().out


def test_damage_in_the_middle_is_named_with_file_position_offsets_and_cause(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    size_bytes = (directory / _LOG).stat().st_size // 10
    _flip(directory / _LOG, 4 * size_bytes + 65)
    before = _files(directory)
    assert main(["storage", "check", str(directory), "--json"]) == 1
    report = json.loads(capfd.readouterr().out)
    (found,) = report["found"]
    assert (found["kind"], found["place"], found["position"]) == ("damage", _LOG, 4 * size_bytes)
    assert (found["first_offset"], found["end_offset"], found["mended_by_repair"]) == (4, 5, False)
    assert "the batch at offset 4 has CRC" in found["text"]
    assert report["starts"]
    # Nothing can be done about it, so nothing is done, and nobody is asked.
    assert main(["storage", "repair", str(directory)]) == 1
    assert "1 cannot be mended without a copy of the files" in capfd.readouterr().out
    assert _files(directory) == before


def test_a_repair_says_what_it_would_do_and_does_it_when_it_is_told(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    index = directory / _LOG.replace(".log", ".timeindex")
    whole = index.read_bytes()
    index.unlink()
    before = _files(directory)
    assert main(["storage", "repair", "--dry-run", str(directory)]) == 1
    said = capfd.readouterr().out
    assert "made again: t-0: the indexes of 1 segment(s)" in said
    assert f"make t-0/{index.name} (12 bytes)" in said
    command = [sys.executable, "-m", "ottla", "storage", "repair", str(directory)]
    for answer in ("n\n", ""):  # or there is nobody to answer
        declined = subprocess.run(command, input=answer, capture_output=True, text=True)
        assert declined.returncode == 1
        assert "Nothing was changed." in declined.stderr
    assert _files(directory) == before
    assert main(["storage", "repair", "--yes", str(directory)]) == 0
    assert "Repaired.\nNothing is wrong.\n" in capfd.readouterr().out
    assert index.read_bytes() == whole


def test_an_index_that_fits_by_its_ends_alone_is_found_and_made_again(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A start does not look at it; whoever reads an old segment would."""
    index = directory / _LOG.replace(".log", ".timeindex")
    content = bytearray(index.read_bytes())
    content[7] += 1  # a later timestamp than any record has
    index.write_bytes(content)
    assert main(["storage", "check", str(directory)]) == 1
    assert f"t-0/{index.name}: the newest timestamp up to offset" in capfd.readouterr().out
    assert main(["storage", "repair", "--yes", "--json", str(directory)]) == 0
    assert json.loads(capfd.readouterr().out)["left"] == []
    assert main(["storage", "check", str(directory)]) == 0


async def test_a_repair_that_costs_records_says_so_before_it_asks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """After kill -9, before any checkpoint, a start cuts the log at the first batch that is not whole."""
    async with AsyncBroker(data_dir=tmp_path / "running") as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, {})
        for _ in range(10):
            await produce(client, batch(b"v"))
        shutil.copytree(tmp_path / "running", tmp_path / "left")
    log = tmp_path / "left" / _LOG
    size_bytes = log.stat().st_size // 10
    _flip(log, 6 * size_bytes + 65)
    assert main(["storage", "check", str(tmp_path / "left")]) == 1
    said = capfd.readouterr().out
    assert f"cut: {_LOG}: cut {4 * size_bytes} bytes at position {6 * size_bytes}" in said
    assert "the records at offsets 6–9 are gone" in said
    assert "Records are gone then: if there is a copy of these files, put it back first." in said
    assert main(["storage", "repair", "--yes", str(tmp_path / "left")]) == 0
    assert log.stat().st_size == 6 * size_bytes


def test_where_no_broker_would_start_a_repair_changes_nothing(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    metadata = directory / "__cluster_metadata-0" / f"{0:020}.log"
    _flip(metadata, 70)
    before = _files(directory)
    assert main(["storage", "repair", "--yes", str(directory)]) == 1
    said = capfd.readouterr().out
    assert f"refused: the broker does not start: {metadata} is damaged at byte 0" in said
    assert f"damage: __cluster_metadata-0/{metadata.name} at position 0" in said
    assert "The broker does not start until that is mended by hand." in said
    assert _files(directory) == before


async def test_a_directory_that_a_broker_holds_is_not_looked_at(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with AsyncBroker(data_dir=tmp_path):
        for command in (["info"], ["check"], ["repair", "--yes"]):
            assert main(["storage", *command, str(tmp_path)]) == 2
            assert "is in use by" in capfd.readouterr().err


def test_while_somebody_looks_no_broker_starts(directory: Path) -> None:
    first, second, broker = ReadOnlyDisk(directory), ReadOnlyDisk(directory), DirectoryDisk(directory)
    first.lock()
    second.lock()  # two may look
    with pytest.raises(StorageError, match="in use by another broker"):
        broker.lock()
    first.unlock()
    second.unlock()
    broker.lock()
    broker.unlock()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["check", "gone"], "there is no such directory"),
        (["check", "."], "is no data directory"),
        (["info", "gone"], "there is no such directory"),
        (["repair", ".", "--json"], "--json cannot ask"),
        (["check", "data", "-o", "node.id=x"], "node.id"),
        (["check"], "Missing argument"),
    ],
)
def test_what_cannot_be_looked_at_is_told_and_exits_with_2(
    arguments: list[str], why: str, directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(directory.parent)
    assert main(["storage", *arguments]) == 2
    said = capfd.readouterr().err
    assert why in said
    assert "Traceback" not in said
    assert not (directory.parent / "gone").exists()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_folder_in_the_place_of_a_file_is_named_and_a_repair_says_that_it_cannot_help(
    suffix: str, directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = f"t-0/{0:020}{suffix}"
    (directory / place).unlink(missing_ok=True)
    (directory / place).mkdir()
    for command in (["check"], ["repair", "--yes"], ["check"]):
        assert main(["storage", *command, str(directory)]) == 1
        said = capfd.readouterr().out
        assert "refused: the broker does not start: " in said
        assert f"in the way: {place} is a folder, and a file must have this name: move the folder away" in said
        assert "The broker does not start until that is mended by hand. A repair cannot do it." in said
    assert main(["serve", "--data-dir", str(directory), "--port", "0"]) == 1
    assert f"{place} is a folder, and a file must have this name" in capfd.readouterr().err
    (directory / place).rmdir()
    main(["storage", "repair", "--yes", str(directory)])
    assert main(["storage", "check", str(directory)]) == 0


@pytest.mark.parametrize("name", [f"{50:020}.index", f"{0:020}.txnindex", f"{10:020}.log"])
def test_a_folder_that_a_later_write_will_meet_is_named(
    name: str, directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = f"t-0/{name}"
    (directory / place).mkdir()
    assert main(["storage", "check", str(directory)]) == 1
    said = capfd.readouterr().out
    assert f"in the way: {place} is a folder" in said
    assert said.endswith("1 thing wrong: 1 has to be moved away by hand.\n")


@pytest.mark.parametrize("name", ["meta.properties", "ottla-manifest", "recovery-point-offset-checkpoint"])
def test_a_folder_in_the_place_of_one_of_the_directorys_own_files_is_named(
    name: str, directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (directory / name).unlink()
    (directory / name).mkdir()
    for command in (["check"], ["repair", "--yes"], ["info"]):
        assert main(["storage", *command, str(directory)]) == 2
        assert f"{directory / name} is a folder, and a file must have this name" in capfd.readouterr().err
    assert main(["serve", "--data-dir", str(directory), "--port", "0"]) == 1
    assert f"{directory / name} is a folder, and a file must have this name" in capfd.readouterr().err


def test_names_that_no_broker_gives_are_told_and_are_no_damage(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    aside = f"gone-3.{0:032x}-stray"
    (directory / aside).mkdir()
    (directory / "backup").mkdir()
    for name in ("foo.txt", "t-0/00000000000000000000.log.bak", "t-0/notes.txt"):
        (directory / name).write_bytes(b"x")
    (directory / "t-0" / "old").mkdir()
    for command in ("check", "info"):
        assert main(["storage", command, str(directory)]) == 0
        said = capfd.readouterr().out
        assert "note: the directory: backup/, foo.txt are no files or folders of a broker: left alone\n" in said
        assert "note: t-0: 00000000000000000000.log.bak, notes.txt, old/ are no files or folders of a broker" in said
        assert f"note: {aside} is a stray partition: gone-3 belonged to no topic that the metadata log knows" in said
    assert main(["storage", "info", "--json", str(directory)]) == 0
    assert len(json.loads(capfd.readouterr().out)["notes"]) == 3
    assert main(["storage", "repair", "--yes", str(directory)]) == 0
    assert (directory / "foo.txt").exists()


def test_a_partition_that_no_topic_has_is_told_as_a_stray(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(directory / "t-0", directory / "unknown-0")
    assert main(["storage", "check", str(directory)]) == 1
    assert "stray: unknown-0 belongs to no topic; kept as unknown-0." in capfd.readouterr().out
    (directory / "t-7").symlink_to(directory / "t-0")
    assert main(["storage", "check", str(directory)]) == 1
    assert "note: t-7 is a link, and belongs to no topic" in capfd.readouterr().out

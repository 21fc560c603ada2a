"""What is gone as a whole is told, too: the metadata log, a segment of a coordinator's log, the list of its holes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.base.errors import StorageError
from ottla.broker.runtime.directories import has_metadata
from ottla.broker.storage import DirectoryDisk
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.wire_client import WireClient

#: The smallest segments that there are, and commits of which each takes some 30 KB.
_CONFIG = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.segment.bytes": 1_048_576,
    "offset.metadata.max.bytes": 40_000,
    "log.cleaner.enable": "false",
}
_OFFSETS = "__consumer_offsets-0"
_LIST = f"{_OFFSETS}/damaged-offsets"


def _logs(directory: Path) -> list[Path]:
    return sorted((directory / _OFFSETS).glob("*.log"))


async def _filled(directory: Path) -> None:
    """A group that has committed often enough for four segments, and a clean stop."""
    async with AsyncBroker(_CONFIG, data_dir=directory) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, {})
        for offset in range(130):
            part = OffsetCommitRequestPartition(0, offset, committed_metadata="m" * 30_000)
            topics = (OffsetCommitRequestTopic(name="t", partitions=(part,)),)
            request = OffsetCommitRequest("g", -1, topics=topics)
            while (await client.ask(ApiKey.OFFSET_COMMIT, request, 9)).topics[0].partitions[0].error_code:
                pass  # the topic of the groups is made, and loaded
    assert len(_logs(directory)) > 3


async def _committed(directory: Path) -> ErrorCode:
    """What a group is answered after the start."""
    async with AsyncBroker(_CONFIG, data_dir=directory) as broker, WireClient(broker) as client:
        request = OffsetFetchRequest((OffsetFetchRequestGroup("g", topics=None),))
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        while code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            code = ErrorCode((await client.ask(ApiKey.OFFSET_FETCH, request, 8)).groups[0].error_code)
        return code


def _files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*"))


def _without(directory: Path, *folders: str) -> None:
    for folder in folders:
        shutil.rmtree(directory / folder)


def _without_folders(directory: Path) -> None:
    _without(directory, *(each.name for each in directory.iterdir() if each.is_dir()))


def _emptied(directory: Path) -> None:
    for file in (directory / "__cluster_metadata-0").iterdir():
        file.unlink()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_without_folders, r"recovery-point-offset-checkpoint names .*put __cluster_metadata-0 back from a copy"),
        (lambda directory: _without(directory, "__cluster_metadata-0"), "holds a partition"),
        (_emptied, "holds a partition"),
    ],
)
async def test_a_metadata_log_that_is_gone_stops_the_start_where_there_are_no_records_either(
    damage: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    async with AsyncBroker(data_dir=tmp_path) as broker:
        await broker.node.topics.create("t", 2, {"retention.ms": "12345"})
    damage(tmp_path)
    before = _files(tmp_path)
    for _ in range(2):
        with pytest.raises(StorageError, match=said):
            async with AsyncBroker(data_dir=tmp_path):
                pass
        assert _files(tmp_path) == before


@pytest.mark.parametrize("name", [f"{7:020}.log", f"{7:020}-{1:010}.checkpoint"])
def test_a_metadata_log_that_goes_on_behind_a_snapshot_is_there(name: str, tmp_path: Path) -> None:
    """As Apache Kafka leaves it when it has just begun a new file. What it holds is looked at later."""
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    (folder / f"{0:020}.log").touch()
    disk = DirectoryDisk(tmp_path)
    assert not has_metadata(disk)
    (folder / name).touch()
    assert has_metadata(disk)


async def test_a_clean_stop_is_a_trace_of_a_metadata_log(tmp_path: Path) -> None:
    async with AsyncBroker(data_dir=tmp_path):
        pass
    _without_folders(tmp_path)
    with pytest.raises(StorageError, match="stopped in order"):
        async with AsyncBroker(data_dir=tmp_path):
            pass


async def test_where_nothing_shows_what_was_there_the_start_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncBroker(data_dir=tmp_path / "running"):
        shutil.copytree(tmp_path / "running", tmp_path / "left")
    _without_folders(tmp_path / "left")
    async with AsyncBroker(data_dir=tmp_path / "left"):
        pass
    assert "the first start was interrupted, or all is gone" in caplog.text


@pytest.mark.parametrize("suffixes", [[".log"], [".log", ".index", ".timeindex", ".snapshot"]], ids=["log", "all"])
async def test_a_segment_of_a_compacted_log_that_is_gone_is_a_hole(
    suffixes: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _filled(tmp_path)
    victim = _logs(tmp_path)[2]
    for suffix in suffixes:
        victim.with_suffix(suffix).unlink(missing_ok=True)
    for _ in range(2):
        assert await _committed(tmp_path) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert f"{_OFFSETS}: the records at offsets" in caplog.text
        caplog.clear()


@pytest.mark.parametrize("how", ["gone", "says none"])
async def test_a_list_of_holes_that_is_gone_hides_none(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _filled(tmp_path)
    _logs(tmp_path)[2].unlink()
    assert await _committed(tmp_path) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    if how == "gone":
        (tmp_path / _LIST).unlink()
    else:
        (tmp_path / _LIST).write_bytes(b"0\n0\n")
    caplog.clear()
    assert await _committed(tmp_path) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "damaged-offsets does not name the offsets" in caplog.text
    caplog.clear()
    assert await _committed(tmp_path) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "does not name" not in caplog.text


async def test_a_list_of_holes_that_no_device_took_hides_none(tmp_path: Path) -> None:
    await _filled(tmp_path)
    _logs(tmp_path)[2].unlink()
    (tmp_path / f"{_LIST}.tmp").mkdir()  # what is written goes there first
    assert await _committed(tmp_path) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not (tmp_path / _LIST).exists()
    (tmp_path / f"{_LIST}.tmp").rmdir()
    assert await _committed(tmp_path) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_manifest_that_is_none_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await _filled(tmp_path)
    (tmp_path / "ottla-manifest").write_bytes(b"0\n")  # the checksum of nothing
    assert await _committed(tmp_path) is ErrorCode.NONE
    assert "ottla-manifest is damaged (it is no manifest" in caplog.text

"""What is on the device when: the names of files and directories, which a loss of power takes unless they are synced.

What a log makes of the names that are left is tested in memory (`tests/log/test_recovery.py`). Here the order of the
system's calls is watched, because a test cannot cut the power.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

import pytest

from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.broker.metadata.end_mark import EndMark
from ottla.broker.metadata.properties import load_or_create
from ottla.broker.runtime.checkpoints import Checkpoints, PartitionOffsets
from ottla.broker.storage import DirectoryDisk, DirectoryStorage
from ottla.broker.told import Told
from ottla.log.checkpoint import CLEANER_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from ottla.log.memory import MemoryStorage
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.records_io import produce
from tests.broker.wire_client import WireClient
from tests.broker.wire_client import batch as client_batch
from tests.log.batches import NOW_MS, batch
from tests.log.logs import append, open_log

_OPENED: list[str] = []
#: Called once, when a directory is about to be synced.
_MEANWHILE: list[Callable[[], None]] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    """Python tells of every `os.open`; of a directory it is only opened to be synced."""
    if event == "open" and len(arguments) == 3 and isinstance(arguments[2], int) and arguments[2] & os.O_DIRECTORY:
        _OPENED.append(str(arguments[0]))
        if _MEANWHILE:
            _MEANWHILE.pop()()


sys.addaudithook(_note)


@pytest.fixture
def synced() -> list[str]:
    """The directories that were synced, in order."""
    _OPENED.clear()
    return _OPENED


def test_a_flush_syncs_the_directory_only_when_a_name_has_changed(tmp_path: Path, synced: list[str]) -> None:
    directory = tmp_path / "orders-0"
    log = open_log(DirectoryStorage(directory))
    append(log, batch())
    assert synced == []
    log.flush()
    assert synced == [str(directory), str(tmp_path)]
    synced.clear()
    log.flush()
    assert synced == []
    append(log, batch())
    log.roll(NOW_MS)
    append(log, batch())
    assert synced == []
    log.flush()
    assert synced == [str(directory)]


def test_a_name_that_a_killed_process_made_is_synced_by_the_next(tmp_path: Path, synced: list[str]) -> None:
    append(open_log(DirectoryStorage(tmp_path / "orders-0")), batch())
    found = open_log(DirectoryStorage(tmp_path / "orders-0"))
    found.flush()
    assert synced == [str(tmp_path / "orders-0"), str(tmp_path)]


async def test_a_topics_directories_are_on_the_device_before_the_metadata_says_so(synced: list[str]) -> None:
    sync = os.fdatasync

    def noted(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    async with AsyncBroker() as broker:
        synced.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fdatasync", noted)
            await broker.node.topics.create("t", 3, {})
        metadata = str(broker.data_dir / "__cluster_metadata-0")
        (made,) = [at for at, path in enumerate(synced) if path == str(broker.data_dir)]
        assert made < min(at for at, path in enumerate(synced) if path.startswith(metadata))


def test_the_mark_of_a_clean_stop_does_not_come_back() -> None:
    storage = MemoryStorage()
    Checkpoints(storage).mark_clean()
    assert Checkpoints(storage.after_power_loss(lambda name, synced_bytes, size_bytes: synced_bytes)).clean
    assert Checkpoints(storage).clean
    left = storage.after_power_loss(lambda name, synced_bytes, size_bytes: synced_bytes)
    assert not Checkpoints(left).clean


def test_the_end_mark_of_a_stop_is_on_the_device_though_it_was_written_before() -> None:
    storage = MemoryStorage()
    mark = EndMark(storage)
    mark.write(7)
    mark.write(7, sync=True)
    left = storage.after_power_loss(lambda name, synced_bytes, size_bytes: synced_bytes)
    assert EndMark(left).read() == 7


async def test_a_deleted_topic_is_renamed_on_the_device_before_its_deletion_is_answered(synced: list[str]) -> None:
    """Else a loss of power could leave its records for good: as those of no topic, because its id is gone."""
    async with AsyncBroker() as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, {})
        synced.clear()
        _MEANWHILE.append(lambda: synced.extend(path.name for path in broker.data_dir.glob("t-0")))
        request = DeleteTopicsRequest((DeleteTopicState("t"),), timeout_ms=1_000)
        answer = await client.ask(ApiKey.DELETE_TOPICS, request)
        assert answer.responses[0].error_code == ErrorCode.NONE
        assert str(broker.data_dir) in synced
        assert "t-0" not in synced


async def test_deleted_records_stay_deleted_after_a_loss_of_power(synced: list[str]) -> None:
    async with AsyncBroker() as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, {})
        await produce(client, client_batch(b"x", b"y"))
        synced.clear()
        topics = (DeleteRecordsTopic("t", (DeleteRecordsPartition(0, 1),)),)
        answer = await client.ask(ApiKey.DELETE_RECORDS, DeleteRecordsRequest(topics, 1_000))
        assert answer.topics[0].partitions[0].low_watermark == 1
        assert str(broker.data_dir) in synced


def test_the_identity_of_a_new_data_directory_is_on_the_device(tmp_path: Path, synced: list[str]) -> None:
    data_dir = tmp_path / "data"
    load_or_create(DirectoryDisk(data_dir), Random(1), node_id=1, cluster_id=None)
    assert synced == [str(data_dir), str(tmp_path)]


async def test_a_new_data_directory_is_on_the_device_with_all_that_lead_to_it(
    tmp_path: Path, synced: list[str]
) -> None:
    async with AsyncBroker(data_dir=tmp_path / "a" / "b"):
        assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")} <= set(synced)


def test_checkpoints_name_what_is_planned_and_not_written_yet() -> None:
    storage, tp = MemoryStorage(), TopicPartition("orders", 0)
    checkpoints = Checkpoints(storage)
    waiting = checkpoints.plan([PartitionOffsets(tp, 5, 5, 5)])
    assert checkpoints.names(tp)
    checkpoints.write(checkpoints.plan([]))
    checkpoints.write(waiting)  # too late
    assert not checkpoints.names(tp)
    assert Checkpoints(storage.after_kill()).recovery_points == {}


def test_a_checkpoint_that_was_begun_earlier_is_not_written_over_a_later_one() -> None:
    storage, gone, there = MemoryStorage(), TopicPartition("gone", 0), TopicPartition("there", 0)
    checkpoints = Checkpoints(storage)
    early = checkpoints.draft()
    early.add(PartitionOffsets(gone, 5, 5, 5))
    assert checkpoints.names(gone), "it is only being made, but it may be written"
    late = checkpoints.draft()  # `gone` is deleted, so a new partition with its name can be made
    late.add(PartitionOffsets(there, 7, 0, 9))
    checkpoints.write(late.plan())
    assert not checkpoints.names(gone)
    early.add(PartitionOffsets(there, 6, 0, 6))
    checkpoints.write(early.plan())  # a newer one says all of it
    assert not checkpoints.names(gone)
    assert Checkpoints(storage.after_kill()).recovery_points == {there: 7}


def test_a_recovery_point_that_a_deletion_has_moved_is_not_written_without_the_log_start() -> None:
    """Alone it would say that records are on the device which nobody has brought there, and nobody wants any more."""
    tp = TopicPartition("orders", 0)
    for step in range(8):
        storage = MemoryStorage()
        checkpoints = Checkpoints(storage)
        checkpoints.write(checkpoints.plan([PartitionOffsets(tp, 5, 5, 5)]))
        calls = count()
        storage.refuses = lambda action, name, calls=calls, step=step: action == "write" and next(calls) >= step
        with suppress(StorageError):
            checkpoints.write(checkpoints.plan([PartitionOffsets(tp, 9, 9, 9)]))
        left = Checkpoints(storage.after_kill())
        assert left.unusable == set()
        assert left.recovery_points[tp] <= left.log_start_offsets[tp]


@pytest.mark.parametrize("name", [RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT])
def test_a_file_that_is_gone_after_the_first_checkpoint_is_missed(name: str) -> None:
    """Before it there was none: once all are written, that is no excuse any more, also after kill -9."""
    storage = MemoryStorage()
    checkpoints = Checkpoints(storage)
    checkpoints.write(checkpoints.plan([PartitionOffsets(TopicPartition("orders", 0), 5, 5, 5)]))
    left, told = storage.after_kill(), list[Told]()
    left.delete(name)
    assert name in Checkpoints(left, tell=told.append).unusable
    assert [each.place for each in told] == [name]


@pytest.mark.parametrize("name", [RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT])
def test_a_file_that_is_gone_together_with_the_manifest_is_missed(name: str) -> None:
    """After kill -9 deleted records came back: only the manifest was missed."""
    storage = MemoryStorage()
    checkpoints = Checkpoints(storage)
    checkpoints.write(checkpoints.plan([PartitionOffsets(TopicPartition("orders", 0), 5, 5, 5)]))
    left, told = storage.after_kill(), list[Told]()
    left.delete(name)
    left.delete("ottla-manifest")
    assert name in Checkpoints(left, is_used=True, tell=told.append).unusable
    assert [each.place for each in told] == ["ottla-manifest", name]


def test_checkpoints_name_what_was_written_in_part() -> None:
    storage, tp = MemoryStorage(), TopicPartition("orders", 0)
    checkpoints = Checkpoints(storage)
    storage.refuses = lambda action, name: action == "write" and name.startswith("recovery-point")
    with pytest.raises(StorageError):
        checkpoints.write(checkpoints.plan([PartitionOffsets(tp, 5, 5, 5)]))
    assert Checkpoints(storage.after_kill()).log_start_offsets == {tp: 5}
    storage.refuses = None
    assert checkpoints.names(tp)
    checkpoints.write(checkpoints.plan([]))
    assert not checkpoints.names(tp)


def test_a_checkpoint_is_not_done_when_a_newer_one_has_failed() -> None:
    """DeleteRecords would answer for a log start that is in no file."""
    storage, tp = MemoryStorage(), TopicPartition("orders", 0)
    checkpoints = Checkpoints(storage)
    older = checkpoints.plan([PartitionOffsets(tp, 5, 5, 5)])
    newer = checkpoints.plan([PartitionOffsets(tp, 5, 5, 5)])
    storage.refuses = lambda action, name: action == "write"
    with pytest.raises(StorageError):
        checkpoints.write(newer)
    storage.refuses = None
    with pytest.raises(StorageError, match="newer checkpoint"):
        checkpoints.write(older)
    checkpoints.write(checkpoints.plan([PartitionOffsets(tp, 5, 5, 5)]))
    checkpoints.write(older)


def test_names_that_one_thread_is_syncing_are_not_synced_yet_for_another(tmp_path: Path, synced: list[str]) -> None:
    storage = DirectoryStorage(tmp_path / "orders-0")
    storage.sync_names()
    storage.open("a", create=True).close()
    synced.clear()
    _MEANWHILE.append(storage.sync_names)  # what retention's thread syncs, a flush needs too
    storage.sync_names()
    assert synced == [str(tmp_path / "orders-0")] * 2
    storage.sync_names()
    assert len(synced) == 2


async def test_a_folder_that_an_attempt_has_left_is_empty_on_the_device_before_it_is_used(
    broker: AsyncBroker, client: WireClient, synced: list[str]
) -> None:
    """Else the id of a topic that was never made is there again after a loss of power, and the broker cannot start."""
    (broker.data_dir / "left-1").mkdir()
    synced.clear()
    topic = CreatableTopic("left", 2, 1)
    answer = await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest((topic,)))
    assert answer.topics[0].error_code == ErrorCode.NONE
    folders = [Path(each).name for each in synced]
    assert "left-1" in folders
    assert "left-0" not in folders, "a new folder has no names that could come back"
    assert folders.index("left-1") < len(folders) - 1

"""No start is silent about what it found: files damaged or gone, after a clean stop and after kill -9."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.log.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    decode_offsets,
)
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.batch import iter_headers
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.records_io import fetch, produce
from tests.broker.wire_client import WireClient, batch
from tests.log.logs import append_in_transaction, committed_offsets, end

_ONE = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
_COMMIT = OffsetCommitRequest(
    "g", -1, topics=(OffsetCommitRequestTopic(name="t", partitions=(OffsetCommitRequestPartition(0, 5),)),)
)
_LOG = f"{0:020}.log"


@asynccontextmanager
async def _filled(directory: Path) -> AsyncIterator[None]:
    """A broker with ten records in topic `t`, offsets of a group, and a producer with a transactional id."""
    async with AsyncBroker(_ONE, data_dir=directory) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, {})
        for _ in range(10):
            await produce(client, batch(b"v"))
        while (await client.ask(ApiKey.OFFSET_COMMIT, _COMMIT, 9)).topics[0].partitions[0].error_code:
            pass  # the topic of the groups is made, and loaded
        while (await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000, -1, -1), 4)).error_code:
            pass  # so is that of transactions
        yield


async def _delete(client: WireClient, offset: int) -> None:
    topics = (DeleteRecordsTopic("t", (DeleteRecordsPartition(0, offset),)),)
    answer = await client.ask(ApiKey.DELETE_RECORDS, DeleteRecordsRequest(topics, 1_000))
    assert answer.topics[0].partitions[0].low_watermark == offset


async def _stopped(directory: Path) -> None:
    """After a clean stop."""
    async with _filled(directory):
        pass
    async with AsyncBroker(_ONE, data_dir=directory) as broker, WireClient(broker) as client:
        await _delete(client, 3)


async def _killed(directory: Path) -> None:
    """After kill -9, before the first checkpoint."""
    async with _filled(directory / "running"):
        shutil.copytree(directory / "running", directory / "left")


async def _check_start(directory: Path, start: int) -> None:
    """The first record that can be read is the one at `start`; all behind it can be read too."""
    async with AsyncBroker(_ONE, data_dir=directory) as broker, WireClient(broker) as client:
        assert (await fetch(client, start - 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        answer = await fetch(client, start)
        assert (answer.error_code, len(answer.records)) == (0, (10 - start) * len(batch(b"v")))


_DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-4]),
    "garbage": lambda path: path.write_bytes(b"\xff" * 20),
    "higher": lambda path: path.write_text(path.read_text().replace("t 0 3", "t 0 9")),
    "lower": lambda path: path.write_text(path.read_text().replace("t 0 3", "t 0 1")),
    "beyond": lambda path: path.write_text(path.read_text().replace("t 0 3", "t 0 99")),
}


@pytest.mark.parametrize("how", _DAMAGE)
async def test_a_damaged_checkpoint_of_starts_brings_nothing_back_and_drops_nothing(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _stopped(tmp_path)
    assert "\nt 0 3\n" in (tmp_path / LOG_START_OFFSET_CHECKPOINT).read_text()
    _DAMAGE[how](tmp_path / LOG_START_OFFSET_CHECKPOINT)
    await _check_start(tmp_path, 3)
    assert f"{LOG_START_OFFSET_CHECKPOINT} is " in caplog.text
    caplog.clear()
    await _check_start(tmp_path, 3)
    assert "checkpoint" not in caplog.text, "it was written again"


async def test_a_damaged_checkpoint_of_starts_is_mended_after_kill_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _stopped(tmp_path / "running")
    async with AsyncBroker(_ONE, data_dir=tmp_path / "running"):
        shutil.copytree(tmp_path / "running", tmp_path / "left")
    (tmp_path / "left" / LOG_START_OFFSET_CHECKPOINT).unlink()
    await _check_start(tmp_path / "left", 3)
    assert f"{LOG_START_OFFSET_CHECKPOINT} is gone" in caplog.text


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("how", ["higher", "lower", "beyond"])
async def test_another_start_is_not_believed_where_the_manifest_is_gone_too(
    how: str, is_clean: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running, left = tmp_path / "running", tmp_path / "left"
    await _stopped(running)
    if not is_clean:
        async with AsyncBroker(_ONE, data_dir=running):
            shutil.copytree(running, left)
    directory = running if is_clean else left
    _DAMAGE[how](directory / LOG_START_OFFSET_CHECKPOINT)
    (directory / "ottla-manifest").unlink()
    await _check_start(directory, 3)
    assert f"t-0: {LOG_START_OFFSET_CHECKPOINT} says that the log begins at offset " in caplog.text
    caplog.clear()
    await _check_start(directory, 3)
    assert "checkpoint" not in caplog.text, "it was written again"


@pytest.mark.parametrize("how", ["empty", "garbage"])
async def test_a_mark_of_a_clean_stop_that_no_broker_leaves_is_not_believed(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _stopped(tmp_path)
    _DAMAGE[how](tmp_path / CLEAN_SHUTDOWN_MARKER)
    await _check_start(tmp_path, 3)
    assert (f"{CLEAN_SHUTDOWN_MARKER} is damaged" in caplog.text) is (how == "garbage"), "older brokers leave it empty"


async def test_a_start_without_the_mark_of_a_clean_stop_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "ottla")  # as by default
    await _stopped(tmp_path)
    assert CLEAN_SHUTDOWN_MARKER not in caplog.text, "the directory was new, and then stopped in order"
    (tmp_path / CLEAN_SHUTDOWN_MARKER).unlink()
    await _check_start(tmp_path, 3)
    assert f"there is no {CLEAN_SHUTDOWN_MARKER}: the last broker did not stop in order" in caplog.text


async def test_a_start_that_nothing_knows_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await _stopped(tmp_path)
    (tmp_path / LOG_START_OFFSET_CHECKPOINT).unlink()
    (tmp_path / "t-0" / "leader-epoch-checkpoint").unlink()
    async with AsyncBroker(_ONE, data_dir=tmp_path):
        assert "t-0: nothing says where the log begins: it begins at its oldest segment, offset 0" in caplog.text


@pytest.mark.parametrize("how", ["gone", "empty", "cut", "garbage"])
@pytest.mark.parametrize("name", [RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, "ottla-manifest"])
async def test_every_damaged_checkpoint_is_told(
    name: str, how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _stopped(tmp_path)
    _DAMAGE[how](tmp_path / name)
    await _check_start(tmp_path, 3)
    assert f"{name} is " in caplog.text


async def test_no_checkpoint_is_gone_in_silence_where_the_manifest_is_gone_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _stopped(tmp_path)
    names = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT, "ottla-manifest")
    for name in names:
        (tmp_path / name).unlink()
    await _check_start(tmp_path, 3)
    assert [name for name in names if f"{name} is gone" not in caplog.text] == []


async def test_no_new_cluster_is_made_beside_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await _stopped(tmp_path)
    before = (tmp_path / "meta.properties").read_text()
    (tmp_path / "meta.properties").unlink()
    (tmp_path / "ottla-manifest").unlink()
    with pytest.raises(StorageError, match=r"meta\.properties is gone, but the directory holds a cluster"):
        await AsyncBroker(_ONE, data_dir=tmp_path).start()
    assert not (tmp_path / "meta.properties").exists()
    cluster = next(line for line in before.splitlines() if line.startswith("cluster.id="))
    async with AsyncBroker({**_ONE, "cluster.id": cluster.partition("=")[2]}, data_dir=tmp_path):
        assert cluster in (tmp_path / "meta.properties").read_text()
        assert "meta.properties was gone" in caplog.text


async def test_every_changed_byte_of_the_clusters_id_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Clients would take the cluster for another one."""
    await _killed(tmp_path)
    file = tmp_path / "left" / "meta.properties"
    sound = file.read_bytes()
    for at in range(len(sound)):
        file.write_bytes(sound[:at] + bytes((sound[at] ^ 1,)) + sound[at + 1 :])
        caplog.clear()
        broker = AsyncBroker(_ONE, data_dir=tmp_path / "left")
        try:
            async with broker:
                assert f"cluster.id={broker.node.identity.cluster_id}\n".encode() in sound
                assert "meta.properties is not as the broker has left it" in caplog.text
        except StorageError as refusal:
            assert "meta.properties says cluster.id=" in str(refusal)
            assert "remove the file, and it is made again as it was" in str(refusal)
            file.unlink()
            async with broker:
                assert "meta.properties is gone: made again" in caplog.text
        assert file.read_bytes() == sound


async def test_a_manifest_that_is_made_again_seals_what_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The simulator's find (broker-damage 303981662): the next kill -9 and another digit, and no line."""
    await _stopped(tmp_path / "running")
    (tmp_path / "running" / "ottla-manifest").unlink()
    async with AsyncBroker(_ONE, data_dir=tmp_path / "running"):
        shutil.copytree(tmp_path / "running", tmp_path / "left")
    _DAMAGE["higher"](tmp_path / "left" / LOG_START_OFFSET_CHECKPOINT)
    caplog.clear()
    await _check_start(tmp_path / "left", 3)
    assert f"{LOG_START_OFFSET_CHECKPOINT} is not as the broker has left it" in caplog.text


async def test_ids_that_were_changed_on_purpose_are_taken_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _stopped(tmp_path)
    file = tmp_path / "meta.properties"
    file.write_text("version=1\ncluster.id=another\nnode.id=1\n")
    with pytest.raises(StorageError, match=r"cluster\.id=another and node\.id=1, but this is the directory of cluster"):
        await AsyncBroker(_ONE, data_dir=tmp_path).start()
    (tmp_path / "ottla-manifest").unlink()
    for _ in range(2):
        async with AsyncBroker(_ONE, data_dir=tmp_path) as broker:
            assert broker.node.identity.cluster_id == "another"
    assert caplog.text.count("meta.properties is believed: cluster.id=another, node.id=1") == 1


@pytest.mark.parametrize("folder", ["t-0", "__consumer_offsets-0", "__transaction_state-0"])
@pytest.mark.parametrize("how", ["gone", "empty"])
async def test_a_log_file_without_its_records_is_told_before_the_first_checkpoint(
    folder: str, how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _killed(tmp_path)
    assert not (tmp_path / "left" / RECOVERY_POINT_CHECKPOINT).exists()
    _DAMAGE[how](tmp_path / "left" / folder / _LOG)
    caplog.clear()
    async with AsyncBroker(_ONE, data_dir=tmp_path / "left"):
        assert f"{folder}: there was a record at offset 0, and the log ends at 0" in caplog.text
        assert (f"{folder}: there is no log file" in caplog.text) == (how == "gone")


async def test_a_partition_without_its_directory_is_told_before_the_first_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _killed(tmp_path)
    shutil.rmtree(tmp_path / "left" / "t-0")
    caplog.clear()
    async with AsyncBroker(_ONE, data_dir=tmp_path / "left"):
        assert "t-0: there is no log file, although the partition was made before" in caplog.text


@pytest.mark.parametrize("how", ["gone", "empty", "cut", "garbage"])
@pytest.mark.parametrize("clean", [True, False])
async def test_no_reader_is_shown_aborted_records_because_their_index_is_damaged(
    how: str, clean: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = tmp_path / "running" if clean else tmp_path / "left"
    async with AsyncBroker(_ONE, data_dir=tmp_path / "running") as broker:
        await broker.node.topics.create("t", 1, {})
        partition = broker.node.partitions.find("t", 0)
        assert partition is not None
        for number, commit in enumerate((False, True)):
            append_in_transaction(partition.log, number)
            end(partition.log, commit=commit)
        partition.log.flush()
        broker.node.partitions.checkpoint_plan()()
        if not clean:
            shutil.copytree(tmp_path / "running", left)
    _DAMAGE[how](left / "t-0" / f"{0:020}.txnindex")
    async with AsyncBroker(_ONE, data_dir=left) as broker:
        partition = broker.node.partitions.find("t", 0)
        assert partition is not None
        assert committed_offsets(partition.log) == [2]
        assert f"t-0: {0:020}.txnindex is made again from the markers" in caplog.text


@pytest.mark.parametrize("how", ["empty", "garbage"])
async def test_a_damaged_list_of_holes_is_told(how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await _stopped(tmp_path)
    (tmp_path / "t-0" / "damaged-offsets").touch()
    _DAMAGE[how](tmp_path / "t-0" / "damaged-offsets")
    await _check_start(tmp_path, 3)
    assert "t-0: damaged-offsets is damaged" in caplog.text
    caplog.clear()
    await _check_start(tmp_path, 3)
    assert "damaged-offsets" not in caplog.text


async def _new_producer_id(client: WireClient) -> int:
    answer = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(None, 60_000))
    assert answer.error_code == 0
    producer_id: int = answer.producer_id
    return producer_id


async def _killed_with_an_id_in_use(directory: Path) -> tuple[Path, int]:
    """After kill -9, when the last change gave out a block of producer ids. Returns the metadata log, and an id."""
    async with AsyncBroker(_ONE, data_dir=directory / "running") as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, {})
        used = await _new_producer_id(client)
        records = batch(b"v", producer_id=used, producer_epoch=0, base_sequence=0)
        (written,) = await produce(client, records)
        assert written.error_code == 0
        shutil.copytree(directory / "running", directory / "left")
    return directory / "left" / "__cluster_metadata-0" / _LOG, used


def _last_batch(content: bytes) -> int:
    """Where it begins."""
    return max(position for position, _ in iter_headers(content))


@pytest.mark.parametrize("how", ["cut in the batch", "cut behind a batch", "emptied", "removed", "base offset"])
async def test_acknowledged_changes_that_are_gone_stop_the_start_and_nothing_is_changed(
    how: str, tmp_path: Path
) -> None:
    """The simulator's finds (broker-damage 9045, 500074): a topic was forgotten, and producer ids were given twice."""
    log, _ = await _killed_with_an_id_in_use(tmp_path)
    content = log.read_bytes()
    last = _last_batch(content)
    match how:
        case "cut in the batch":
            log.write_bytes(content[:-3])
        case "cut behind a batch":
            log.write_bytes(content[:last])
        case "emptied":
            log.write_bytes(b"")
        case "removed":
            log.unlink()
        case "base offset":
            log.write_bytes(content[: last + 7] + bytes([content[last + 7] ^ 64]) + content[last + 8 :])
    before = {path: path.read_bytes() for path in log.parent.iterdir()}
    with pytest.raises(StorageError, match=rf"{log}: the metadata log ends at offset \d, and the changes at offsets"):
        await AsyncBroker(_ONE, data_dir=tmp_path / "left").start()
    assert {path: path.read_bytes() for path in log.parent.iterdir()} == before


async def test_an_emptied_segment_of_the_metadata_log_costs_no_later_one(tmp_path: Path) -> None:
    """The simulator's find (broker-damage 500074): the segments behind it were removed, and then the start refused."""
    settings = {**_ONE, "log.roll.ms": 1}
    clock = ManualClock()
    async with AsyncBroker(settings, data_dir=tmp_path, clock=clock) as broker:
        for name in ("a", "b", "c"):
            await broker.node.topics.create(name, 1, {})
            clock.advance(1_000)
    logs = sorted((tmp_path / "__cluster_metadata-0").glob("*.log"))
    assert len(logs) > 2
    sizes = [path.stat().st_size for path in logs]
    logs[1].write_bytes(b"")
    with pytest.raises(StorageError, match=rf"{logs[1]}: the changes at offsets \d–\d of the metadata log are gone"):
        await AsyncBroker(settings, data_dir=tmp_path).start()
    assert [path.stat().st_size for path in logs] == [sizes[0], 0, *sizes[2:]]


async def test_a_change_that_nobody_was_told_of_is_dropped_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, used = await _killed_with_an_id_in_use(tmp_path)
    content = log.read_bytes()
    log.write_bytes(content + content[:40])  # the broker was killed in the middle of a write
    async with AsyncBroker(_ONE, data_dir=tmp_path / "left") as broker, WireClient(broker) as client:
        assert await _new_producer_id(client) > used
    assert f"__cluster_metadata-0/{_LOG}: cut 40 bytes" in caplog.text
    assert "which nobody was told of, is undone" in caplog.text


@pytest.mark.parametrize("mark", ["gone", "damaged"])
async def test_a_metadata_log_that_lost_its_end_gives_no_producer_id_twice(
    mark: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator goes on without the changes that are gone; the log may end with a whole batch."""
    log, used = await _killed_with_an_id_in_use(tmp_path)
    log.write_bytes(log.read_bytes()[: _last_batch(log.read_bytes())])
    end_mark = log.with_name("acknowledged-end-offset")
    if mark == "gone":
        end_mark.unlink()
    else:
        end_mark.write_bytes(b"9\n9\n")
    for _ in range(2):
        async with AsyncBroker(_ONE, data_dir=tmp_path / "left") as broker, WireClient(broker) as client:
            assert await _new_producer_id(client) > used
    assert f"{end_mark} is {'not there' if mark == 'gone' else 'damaged'}" in caplog.text
    assert caplog.text.count("lost its end") == 1


async def test_of_a_directory_in_order_only_its_end_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await _killed(tmp_path)
    await _stopped(tmp_path / "clean")
    caplog.clear()
    for directory in (tmp_path / "left", tmp_path / "clean"):
        async with AsyncBroker(_ONE, data_dir=directory):
            pass
    (told,) = [record.getMessage() for record in caplog.records if record.levelname != "INFO"]
    assert told.startswith(f"there is no {CLEAN_SHUTDOWN_MARKER}: the last broker did not stop in order")


@pytest.mark.parametrize(
    ("name", "how", "told"),
    [
        ("leader-epoch-checkpoint", "gone", "leader-epoch-checkpoint (gone or wrong) is made again"),
        ("leader-epoch-checkpoint", "empty", "leader-epoch-checkpoint (not a checkpoint"),
        ("leader-epoch-checkpoint", "garbage", "leader-epoch-checkpoint (not a checkpoint"),
        ("partition.metadata", "gone", "partition.metadata was gone"),
        ("partition.metadata", "garbage", "partition.metadata was damaged"),
        (f"{10:020}.snapshot", "garbage", f"{10:020}.snapshot: damaged"),
        (f"{0:020}.index", "gone", f"the indexes of 1 segment(s) were damaged and are made again: {0:020}.index"),
    ],
)
async def test_small_files_are_made_again_and_told(
    name: str, how: str, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _stopped(tmp_path)
    _DAMAGE[how](tmp_path / "t-0" / name)
    await _check_start(tmp_path, 3)
    assert f"t-0: {told}" in caplog.text
    caplog.clear()
    await _check_start(tmp_path, 3)
    assert "t-0" not in caplog.text, "it was made again"


async def test_two_damages_one_after_the_other_do_not_take_both_witnesses_of_a_logs_start(tmp_path: Path) -> None:
    """Killed as soon as it has started, before it has served anybody (sim: broker-damage 1800007383)."""
    await _stopped(tmp_path / "running")
    (tmp_path / "running" / LOG_START_OFFSET_CHECKPOINT).write_bytes(b"0")
    async with AsyncBroker(_ONE, data_dir=tmp_path / "running"):
        no_half = shutil.ignore_patterns("*.tmp")  # written by a thread
        shutil.copytree(tmp_path / "running", tmp_path / "left", ignore=no_half)
    (tmp_path / "left" / "t-0" / "leader-epoch-checkpoint").unlink()
    await _check_start(tmp_path / "left", 3)


async def test_a_checkpoint_that_cannot_be_used_is_made_again_at_once(tmp_path: Path) -> None:
    """Not a minute later: if the broker is killed until then, the next start knows of nothing that is on the device."""
    async with _filled(tmp_path):
        pass
    (tmp_path / RECOVERY_POINT_CHECKPOINT).write_bytes(b"garbage")
    async with AsyncBroker(_ONE, data_dir=tmp_path):
        while (tmp_path / RECOVERY_POINT_CHECKPOINT).read_bytes() == b"garbage":  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)  # a turn of the loop; the write is in a thread
        written = decode_offsets((tmp_path / RECOVERY_POINT_CHECKPOINT).read_bytes())
    assert written[TopicPartition("t", 0)] == 10

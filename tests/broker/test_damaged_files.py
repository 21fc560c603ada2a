"""A data directory damaged between two starts: what clients are answered, and what the broker's log says."""

import shutil
from pathlib import Path

import pytest

from ottla.base.errors import StorageError
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.records_io import fetch, produce
from tests.broker.wire_client import WireClient, batch

_ONE = ("auto.create.topics.enable", "false")
#: By nobody's member, as of a consumer that was assigned its partitions by hand.
_COMMIT = OffsetCommitRequest(
    "g", -1, topics=(OffsetCommitRequestTopic(name="t", partitions=(OffsetCommitRequestPartition(0, 5),)),)
)
_T0 = 1_700_000_000_000


async def _filled(directory: Path) -> int:
    """A stopped broker's directory with topic `t` in segments of two batches; the size of a batch."""
    async with AsyncBroker(dict([_ONE]), data_dir=directory) as broker:
        await broker.node.topics.create("t", 1, {"segment.bytes": "1048576"})
        async with WireClient(broker) as client:
            for _ in range(6):
                await produce(client, batch(b"x" * 500_000))
    return len(batch(b"x" * 500_000))


async def test_a_reader_is_told_of_lost_records_and_goes_on_behind_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    size = await _filled(tmp_path)
    with (tmp_path / "t-0" / f"{2:020}.log").open("r+b") as file:
        file.truncate(size + size // 2)
    async with AsyncBroker(dict([_ONE]), data_dir=tmp_path) as broker, WireClient(broker) as client:
        assert "t-0: the records at offsets 3–3 were written to disk and are gone" in caplog.text
        answer = await fetch(client, 2)
        assert (answer.error_code, len(answer.records)) == (0, size)
        assert (await fetch(client, 3)).error_code == ErrorCode.CORRUPT_MESSAGE
        assert len((await fetch(client, 4)).records) == 2 * size
        (written,) = await produce(client, batch(b"more"))
        assert (written.error_code, written.base_offset) == (0, 6)


@pytest.mark.parametrize(("gone", "is_known"), [("*.log", False), ("0*", True), ("0*", False)])
async def test_a_partition_whose_logs_are_gone_is_a_hole_and_no_reason_not_to_start(
    gone: str, is_known: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _filled(tmp_path)
    for path in (tmp_path / "t-0").glob(gone):
        path.unlink()
    if not is_known:
        (tmp_path / "ottla-manifest").unlink()
    async with AsyncBroker(dict([_ONE]), data_dir=tmp_path) as broker, WireClient(broker) as client:
        assert "t-0: the records at offsets 0–5 were written to disk and are gone" in caplog.text
        # An index knows the name of its log file, and the manifest all names. Where nothing is left, none is guessed.
        has_name = gone == "*.log" or is_known
        named = f"put {0:020}.log back" if has_name else "put the log files of t-0 that held them back"
        assert named in caplog.text
        assert (await fetch(client, 0)).error_code == ErrorCode.CORRUPT_MESSAGE
        (written,) = await produce(client, batch(b"more"))
        assert (written.error_code, written.base_offset) == (0, 6)


async def test_a_first_log_that_is_gone_is_told_where_the_checkpoint_knows_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _filled(tmp_path)
    for path in (tmp_path / "t-0").glob(f"{0:020}.*"):
        path.unlink()
    async with AsyncBroker(dict([_ONE]), data_dir=tmp_path) as broker, WireClient(broker) as client:
        assert "t-0: the records at offsets 0–1 were written to disk and are gone" in caplog.text
        assert (await fetch(client, 0)).error_code == ErrorCode.CORRUPT_MESSAGE
        assert (await fetch(client, 2)).error_code == 0


async def test_a_lookup_by_time_does_not_believe_an_empty_time_index(tmp_path: Path) -> None:
    await _filled(tmp_path)
    for name in ("00000000000000000002.timeindex", "00000000000000000004.timeindex"):
        (tmp_path / "t-0" / name).write_bytes(b"")
    asked = ListOffsetsRequest(topics=(ListOffsetsTopic("t", (ListOffsetsPartition(0, timestamp=_T0),)),))
    async with AsyncBroker(dict([_ONE]), data_dir=tmp_path) as broker, WireClient(broker) as client:
        broker.node.partitions.find("t", 0).log.delete_records_before(3)  # type: ignore[union-attr]
        answer = await client.ask(ApiKey.LIST_OFFSETS, asked)
        assert answer.topics[0].partitions[0].offset == 3


async def test_a_group_whose_records_are_lost_has_no_coordinator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = {"offsets.topic.num.partitions": 1}
    async with AsyncBroker(one, data_dir=tmp_path) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, {})
        await broker.node.groups.ready()
        await client.ask(ApiKey.OFFSET_COMMIT, _COMMIT, 9)
    log = tmp_path / "__consumer_offsets-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-3])
    async with AsyncBroker(one, data_dir=tmp_path) as broker, WireClient(broker) as client:
        answer = await client.ask(ApiKey.HEARTBEAT, HeartbeatRequest("g", 1, "m"))
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "__consumer_offsets-0 cannot be read" in caplog.text


async def test_a_broker_does_not_start_on_half_of_its_metadata(tmp_path: Path) -> None:
    await _filled(tmp_path)
    log = tmp_path / "__cluster_metadata-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-3])
    with pytest.raises(StorageError, match=rf"{log}: the metadata log ends at offset \d+, "):
        await AsyncBroker(data_dir=tmp_path).start()


async def test_topics_are_not_set_aside_because_the_metadata_log_is_gone(tmp_path: Path) -> None:
    await _filled(tmp_path)
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    with pytest.raises(StorageError, match=r"holds records \(t-0\), but its metadata log is empty"):
        await AsyncBroker(data_dir=tmp_path).start()
    assert (tmp_path / "t-0" / f"{0:020}.log").stat().st_size > 0

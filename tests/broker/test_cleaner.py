"""T10: the cleaner in a broker, its keys and files, beside traffic, as topics go away, and after kill -9 anywhere."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.base.clock import ManualClock
from ottla.base.types import TopicPartition
from ottla.broker.runtime.cleaner import Cleaner, Pace
from ottla.broker.runtime.partition import Partition
from ottla.log.checkpoint import CLEANER_OFFSET_CHECKPOINT
from ottla.log.names import CLEANED, SWAP
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.batch import seal
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import offset_commit as oc
from ottla.wire.messages import offset_fetch as of
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.records import Record, encode_batch
from tests.broker.crash_points import CrashPoints
from tests.broker.records_io import produce
from tests.broker.wire_client import WireClient
from tests.log.cleaner.passes import batches, put, records

_T0 = TopicPartition("t", 0)
#: So that a few records fill a segment, and every dirty byte is worth a pass.
_COMPACT = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "400",
    "index.interval.bytes": "0",
    "min.cleanable.dirty.ratio": "0",
}


def _cleaner(broker: AsyncBroker, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> Cleaner:
    node = broker.node
    return Cleaner(node.config, node.clock, node.slices, node.partitions, node.clock.monotonic_ms, pause)


def _partition(broker: AsyncBroker, tp: TopicPartition = _T0) -> Partition:
    partition = broker.node.partitions.find(*tp)
    assert partition is not None
    return partition


async def _write(client: WireClient, *rows: tuple[bytes, bytes | None]) -> None:
    for key, value in rows:
        (answer,) = await produce(client, encode_batch([Record(0, 1_700_000_000_000, key, value)]))
        assert answer.error_code == ErrorCode.NONE


def _rows(count: int) -> list[tuple[bytes, bytes | None]]:
    return [(b"key %d" % (number % 3), b"value %d" % number) for number in range(count)]


def _values(partition: Partition) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {each.offset: (each.key, each.value) for each in records(partition.log)}


def _unfinished(broker: AsyncBroker) -> list[str]:
    names = [path.name for path in (broker.data_dir / "t-0").iterdir()]
    return [name for name in names if name.endswith((CLEANED, SWAP))]


def _latest(rows: Mapping[int, tuple[bytes | None, bytes | None]]) -> dict[bytes | None, bytes | None]:
    return {key: value for _, (key, value) in sorted(rows.items())}


def _cleaner_offsets(broker: AsyncBroker) -> str:
    return (broker.data_dir / CLEANER_OFFSET_CHECKPOINT).read_text()


async def test_the_last_record_of_each_key_stays_and_a_restart_goes_on_from_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, _COMPACT)
        await _write(client, *_rows(30))
        before = _values(_partition(broker))
        await _cleaner(broker).clean()
        log = _partition(broker).log
        active = log._segments.active.base_offset
        left = _values(_partition(broker))
        assert len(left) <= 3 + log.end_offset - active
        assert left.items() <= before.items()
        assert dict(left.values()) == dict(_rows(30))
        assert _cleaner_offsets(broker) == f"0\n1\nt 0 {active}\n"
    with caplog.at_level(logging.WARNING):
        async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
            assert _values(_partition(broker)) == left
            assert _partition(broker).log.compaction.cleaned_offset == active
            await _write(client, *_rows(9))
            await _cleaner(broker).clean()
            assert dict(_values(_partition(broker)).values()) == dict(_rows(9))
    assert caplog.messages == []


async def test_no_fault_of_one_log_keeps_the_others_from_being_cleaned(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody expects it of the log. Until the next start it is left alone."""
    async with AsyncBroker() as broker, WireClient(broker) as client:
        cleaner = _cleaner(broker)
        for name in ("t", "u"):
            await broker.node.topics.create(name, 1, _COMPACT)
        await _write(client, *_rows(30), *((b"k%d" % number, None) for number in range(30)), *_rows(9))
        for number in range(30):
            put(_partition(broker, TopicPartition("u", 0)).log, b"k", b"%d" % number, now_ms=broker.node.clock.now_ms())
        log = _partition(broker).log
        log.config = replace(log.config, delete_retention_ms=cast(Any, "no number"))
        await cleaner.clean()
        await cleaner.clean()
        assert _partition(broker, TopicPartition("u", 0)).log.compaction.cleaned_offset is not None
        assert _partition(broker).log.compaction.fault is not None
    assert [each for each in caplog.messages if "cannot be cleaned" in each] == [
        "t-0: cannot be cleaned, and is not until the next start"
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {"min.cleanable.dirty.ratio": "1"},
        {"min.compaction.lag.ms": "9000000000000"},
        {"cleanup.policy": "delete"},
    ],
    ids=lambda each: next(iter(each)),
)
async def test_a_log_is_left_alone_where_its_keys_say_so(settings: dict[str, str]) -> None:
    async with AsyncBroker() as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, _COMPACT | settings)
        await _write(client, *_rows(30))
        before = _values(_partition(broker))
        await _cleaner(broker).clean()
        assert _values(_partition(broker)) == before


async def test_the_longest_lag_rolls_a_segment_and_cleans_a_log_that_is_hardly_dirty() -> None:
    clock = ManualClock(now_ms=1_700_000_000_000)
    async with AsyncBroker(clock=clock) as broker:
        node = broker.node
        overrides = _COMPACT | {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "1000"}
        await node.topics.create("t", 1, overrides | {"internal.segment.bytes": "1000000"})
        log = _partition(broker).log
        for number in range(5):
            batch = encode_batch([Record(0, clock.now_ms(), b"k", b"%d" % number)])
            assert log.append(batch, now_ms=clock.now_ms()).error is ErrorCode.NONE
            clock.advance(600)
        assert len(log._segments) > 1
        await _cleaner(broker).clean()
        assert [each.value for each in records(log)][-1] == b"4"
        assert len(records(log)) < 5


@pytest.mark.parametrize("bytes_per_s", [1_000.0, 50_000.0])
async def test_it_reads_and_writes_no_faster_than_it_may(bytes_per_s: float) -> None:
    """`log.cleaner.io.max.bytes.per.second`: the pauses between its pieces make up for what they took."""
    pauses: list[float] = []

    async def pause(delay_s: float) -> None:
        pauses.append(delay_s)

    slow = {"log.cleaner.io.max.bytes.per.second": str(bytes_per_s), "log.cleaner.io.buffer.size": "8192"}
    async with AsyncBroker(slow) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, _COMPACT)
        await _write(client, *_rows(200))
        log = _partition(broker).log
        dirty_bytes = sum(each.size_bytes for each in log._segments if each is not log._segments.active)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await _cleaner(broker, pause).clean()
        took_s = loop.time() - began_s
    # Each byte is read twice, and little is written. Nobody waits for the last piece, which has half a buffer at most.
    least_s = (2 * dirty_bytes - 5_000) / bytes_per_s
    assert sum(pauses) + took_s >= least_s
    assert sum(pauses) <= 3 * dirty_bytes / bytes_per_s + took_s


async def test_it_does_not_pause_where_no_client_comes() -> None:
    pauses: list[float] = []

    async def pause(delay_s: float) -> None:
        pauses.append(delay_s)

    many_pieces = {"log.cleaner.io.buffer.size": "1"}
    async with AsyncBroker(many_pieces) as broker, WireClient(broker) as client:
        node = broker.node
        await node.topics.create("t", 1, _COMPACT)
        await _write(client, *_rows(300))
        active_ms = node.clock.monotonic_ms() - 50
        await Cleaner(node.config, node.clock, node.slices, node.partitions, lambda: active_ms, pause).clean()
        assert _partition(broker).log.compaction.cleaned_offset is not None
    assert pauses == []


def test_pauses_are_as_long_as_the_pieces_and_no_shorter_than_the_timers_can() -> None:
    pace = Pace(float("inf"))
    assert [pace.after(0.0015, 1, is_quiet=False) for _ in range(4)] == [0, 0.003, 0, 0.003]
    assert pace.after(1.0, 1, is_quiet=True) == 0
    assert pace.after(1.0, 0, is_quiet=False) == 0


def test_pauses_make_up_for_bytes_that_came_too_fast_even_where_nobody_comes() -> None:
    pace = Pace(1_000.0)
    assert pace.after(0.25, 1_000, is_quiet=True) == 0.75
    assert pace.after(0.25, 1_000, is_quiet=False) == 0.75
    assert pace.after(3.0, 1_000, is_quiet=True) == 0


async def test_a_broker_looks_by_itself() -> None:
    async with AsyncBroker({"log.cleaner.backoff.ms": "20"}) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, _COMPACT)
        await _write(client, *_rows(30))
        while _partition(broker).log.compaction.cleaned_offset is None:  # noqa: ASYNC110 - the log tells nobody
            await asyncio.sleep(0)


async def test_a_broker_without_cleaner_does_not() -> None:
    settings = {"log.cleaner.backoff.ms": "20", "log.cleaner.enable": "false"}
    clock = ManualClock()
    async with AsyncBroker(settings, clock=clock) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, _COMPACT)
        await _write(client, *_rows(30))
        before = _values(_partition(broker))
        for _ in range(10):
            clock.advance(1_000)
            broker.node.timers.fire()
            await asyncio.sleep(0)
        assert _values(_partition(broker)) == before


async def test_records_are_written_and_read_while_a_log_is_cleaned() -> None:
    settings = {"log.cleaner.io.buffer.size": "1"}  # many pieces
    async with AsyncBroker(settings) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, _COMPACT)
        await _write(client, *_rows(60))
        expected = dict(_rows(60))
        cleaning, count = asyncio.create_task(_cleaner(broker).clean()), 0
        while count < 40:
            row = (b"key %d" % (count % 5), b"new %d" % count)
            await _write(client, row)
            expected[row[0]] = row[1]
            count += 1
            seen = _values(_partition(broker))
            assert _latest(seen) == expected
        await cleaning
        assert len(_values(_partition(broker))) < 60 + count


async def test_a_topic_may_be_deleted_and_made_again_while_it_is_cleaned() -> None:
    async with AsyncBroker({"log.cleaner.io.buffer.size": "1"}) as broker, WireClient(broker) as client:
        node = broker.node
        for turns in range(0, 240, 20):
            await node.topics.create("t", 1, _COMPACT)
            await _write(client, *_rows(30))
            cleaning = asyncio.create_task(_cleaner(broker).clean())
            for _ in range(turns):
                await asyncio.sleep(0)
            await node.topics.delete_all([node.image.topics["t"]])
            await node.topics.create("t", 1, _COMPACT)
            await _write(client, (b"k", b"of the new topic"))
            await cleaning
            partition = _partition(broker)
            assert list(_values(partition).values()) == [(b"k", b"of the new topic")]
            assert partition.log.compaction.cleaned_offset is None
            assert not _unfinished(broker)
            await node.topics.delete_all([node.image.topics["t"]])


async def test_a_new_topic_does_not_inherit_how_far_an_older_one_was_clean(tmp_path: Path) -> None:
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        node = broker.node
        await node.topics.create("t", 1, _COMPACT)
        await _write(client, *_rows(30))
        await _cleaner(broker).clean()
        await node.topics.delete_all([node.image.topics["t"]])
        await node.partitions.forget_checkpointed([_T0], node.slices)
        assert _cleaner_offsets(broker) == "0\n0\n"


async def test_a_damaged_batch_stops_the_cleaning_of_its_own_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncBroker() as broker, WireClient(broker) as client:
        for name in ("t", "other"):
            await broker.node.topics.create(name, 1, _COMPACT)
            for key, value in _rows(30):
                batch = encode_batch([Record(0, 1_700_000_000_000, key, value)])
                await produce(client, batch, topic=name)
        path = broker.data_dir / "t-0" / f"{0:020}.log"
        content = bytearray(path.read_bytes())
        content[70] ^= 1
        path.write_bytes(content)
        with caplog.at_level(logging.ERROR):
            await _cleaner(broker).clean()
        assert len(caplog.messages) == 1
        assert "t-0: a batch is damaged, so it is not cleaned until the next start" in caplog.messages[0]
        assert len(_values(_partition(broker, TopicPartition("other", 0)))) < 30
        assert not _unfinished(broker)
        caplog.clear()
        await _cleaner(broker).clean()
        assert caplog.messages == []


async def test_a_batch_that_cannot_be_read_is_named_once_a_pass_and_the_log_is_cleaned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A topic that is not compacted takes it without a look at its records."""
    async with AsyncBroker() as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, _COMPACT)
        log = _partition(broker).log
        compacted, log.config = log.config, replace(log.config, cleanup_policy=frozenset({"delete"}))
        bad = bytearray(encode_batch([Record(0, 1_700_000_000_000, b"key 0", b"bad")]))
        bad[61] = 0xFF
        seal(bad)
        for _ in range(2):
            await _write(client, *_rows(1))
            (answer,) = await produce(client, bytes(bad))
            assert answer.error_code == ErrorCode.NONE
        log.config = compacted
        await _write(client, *_rows(30))
        with caplog.at_level(logging.WARNING):
            await _cleaner(broker).clean()
        assert caplog.messages == ["t-0: kept as found: 2 batches whose records cannot be read, the first at offset 1"]
        assert log.compaction.fault is None
        assert log.compaction.cleaned_offset == log._segments.active.base_offset
        assert [header.base_offset for _, header in batches(log)][:2] == [1, 3]


async def _commit(client: WireClient, topic_id: bytes, offset: int) -> None:
    topic = oc.OffsetCommitRequestTopic(topic_id, "t", (oc.OffsetCommitRequestPartition(0, offset),))
    request = oc.OffsetCommitRequest(f"group {offset % 3}", topics=(topic,))
    answer = await client.ask(ApiKey.OFFSET_COMMIT, request)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def _committed(client: WireClient, topic_id: bytes, group: str) -> int:
    topics = (of.OffsetFetchRequestTopics(topic_id, "t", (0,)),)
    answer = await client.ask(
        ApiKey.OFFSET_FETCH, of.OffsetFetchRequest(groups=(of.OffsetFetchRequestGroup(group, topics=topics),))
    )
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


async def test_the_coordinators_topics_stay_small(tmp_path: Path) -> None:
    settings = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": "1048576",
        "transaction.state.log.num.partitions": "1",
        "log.cleaner.min.cleanable.ratio": "0",
    }
    async with AsyncBroker(settings, data_dir=tmp_path) as broker, WireClient(broker) as client:
        topic_id = (await broker.node.topics.create("t", 1, {})).topic_id
        await client.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest("", 0, ("group 0",)))
        await client.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest("", 1, ("tx",)))
        await _commit(client, topic_id, 0)
        await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("tx", 60_000, -1, -1))
        names = "__consumer_offsets", "__transaction_state"
        offsets, transactions = (_partition(broker, TopicPartition(name, 0)).log for name in names)
        for round_number in range(1, 6):
            for number in range(40):
                await _commit(client, topic_id, 40 * round_number + number)
                request = InitProducerIdRequest("tx", 60_000, -1, -1)
                producer = await client.ask(ApiKey.INIT_PRODUCER_ID, request)
                assert producer.error_code == ErrorCode.NONE
            for log in (offsets, transactions):
                log.roll(broker.node.clock.now_ms())
            await _cleaner(broker).clean()
            assert offsets.size_bytes < 3 * 250
            assert transactions.size_bytes < 4 * 250
        last = {f"group {offset % 3}": offset for offset in range(240)}
    async with AsyncBroker(settings, data_dir=tmp_path) as broker, WireClient(broker) as client:
        assert {group: await _committed(client, topic_id, group) for group in last} == last
        again = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("tx", 60_000, -1, -1))
        assert (again.producer_id, again.producer_epoch) == (producer.producer_id, producer.producer_epoch + 1)


async def test_a_broker_that_dies_at_any_call_of_a_pass_leaves_the_old_or_the_new(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data_dir = directory / "data"
    data_dir.mkdir()
    points = CrashPoints(data_dir, directory / "copies", None)
    async with AsyncBroker(data_dir=data_dir) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, _COMPACT)
        await _write(client, *_rows(24))
        before = _values(_partition(broker))
        with points.taken():
            await _cleaner(broker).clean()
        after = _values(_partition(broker))
    assert len(points.points) > 30
    assert len(after) < 12
    caplog.set_level(logging.WARNING)
    for point in points.points:
        async with AsyncBroker(data_dir=point.data_dir) as broker:
            left = _values(_partition(broker))
            assert after.items() <= left.items() <= before.items(), point.call
            await _cleaner(broker).clean()
            assert _latest(_values(_partition(broker))) == _latest(before), point.call
            assert _partition(broker).log.end_offset == 24
        (told,) = caplog.messages
        assert "the last broker did not stop in order" in told, point.call
        caplog.clear()

"""The consumer and the producer, C1 to C6: what a user can ask for, by which names, and what is told if it is wrong."""

from __future__ import annotations

import asyncio
import random
import re

import pytest

from ottla import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConfigError,
    Consumer,
    NewTopic,
    OffsetReset,
    Producer,
    SerializationError,
    TopicPartition,
)
from ottla.client.config.consumer import consumer_config
from ottla.client.config.producer import producer_config
from ottla.client.core.backoff import Backoff
from ottla.client.core.consumer.fetch_session import FetchSession
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.hashing import murmur2, partition_for_key
from ottla.wire.messages.fetch import FetchPartition
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.client.core.consumer.rig import Rig, snapshot
from tests.seeds.live import PATIENCE_S, live_group

TP = TopicPartition("t", 0)
HERE: dict[str, object] = {"bootstrap.servers": "127.0.0.1:9092"}


async def test_c1_a_pattern_takes_in_topics_that_come() -> None:
    """By a refresh of the metadata, every `metadata.max.age.ms`; internal topics never match."""
    async with live_group(orders=1) as group, AsyncAdmin(group.servers) as admin:
        consumer = group.join("C0", (), **{"metadata.max.age.ms": 100})
        consumer.subscribe(re.compile(".*"))
        await group.comes_to({"C0": "ordersp0"})
        await admin.create_topics([NewTopic("returns", 1)])
        await group.comes_to({"C0": "ordersp0 returnsp0"})


async def test_c1_partitions_by_hand_and_positions_at_will() -> None:
    """assign, seek, pause, resume, position, committed, times, beginning, end and lag."""
    async with live_group(t=1) as group:
        async with AsyncProducer(group.servers) as producer:
            for number in range(10):
                await producer.send("t", b"%d" % number, timestamp_ms=1_000 + number)
        async with AsyncConsumer({**group.servers, "group.id": "g", "enable.auto.commit": False}) as consumer:
            consumer.assign([TP])
            assert await consumer.position(TP) == 10  # auto.offset.reset=latest
            consumer.seek(TP, 3)
            consumer.pause([TP])
            assert await consumer.poll(0) == []
            assert consumer.paused() == {TP}
            consumer.resume([TP])
            records = await consumer.poll(PATIENCE_S)
            assert [record.value for record in records] == [b"3", b"4", b"5", b"6", b"7", b"8", b"9"]
            assert consumer.current_lag(TP) == 0
            assert await consumer.committed([TP]) == {}
            await consumer.commit()
            assert (await consumer.committed([TP]))[TP].offset == 10
            assert (await consumer.offsets_for_times({TP: 1_004}))[TP].offset == 4
            assert await consumer.beginning_offsets([TP]) == {TP: 0}
            assert await consumer.end_offsets([TP]) == {TP: 10}


async def test_c2_serializers_are_callables_or_classes_and_an_error_says_where() -> None:
    """Topic, partition and offset of the record; what was good before it is given first, and the position stays."""

    class Number:
        def serialize(self, topic: str, data: int) -> bytes:
            return b"%d" % data

    def number(topic: str, data: bytes | None) -> int:
        return int(data or b"")

    async with live_group(t=1) as group:
        async with AsyncProducer({**group.servers, "value.serializer": Number}) as producer:
            await producer.send("t", 1)
            with pytest.raises(SerializationError, match="topic t: the value could not be serialized"):
                await producer.send("t", "one")
        await group.write("t", b"two", b"3")
        async with AsyncConsumer({**group.servers, "value.deserializer": number}) as consumer:
            consumer.assign([TP])
            consumer.seek(TP, 0)
            found = [record.value for record in await consumer.poll(PATIENCE_S)]
            with pytest.raises(SerializationError, match="t-0 offset 1: the value could not be deserialized"):
                await consumer.poll(PATIENCE_S)
            consumer.seek(TP, 2)
            assert found + [record.value for record in await consumer.poll(PATIENCE_S)] == [1, 3]


def test_c3_names_and_defaults_are_kafkas() -> None:
    """Those of Apache Kafka 4.3."""
    expected = {
        "fetch.min.bytes": 1,
        "fetch.max.wait.ms": 500,
        "fetch.max.bytes": 50 * 1024 * 1024,
        "max.partition.fetch.bytes": 1024 * 1024,
        "max.poll.records": 500,
        "session.timeout.ms": 45_000,
        "heartbeat.interval.ms": 3_000,
        "max.poll.interval.ms": 300_000,
        "default.api.timeout.ms": 60_000,
        "auto.offset.reset": "latest",
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 5_000,
        "isolation.level": "read_uncommitted",
        "group.instance.id": None,
    }
    config = consumer_config(HERE)
    assert {key: getattr(config, key.replace(".", "_")) for key in expected} == expected
    assert list(config.partition_assignment_strategy) == ["range", "cooperative-sticky"]


def test_c3_what_is_wrong_is_said_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    """An unknown key names the nearest; a heartbeat must be sent within the session timeout, better within a third."""
    with pytest.raises(ConfigError, match=r"max\.pol\.records; did you mean max\.poll\.records\?"):
        consumer_config({**HERE, "max.pol.records": 5})
    with pytest.raises(ConfigError, match=r"heartbeat\.interval\.ms must be set lower than the session\.timeout\.ms"):
        consumer_config({**HERE, "heartbeat.interval.ms": 45_000})
    consumer_config({**HERE, "heartbeat.interval.ms": 15_001})
    assert "more than a third of session.timeout.ms" in caplog.text


async def test_c4_the_blocking_and_the_asyncio_clients_behave_alike() -> None:
    """The same names; context managers; a `for` loop and an `async for` loop."""
    settings = {"auto.offset.reset": "earliest"}
    async with live_group(t=1) as group:

        def blocking() -> list[object]:
            with Producer(group.servers) as producer:
                producer.send("t", b"1").result(PATIENCE_S)
            with Consumer({**group.servers, **settings, "group.id": "blocking"}) as consumer:
                consumer.subscribe(["t"])
                for record in consumer:
                    return [record.value]
            return []

        async def asynchronous() -> list[object]:
            async with AsyncConsumer({**group.servers, **settings, "group.id": "asyncio"}) as consumer:
                consumer.subscribe(["t"])
                async for record in consumer:
                    return [record.value]
            return []

        assert await asyncio.to_thread(blocking) == await asynchronous() == [b"1"]


async def test_c4_a_cancelled_call_harms_nothing() -> None:
    """A poll that is given up at any moment; the record comes to the next one."""
    async with live_group(t=1) as group:
        consumer = group.join("C0", ("t",), **{"auto.offset.reset": "earliest"})
        for turns in range(20):
            poll = asyncio.ensure_future(consumer.poll(PATIENCE_S))
            for _ in range(turns):
                await asyncio.sleep(0)
            poll.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poll
        await group.write("t", b"1")
        await group.until(lambda: bool(group.read.get("C0")))
        assert [record.value for record in group.read["C0"]] == [b"1"]


def test_c5_a_fetch_session_says_only_what_changed() -> None:
    """KIP-227: the first request has everything, the second one only the partition that moved."""
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)

    def at(*offsets: int) -> dict[TopicPartition, tuple[bytes, FetchPartition]]:
        pairs = zip((first, second), offsets, strict=True)
        return {tp: (b"i" * 16, FetchPartition(tp.partition, 0, offset)) for tp, offset in pairs}

    session = FetchSession()
    assert set(session.build(at(1, 2)).partitions) == {first, second}
    session.answered(ErrorCode.NONE, 9)
    changed = session.build(at(1, 5))
    assert (changed.session_id, changed.epoch, set(changed.partitions)) == (9, 1, {second})


def test_c5_a_log_that_was_cut_is_noticed() -> None:
    """KIP-320: a new leader says that the epoch that was read ends at 40, and the position was 50."""
    rig = Rig({"auto.offset.reset": "earliest"}, known=snapshot(3, t=1))
    rig.assign(TP)
    rig.state(TP).seek(50)
    rig.state(TP).position_epoch = 3
    rig.do(rig.core.positions_chosen)
    rig.learn(snapshot(4, 2, t=1))
    end = OffsetForLeaderTopicResult("t", (EpochEndOffset(0, 0, 3, 40),))
    rig.answer(ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochResponse(topics=(end,)))
    rig.run_all_callbacks()
    assert (rig.state(TP).position, rig.resets) == (40, [OffsetReset(TP, 50, 40)])


def test_c5_pauses_grow_with_jitter() -> None:
    """`retry.backoff.ms` doubles up to `retry.backoff.max.ms`, each a fifth longer or shorter by chance."""
    backoff = Backoff(100, 1_000, random.Random(1))
    for middle in (100, 200, 400, 800, 1_000, 1_000):
        assert 0.8 * middle <= backoff.next_ms() <= 1.2 * middle


async def test_c5_every_compression_comes_back() -> None:
    """Records of all five in one partition."""
    kinds = ("none", "gzip", "snappy", "lz4", "zstd")
    async with live_group(t=1) as group:
        for kind in kinds:
            async with AsyncProducer({**group.servers, "compression.type": kind}) as producer:
                await producer.send("t", kind.encode() * 100)
        group.join("C0", ("t",), **{"auto.offset.reset": "earliest"})
        await group.until(lambda: len(group.read.get("C0", [])) == len(kinds))
        assert [record.value for record in group.read["C0"]] == [kind.encode() * 100 for kind in kinds]


def test_c6_a_key_goes_where_javas_murmur2_puts_it() -> None:
    """These hashes are Kafka's own (`UtilsTest`)."""
    assert (murmur2(b"21"), murmur2(b"foobar")) == (-973_932_308, -790_332_482)
    assert partition_for_key(b"foobar", 7) == (-790_332_482 & 0x7FFFFFFF) % 7


async def test_c6_without_a_key_batches_stay_together_and_a_users_partitioner_decides() -> None:
    """Sticky: what is sent together without a key is one batch of one partition."""
    async with live_group(t=6) as group:
        async with AsyncProducer({**group.servers, "linger.ms": 1_000}) as producer:
            sent = [await producer.send("t", b"x") for _ in range(20)]
            await producer.flush()
            assert len({(await each).partition for each in sent}) == 1
        last = {**group.servers, "partitioner.class": lambda topic, key, count: count - 1}
        async with AsyncProducer(last) as producer:
            assert (await (await producer.send("t", b"x", key=b"k"))).partition == 5
    assert producer_config(HERE).batch_size == 16_384

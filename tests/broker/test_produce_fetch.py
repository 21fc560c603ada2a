"""Produce and Fetch, ListOffsets and their neighbours, over the wire."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.testing import AsyncBroker
from ottla.wire.apis import API, ApiKey
from ottla.wire.batch import HEADER_BYTES, seal
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import fetch as f
from ottla.wire.messages import list_offsets as lo
from ottla.wire.messages import produce as p
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.records import decode_batch
from tests.broker.records_io import fetch, fetch_request, produce
from tests.broker.ticking import some_turns_until
from tests.broker.wire_client import WireClient, batch

_T0 = 1_700_000_000_000


@pytest.fixture
async def topic_id(broker: AsyncBroker) -> AsyncIterator[bytes]:
    """A topic `t` of two partitions."""
    yield (await broker.node.topics.create("t", 2, {})).topic_id


def _values(records: bytes) -> list[bytes | None]:
    found, at = [], 0
    while at < len(records):
        size = 12 + int.from_bytes(records[at + 8 : at + 12], "big")
        found += [record.value for record in decode_batch(records, at)]
        at += size
    return found


@pytest.mark.parametrize("version", range(API[ApiKey.PRODUCE].min_version, 14))
async def test_every_version_of_produce_appends(client: WireClient, topic_id: bytes, version: int) -> None:
    first, second = await produce(client, batch(b"a", b"b"), batch(b"c"), version=version, topic_id=topic_id)
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 0)
    (again,) = await produce(client, batch(b"d"), version=version, topic_id=topic_id)
    assert again.base_offset == 2


@pytest.mark.parametrize("version", range(API[ApiKey.FETCH].min_version, 19))
async def test_every_version_of_fetch_reads(client: WireClient, topic_id: bytes, version: int) -> None:
    await produce(client, batch(b"a", b"b"))
    await produce(client, batch(b"c"))
    found = await fetch(client, version=version, topic_id=topic_id)
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 3, 3)
    assert _values(bytes(found.records)) == [b"a", b"b", b"c"]
    assert _values(bytes((await fetch(client, 2, version=version, topic_id=topic_id)).records)) == [b"c"]


@pytest.mark.usefixtures("topic_id")
async def test_unknown_partitions_topics_and_ids_are_told_apart(client: WireClient) -> None:
    (_, _, third) = await produce(client, batch(b"a"), batch(b"a"), batch(b"a"))
    assert third.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (unknown,) = await produce(client, batch(b"a"), version=13, topic_id=b"?" * 16)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await fetch(client, version=13, topic_id=b"?" * 16)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.usefixtures("topic_id")
async def test_bad_batches_are_refused_and_write_nothing(client: WireClient) -> None:
    good = batch(b"a", b"b")
    wrong_crc = bytearray(good)
    wrong_crc[-1] ^= 1
    for records in (bytes(wrong_crc), good[:-1], good + good, b"", None, b"x" * 100):
        (answer,) = await produce(client, records)
        assert answer.error_code != 0, records
        assert answer.base_offset == -1
    assert (await fetch(client)).high_watermark == 0


@pytest.mark.usefixtures("topic_id")
async def test_zstd_from_a_client_that_is_too_old_is_refused(client: WireClient) -> None:
    packed = batch(b"a", compression=Compression.ZSTD)
    (refused,) = await produce(client, packed, version=6)
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    (taken,) = await produce(client, packed, version=7)
    assert taken.error_code == 0


async def test_what_cannot_be_compressed_anew_is_refused_and_its_sender_named(
    client: WireClient, broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await broker.node.topics.create("t", 2, {"compression.type": "uncompressed"})
    garbage = bytearray(batch(b"a" * 100, compression=Compression.GZIP))
    garbage[HEADER_BYTES:] = bytes(len(garbage) - HEADER_BYTES)
    seal(garbage)
    refused, taken = await produce(client, bytes(garbage), batch(b"a", compression=Compression.GZIP))
    assert (refused.error_code, taken.error_code) == (ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE)
    assert (await fetch(client)).high_watermark == 0
    assert "a batch for t-0: CORRUPT_MESSAGE" in caplog.text


@pytest.mark.usefixtures("topic_id")
async def test_wrong_acks_are_refused(client: WireClient) -> None:
    (answer,) = await produce(client, batch(b"a"), acks=2)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.usefixtures("topic_id", "group_coordinator")
@pytest.mark.parametrize(
    ("records", "said"),
    [(None, ErrorCode.INVALID_RECORD), (b"", ErrorCode.INVALID_RECORD), (batch(b"a"), ErrorCode.NONE)],
)
async def test_what_is_wrong_with_a_request_is_said_before_what_is_wrong_with_its_records(
    client: WireClient, records: bytes | None, said: ErrorCode
) -> None:
    data = (p.PartitionProduceData(0, records), p.PartitionProduceData(99, records))
    topics = tuple(p.TopicProduceData(name=name, partition_data=data) for name in ("__consumer_offsets", "t"))
    refused = []
    for acks in (2, -1):
        answer = await client.ask(ApiKey.PRODUCE, p.ProduceRequest(None, acks, 1000, topics), 12)
        refused.append([[each.error_code for each in topic.partition_responses] for topic in answer.responses])
    unknown, wrong_acks = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUIRED_ACKS
    assert refused[0] == [[wrong_acks, unknown]] * 2
    assert refused[1] == [[ErrorCode.INVALID_TOPIC_EXCEPTION, unknown], [said, unknown]]


@pytest.mark.usefixtures("topic_id")
async def test_acks_0_gets_no_answer_and_a_closed_connection_when_refused(
    client: WireClient, broker: AsyncBroker
) -> None:
    def request(topic: str) -> p.ProduceRequest:
        data = (p.PartitionProduceData(0, batch(b"a")),)
        return p.ProduceRequest(None, 0, 1000, (p.TopicProduceData(name=topic, partition_data=data),))

    await client.send(ApiKey.PRODUCE, request("t"), 9)
    assert (await fetch(client)).high_watermark == 1
    async with WireClient(broker) as other:
        await other.send(ApiKey.PRODUCE, request("none"), 9)
        assert await other.is_closed()


@pytest.mark.usefixtures("topic_id")
async def test_p3_a_repeated_batch_is_answered_with_its_first_offset(client: WireClient) -> None:
    def sequenced(first: int) -> bytes:
        return batch(b"x", b"y", producer_id=7, producer_epoch=0, base_sequence=first)

    assert [(await produce(client, sequenced(at)))[0].base_offset for at in (0, 2, 4)] == [0, 2, 4]
    (again,) = await produce(client, sequenced(2))
    assert (again.error_code, again.base_offset) == (0, 2)
    (gap,) = await produce(client, sequenced(99))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await fetch(client)).high_watermark == 6


@pytest.mark.usefixtures("topic_id")
async def test_a_fetch_waits_for_data(client: WireClient, broker: AsyncBroker) -> None:
    async with WireClient(broker) as reader:
        await reader.send(ApiKey.FETCH, fetch_request(max_wait_ms=60_000), 11)
        waiting = asyncio.create_task(reader.answer(ApiKey.FETCH, 11))
        await produce(client, None, batch(b"elsewhere"))
        assert not waiting.done()
        await produce(client, batch(b"here"))
        answer = await waiting
    assert _values(bytes(answer.responses[0].partitions[0].records)) == [b"here"]


@pytest.mark.usefixtures("topic_id")
async def test_a_fetch_waits_until_min_bytes_are_there(client: WireClient, broker: AsyncBroker) -> None:
    small = batch(b"x" * 100)
    async with WireClient(broker) as reader:
        await reader.send(ApiKey.FETCH, fetch_request(max_wait_ms=60_000, min_bytes=2 * len(small)), 11)
        waiting = asyncio.create_task(reader.answer(ApiKey.FETCH, 11))
        await produce(client, small)
        await asyncio.sleep(0)
        assert not waiting.done()
        await produce(client, small)
        assert len(bytes((await waiting).responses[0].partitions[0].records)) == 2 * len(small)


@pytest.mark.usefixtures("topic_id")
async def test_a_fetch_does_not_wait_for_more_than_it_takes(client: WireClient) -> None:
    await produce(client, batch(b"x"))
    found = await fetch(client, max_wait_ms=3_600_000, min_bytes=2**20, max_bytes=10)
    assert _values(bytes(found.records)) == [b"x"]


@pytest.mark.usefixtures("topic_id")
async def test_a_fetch_gives_up_waiting_in_time(client: WireClient) -> None:
    found = await fetch(client, max_wait_ms=20)
    assert (found.error_code, found.high_watermark, bytes(found.records or b"")) == (0, 0, b"")


@pytest.mark.usefixtures("topic_id")
async def test_a_waiting_fetch_hears_that_its_topic_is_gone(client: WireClient, broker: AsyncBroker) -> None:
    async with WireClient(broker) as reader:
        await reader.send(ApiKey.FETCH, fetch_request(max_wait_ms=60_000), 11)
        await fetch(client)
        await broker.node.topics.delete_all([broker.node.image.topics["t"]])
        answer = await reader.answer(ApiKey.FETCH, 11)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.usefixtures("topic_id")
async def test_who_leaves_while_waiting_leaves_nothing_behind(client: WireClient, broker: AsyncBroker) -> None:
    async with WireClient(broker) as reader:
        await reader.send(ApiKey.FETCH, fetch_request(max_wait_ms=60_000), 11)
        await fetch(client)
    partition = broker.node.partitions.find("t", 0)
    assert partition is not None
    await some_turns_until(lambda: not partition.watched)
    await produce(client, batch(b"a"))


@pytest.mark.usefixtures("topic_id")
async def test_the_first_batch_comes_whole_and_limits_hold_for_the_rest(client: WireClient) -> None:
    large = batch(b"x" * 1000)
    for _ in range(3):
        await produce(client, large)
    assert len((await fetch(client, partition_max_bytes=1)).records) == len(large)
    assert len((await fetch(client, max_bytes=1)).records) == len(large)
    assert len((await fetch(client, max_bytes=2 * len(large))).records) == 2 * len(large)


@pytest.mark.usefixtures("topic_id")
async def test_offsets_outside_the_log_and_wrong_epochs_are_refused(client: WireClient) -> None:
    await produce(client, batch(b"a"))
    assert (await fetch(client, 9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await fetch(client, leader_epoch=5)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await fetch(client, leader_epoch=0)).error_code == 0


async def test_a_session_tells_only_news(client: WireClient, topic_id: bytes) -> None:
    await produce(client, batch(b"a"))
    first = await client.ask(ApiKey.FETCH, fetch_request(version=18, topic_id=topic_id, session_epoch=0), 18)
    assert first.session_id > 0
    later = f.FetchRequest(min_bytes=1, max_bytes=2**20, session_id=first.session_id, session_epoch=1)
    moved = fetch_request(1, version=18, topic_id=topic_id).topics
    quiet = await client.ask(ApiKey.FETCH, later._replace(topics=moved), 18)
    assert (quiet.error_code, quiet.responses) == (0, ())
    await produce(client, batch(b"b"))
    news = await client.ask(ApiKey.FETCH, later._replace(session_epoch=2), 18)
    assert _values(bytes(news.responses[0].partitions[0].records)) == [b"b"]
    wrong = await client.ask(ApiKey.FETCH, later._replace(session_epoch=9), 18)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize(
    ("timestamp", "offset", "found"),
    [(-1, 3, -1), (-2, 0, -1), (-3, 1, _T0 + 1), (-4, 0, -1), (_T0, 0, _T0), (_T0 + 1, 1, _T0 + 1), (_T0 + 9, -1, -1)],
)
@pytest.mark.usefixtures("topic_id")
async def test_offsets_by_time(client: WireClient, timestamp: int, offset: int, found: int) -> None:
    await produce(client, batch(b"a", b"b"))
    await produce(client, batch(b"c"))
    asked = (lo.ListOffsetsTopic("t", (lo.ListOffsetsPartition(0, -1, timestamp),)),)
    answer = await client.ask(ApiKey.LIST_OFFSETS, lo.ListOffsetsRequest(-1, 0, asked), 8)
    told = answer.topics[0].partitions[0]
    assert (told.error_code, told.offset, told.timestamp) == (0, offset, found)


@pytest.mark.usefixtures("topic_id")
async def test_a_question_newer_than_the_version_is_refused(client: WireClient) -> None:
    asked = (lo.ListOffsetsTopic("t", (lo.ListOffsetsPartition(0, -1, -3),)),)
    answer = await client.ask(ApiKey.LIST_OFFSETS, lo.ListOffsetsRequest(-1, 0, asked), 6)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.usefixtures("topic_id")
async def test_records_are_deleted_up_to_an_offset(client: WireClient) -> None:
    await produce(client, batch(b"a", b"b", b"c"))

    async def delete(offset: int) -> Any:
        topics = (DeleteRecordsTopic("t", (DeleteRecordsPartition(0, offset),)),)
        answer = await client.ask(ApiKey.DELETE_RECORDS, DeleteRecordsRequest(topics, 1000))
        return answer.topics[0].partitions[0]

    assert (await delete(2)).low_watermark == 2
    assert (await fetch(client, 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await fetch(client, 2)).log_start_offset == 2
    assert (await delete(9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await delete(-1)).low_watermark == 3


@pytest.mark.usefixtures("topic_id")
async def test_where_a_leader_epoch_ends(client: WireClient) -> None:
    await produce(client, batch(b"a", b"b"))
    asked = (OffsetForLeaderTopic("t", (OffsetForLeaderPartition(0, -1, 0),)),)
    answer = await client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest(topics=asked))
    told = answer.topics[0].partitions[0]
    assert (told.error_code, told.leader_epoch, told.end_offset) == (0, 0, 2)

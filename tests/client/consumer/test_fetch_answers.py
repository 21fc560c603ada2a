"""What a consumer makes of fetch answers, good and bad: a scripted broker of a topic `t` with two partitions."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from ottla import (
    AsyncConsumer,
    CorruptRecordsError,
    DisconnectedError,
    KafkaError,
    TopicPartition,
    UnsupportedVersionError,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import RequestHeader, decode_body, decode_request
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.records import Record, encode_batch
from tests.client.journeys import PATIENCE_S
from tests.client.listener import EVERYTHING, say

_ID = b"t" * 16
_TPS = [TopicPartition("t", 0), TopicPartition("t", 1)]
_UNKNOWN_CODE = 9_999

#: An answer to a fetch of these offsets, by partition: a message, or bytes that go out as they are.
Answers = Callable[[dict[int, int]], FetchResponse | bytes]


def records(partition: int, base: int, count: int) -> PartitionData:
    data = encode_batch([Record(base + i, 1, None, b"v", ()) for i in range(count)], base_offset=base)
    return PartitionData(partition, high_watermark=100, last_stable_offset=100, records=data)


def fetched(*partitions: PartitionData) -> FetchResponse:
    return FetchResponse(responses=(FetchableTopicResponse(_ID, "t", partitions),))


def metadata(port: int) -> MetadataResponse:
    partitions = tuple(MetadataResponsePartition(0, tp.partition, 1, 0, (1,), (1,)) for tp in _TPS)
    topic = MetadataResponseTopic(0, "t", _ID, False, partitions)
    return MetadataResponse(brokers=(MetadataResponseBroker(1, "127.0.0.1", port),), controller_id=1, topics=(topic,))


@asynccontextmanager
async def reading(answers: Answers, *, fetches: bool = True) -> AsyncIterator[AsyncConsumer]:
    """A consumer of both partitions from offset 0, of a broker that knows `fetches` and answers them so."""
    keys = EVERYTHING.api_keys if fetches else tuple(k for k in EVERYTHING.api_keys if k.api_key != ApiKey.FETCH)

    async def one(header: RequestHeader, frame: bytes, at: int, writer: asyncio.StreamWriter) -> None:
        if header.api_key == ApiKey.API_VERSIONS:
            say(header, writer, EVERYTHING._replace(api_keys=keys))
        elif header.api_key == ApiKey.METADATA:
            say(header, writer, metadata(writer.get_extra_info("sockname")[1]))
        elif header.api_key == ApiKey.FETCH:
            request = decode_body(FetchRequest, header.api_version, frame, at)
            answer = answers({p.partition: p.fetch_offset for topic in request.topics for p in topic.partitions})
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                say(header, writer, answer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                await one(*_split(frame), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    config = {
        "bootstrap.servers": f"127.0.0.1:{server.sockets[0].getsockname()[1]}",
        "max.poll.records": 1,
        "retry.backoff.ms": 1,
        "retry.backoff.max.ms": 1,
        "reconnect.backoff.ms": 1,
        "reconnect.backoff.max.ms": 1,
    }
    async with server, AsyncConsumer(config) as consumer:
        consumer.assign(_TPS)
        for tp in _TPS:
            consumer.seek(tp, 0)
        yield consumer


def _split(frame: bytes) -> tuple[RequestHeader, bytes, int]:
    header, at = decode_request(frame)
    return header, frame, at


async def taken(consumer: AsyncConsumer, count: int) -> list[tuple[int, int]]:
    """Partition and offset of the next `count` records, each by a poll of its own."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        found += [(record.partition, record.offset) for record in await consumer.poll(PATIENCE_S)]
    return found


@pytest.mark.parametrize("how", ["records", "columns"])
@pytest.mark.parametrize(
    "code", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR, 9_999]
)
async def test_c2_an_error_of_a_partition_does_not_overtake_its_records(code: int, how: str) -> None:
    if how == "columns":
        pytest.importorskip("pyarrow")
    asked_often: list[int] = []
    asked_on = asyncio.Event()

    def answers(asked: dict[int, int]) -> FetchResponse:
        if asked.get(0) == 0:
            return fetched(records(0, 0, 3))
        asked_often.append(len(asked))
        if len(asked_often) > 1:  # the consumer has read what the one before was answered
            asked_on.set()
        if 0 in asked:
            return fetched(PartitionData(0, error_code=code))
        return fetched(records(1, asked[1], 1)) if asked[1] < 50 else fetched()

    async with reading(answers) as consumer:
        await asked_on.wait()
        before: list[int] = []
        with pytest.raises(KafkaError, match="t-0") as raised:
            while True:
                if how == "columns":
                    came = await consumer.poll_arrow(PATIENCE_S)
                    before += came[_TPS[0]].column("offset").to_pylist() if _TPS[0] in came else []
                else:
                    before += [r.offset for r in await consumer.poll(PATIENCE_S) if r.partition == 0]
        assert before == [0, 1, 2]
        assert raised.value.code == (ErrorCode.UNKNOWN_SERVER_ERROR if code == _UNKNOWN_CODE else code)
        assert await consumer.position(_TPS[0]) == 3


async def test_c2_what_the_broker_finds_damaged_is_asked_again_and_may_be_mended() -> None:
    asked_often: list[int] = []

    def answers(asked: dict[int, int]) -> FetchResponse:
        if 0 not in asked:  # the other one alone, while this one waits to be asked again
            return fetched()
        asked_often.append(asked[0])
        if len(asked_often) < 3:
            return fetched(PartitionData(0, error_code=ErrorCode.CORRUPT_MESSAGE))
        return fetched(records(0, asked[0], 2))

    async with reading(answers) as consumer:
        for _ in range(2):
            with pytest.raises(CorruptRecordsError) as raised:
                await consumer.poll(PATIENCE_S)
            assert (raised.value.partition, raised.value.offset) == (_TPS[0], 0)
        assert await taken(consumer, 2) == [(0, 0), (0, 1)]


async def test_an_unknown_error_of_a_whole_answer_is_told_and_reading_goes_on() -> None:
    answered: list[object] = []

    def answers(asked: dict[int, int]) -> FetchResponse:
        answered.append(asked)
        return fetched(records(1, asked[1], 2)) if len(answered) > 1 else FetchResponse(error_code=_UNKNOWN_CODE)

    async with reading(answers) as consumer:
        with pytest.raises(KafkaError, match="error code 9999"):
            await consumer.poll(PATIENCE_S)
        assert await taken(consumer, 2) == [(1, 0), (1, 1)]


@pytest.mark.parametrize("garbage", [b"\0\0\0\2hi", b"\xff\xff\xff\xff"], ids=["too short", "negative length"])
async def test_an_answer_that_is_no_answer_is_told_and_reading_goes_on(garbage: bytes) -> None:
    answered: list[object] = []

    def answers(asked: dict[int, int]) -> FetchResponse | bytes:
        answered.append(asked)
        return fetched(records(1, asked[1], 2)) if len(answered) > 1 else garbage

    async with reading(answers) as consumer:
        with pytest.raises(DisconnectedError, match="not Kafka's protocol"):
            await consumer.poll(PATIENCE_S)
        assert await taken(consumer, 2) == [(1, 0), (1, 1)]


async def test_a_broker_without_fetch_is_an_error_of_every_poll() -> None:
    async with reading(lambda asked: fetched(), fetches=False) as consumer:
        for _ in range(3):
            with pytest.raises(UnsupportedVersionError, match="no version of FETCH"):
                await consumer.poll(PATIENCE_S)


async def test_c2_a_batch_that_never_comes_whole_is_told_behind_the_records() -> None:
    def answers(asked: dict[int, int]) -> FetchResponse:
        if asked.get(0) == 0:
            return fetched(records(0, 0, 2))
        cut = records(0, 2, 1)
        return fetched(cut._replace(records=bytes(cut.records or b"")[:-1])) if 0 in asked else fetched()

    async with reading(answers) as consumer:
        assert await taken(consumer, 2) == [(0, 0), (0, 1)]
        with pytest.raises(KafkaError, match="the batch at offset 2 did not come whole"):
            await consumer.poll(PATIENCE_S)

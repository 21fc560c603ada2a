"""KIP-126 after a lost answer: a scripted broker of a topic `t` hangs up once, and then finds batches too large."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ottla import AsyncProducer, KafkaError
from ottla.wire.apis import ApiKey
from ottla.wire.batch import parse_header
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_body, decode_request
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.journeys import PATIENCE_S
from tests.client.listener import EVERYTHING, say

_ID = b"t" * 16


class Scripted:
    """The leader of t-0. It hears batches as (epoch, first sequence, record count); code for those of two records."""

    def __init__(self, for_halves: ErrorCode) -> None:
        self.heard: list[tuple[int, int, int]] = []
        self._for_halves = for_halves

    def produce(self, epoch: int, sequence: int, count: int) -> PartitionProduceResponse | None:
        self.heard.append((epoch, sequence, count))
        if len(self.heard) == 1:
            return None  # it hangs up
        if count > 2:
            return PartitionProduceResponse(0, ErrorCode.MESSAGE_TOO_LARGE)
        return PartitionProduceResponse(0, self._for_halves if count == 2 else 0, 100 + sequence)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("sockname")[1]
        partitions = (MetadataResponsePartition(0, 0, 1, 0, (1,), (1,)),)
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                header, at = decode_request(frame)
                if header.api_key == ApiKey.API_VERSIONS:
                    say(header, writer, EVERYTHING)
                elif header.api_key == ApiKey.METADATA:
                    brokers = (MetadataResponseBroker(1, "127.0.0.1", port),)
                    topics = (MetadataResponseTopic(0, "t", _ID, False, partitions),)
                    say(header, writer, MetadataResponse(brokers=brokers, controller_id=1, topics=topics))
                elif header.api_key == ApiKey.INIT_PRODUCER_ID:
                    say(header, writer, InitProducerIdResponse(producer_id=7))
                elif header.api_key == ApiKey.PRODUCE:
                    request = decode_body(ProduceRequest, header.api_version, frame, at)
                    batch = parse_header(request.topic_data[0].partition_data[0].records)
                    said = self.produce(batch.producer_epoch, batch.base_sequence, batch.record_count)
                    if said is None:
                        break
                    say(header, writer, ProduceResponse((TopicProduceResponse(_ID, "t", (said,)),)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


@asynccontextmanager
async def producer_of(broker: Scripted) -> AsyncIterator[AsyncProducer]:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    config = {"bootstrap.servers": f"127.0.0.1:{server.sockets[0].getsockname()[1]}", "linger.ms": 60_000}
    async with server, AsyncProducer(config | {"retry.backoff.ms": 1, "reconnect.backoff.ms": 1}) as producer:
        yield producer


async def test_halves_go_with_the_sequences_of_the_whole() -> None:
    broker = Scripted(ErrorCode.NONE)
    async with producer_of(broker) as producer:
        sent = [await producer.send("t", b"v") for _ in range(4)]
        await producer.flush(PATIENCE_S)
        assert [(await delivery).offset for delivery in sent] == [100, 101, 102, 103]
    assert broker.heard == [(0, 0, 4), (0, 0, 4), (0, 0, 2), (0, 2, 2)]


async def test_when_the_broker_has_the_whole_already_they_fail_and_are_not_counted_again() -> None:
    broker = Scripted(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    async with producer_of(broker) as producer:
        sent = [await producer.send("t", b"v") for _ in range(4)]
        await producer.flush(PATIENCE_S)
        for delivery in sent:
            with pytest.raises(KafkaError, match=r"t-0: it is unknown whether 2 records were written: .*max\.message"):
                await delivery
        after = await producer.send("t", b"after")
        await producer.flush(PATIENCE_S)
        assert (await after).offset == 100
    assert broker.heard == [(0, 0, 4), (0, 0, 4), (0, 0, 2), (0, 2, 2), (1, 0, 1)]

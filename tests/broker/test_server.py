"""Frames of every kind: what cannot be understood closes its connection and disturbs nobody else."""

import asyncio
import socket
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.base.clock import ManualClock
from ottla.broker.sockets.tls import UNEXPECTED_MESSAGE
from ottla.testing import AsyncBroker
from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages import produce as p
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.metadata import MetadataRequest
from tests.broker.records_io import fetch_request, produce
from tests.broker.wire_client import WireClient, batch, first_version

_NAMED = ApiVersionsRequest("test", "1.0")


async def test_api_versions_tells_the_table(client: WireClient) -> None:
    answer = await client.ask(ApiKey.API_VERSIONS, _NAMED)
    versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert versions[ApiKey.PRODUCE] == (0, 13)  # as Kafka: older librdkafkas would not compress
    assert versions[ApiKey.INIT_PRODUCER_ID] == (0, 5)
    assert versions[ApiKey.SASL_HANDSHAKE] == (0, 1)
    features = {each.name: each.max_version_level for each in answer.finalized_features}
    assert features["transaction.version"] == 2


@pytest.mark.parametrize("version", [5, 99, 32767])
async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(client: WireClient, version: int) -> None:
    await client.send_bytes(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, version, 42, -1))
    correlation_id, answer = decode_response(ApiKey.API_VERSIONS, 0, await client.frame())
    assert correlation_id == 42
    assert isinstance(answer, ApiVersionsResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [each.api_key for each in answer.api_keys] == [ApiKey.API_VERSIONS]


async def test_a_client_name_with_odd_letters_is_refused(client: WireClient) -> None:
    answer = await client.ask(ApiKey.API_VERSIONS, ApiVersionsRequest("a b", "1"))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


_BAD_FRAMES = {
    "negative length": struct.pack(">i", -1),
    "longer than socket.request.max.bytes": struct.pack(">i", 104_857_601),
    "largest length there is": struct.pack(">i", 2**31 - 1),
    "no header": struct.pack(">i", 0),
    "half a header": struct.pack(">ih", 2, 3),
    "unknown API": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "negative API": struct.pack(">ihhih", 10, -5, 0, 1, -1),
    "version of the future": struct.pack(">ihhih", 10, ApiKey.METADATA, 99, 1, -1),
    "version of the past": struct.pack(">ihhih", 10, ApiKey.PRODUCE, 0, 1, -1),
    "InitProducerId 6, which is unstable": struct.pack(">ihhihb", 11, ApiKey.INIT_PRODUCER_ID, 6, 1, -1, 0),
    "client id beyond the end": struct.pack(">ihhih", 10, ApiKey.METADATA, 1, 1, 500),
    "no body": struct.pack(">ihhih", 10, ApiKey.METADATA, 1, 1, -1),
    "array of two thousand millions": struct.pack(">ihhihi", 14, ApiKey.METADATA, 1, 1, -1, 2**31 - 1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("name", _BAD_FRAMES)
async def test_a_bad_frame_closes_its_connection_only(broker: AsyncBroker, name: str) -> None:
    async with WireClient(broker) as good, WireClient(broker) as bad:
        await bad.send_bytes(_BAD_FRAMES[name])
        assert await bad.is_closed()
        assert (await good.ask(ApiKey.API_VERSIONS, _NAMED)).error_code == 0


async def test_who_begins_with_tls_gets_an_alert_and_then_the_end(broker: AsyncBroker) -> None:
    async with WireClient(broker) as bad:
        await bad.send_bytes(bytes.fromhex("160301020001000001fc0303"))
        assert await bad.drained() == UNEXPECTED_MESSAGE


async def test_a_frame_in_single_bytes_is_understood(client: WireClient) -> None:
    frame = struct.pack(">ihhihb", 11, ApiKey.METADATA, first_version(ApiKey.METADATA), 7, 1, ord("x"))
    frame = struct.pack(">i", 15) + frame[4:] + struct.pack(">i", 0)
    for at in range(len(frame)):
        await client.send_bytes(frame[at : at + 1])
    correlation_id, answer = decode_response(ApiKey.METADATA, 0, await client.frame())
    assert correlation_id == 7
    assert len(answer.brokers) == 1


async def test_pipelined_requests_are_answered_in_order(broker: AsyncBroker) -> None:
    frame = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 0, -1)
    async with WireClient(broker) as client:
        await client.send_bytes(b"".join(frame[:8] + struct.pack(">i", number) + frame[12:] for number in range(500)))
        for number in range(500):
            correlation_id, _ = decode_response(ApiKey.API_VERSIONS, 0, await client.frame())
            assert correlation_id == number


async def test_bytes_after_a_request_are_ignored_as_kafka_does(client: WireClient) -> None:
    body = bytes.fromhex("00000000010000")  # librdkafka's "all topics": an old-style array in a flexible version
    frame = struct.pack(">hhihb", ApiKey.METADATA, 13, 1, -1, 0) + body
    await client.send_bytes(struct.pack(">i", len(frame)) + frame)
    _, answer = decode_response(ApiKey.METADATA, 13, await client.frame())
    assert len(answer.brokers) == 1


async def test_idle_connections_are_closed() -> None:
    clock = ManualClock()
    async with AsyncBroker({"connections.max.idle.ms": 5_000}, clock=clock) as broker, WireClient(broker) as idle:
        await idle.ask(ApiKey.API_VERSIONS, _NAMED)
        clock.advance(6_000)
        broker.node.timers.fire()
        assert await idle.is_closed()


async def test_who_reads_slowly_is_not_idle() -> None:
    """An answer may take longer than `connections.max.idle.ms` on its way."""
    clock, loop = ManualClock(), asyncio.get_running_loop()
    async with AsyncBroker({"connections.max.idle.ms": 5_000}, clock=clock) as broker:
        await broker.node.topics.create("t", 1, {})
        async with WireClient(broker) as client:
            for _ in range(12):
                assert (await produce(client, batch(bytes(900_000))))[0].error_code == 0
        frame = encode_request(ApiKey.FETCH, 11, 1, "slow", fetch_request(max_bytes=2**30, partition_max_bytes=2**30))
        with socket.socket() as slow:
            slow.setblocking(False)
            await loop.sock_connect(slow, (broker.host, broker.port))
            await loop.sock_sendall(slow, frame)
            read_bytes, size = 4, int.from_bytes(await loop.sock_recv(slow, 4), "big")
            while read_bytes < size + 4:
                for _ in range(20):
                    got = await loop.sock_recv(slow, min(100_000, size + 4 - read_bytes))
                    read_bytes += len(got)
                    if not got:
                        break
                assert got or read_bytes == size + 4, "the broker has closed the connection"
                clock.advance(3_000)
                broker.node.timers.fire()
            assert clock.monotonic_ms() > 10_000


async def test_what_came_before_the_end_is_carried_out(broker: AsyncBroker) -> None:
    """A producer with acks=0 closes when it has sent all."""
    await broker.node.topics.create("t", 1, {})
    data = (p.PartitionProduceData(0, batch(b"v")),)
    request = p.ProduceRequest(None, 0, 1000, (p.TopicProduceData(name="t", partition_data=data),))
    frame = encode_request(ApiKey.PRODUCE, 12, 1, "c", request)
    async with WireClient(broker) as client:
        await client.send_bytes(frame * 500)
        assert await client.drained() == b""
    log = broker.node.partitions.find("t", 0).log  # type: ignore[union-attr]
    assert log.end_offset == 500


async def test_more_than_max_connections_are_refused() -> None:
    async with AsyncBroker({"max.connections": 1}) as broker, WireClient(broker) as first:
        assert (await first.ask(ApiKey.METADATA, MetadataRequest())).brokers
        async with WireClient(broker) as second:
            assert await second.is_closed()


_KEYS = st.sampled_from(sorted(API)) | st.integers(-(2**15), 2**15 - 1)
_FRAMES = st.builds(
    lambda key, version, body: struct.pack(">hhih", key, version, 1, -1) + body,
    _KEYS,
    st.integers(0, 20),
    st.binary(max_size=200),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_FRAMES | st.binary(max_size=300), max_size=20))
def test_no_bytes_disturb_the_broker(frames: list[bytes]) -> None:
    """Garbage with whole lengths, for every API and version, each frame on a connection of its own."""

    async def run() -> None:
        async with AsyncBroker({"auto.create.topics.enable": "false"}) as broker:
            for frame in frames:
                async with WireClient(broker) as bad:
                    await bad.send_bytes(struct.pack(">i", len(frame)) + frame)
                    await bad.drained()
            async with WireClient(broker) as good:
                assert (await good.ask(ApiKey.API_VERSIONS, _NAMED)).error_code == 0

    asyncio.run(run())

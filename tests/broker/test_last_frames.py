"""A producer with acks=0 closes when it has sent all: what has come is written, as in Kafka."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.base.clock import ManualClock
from ottla.base.limits import FRAMES_AT_ONCE
from ottla.broker.answers import Later
from ottla.broker.connections import Connections
from ottla.broker.last_frames import LastFrames
from ottla.broker.listening import Listener
from ottla.broker.session import Session
from ottla.broker.turn import Turn
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.frames import encode_request
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch
from tests.broker.four_listeners import make_certificates, settings
from tests.broker.lone_connections import LoneClient
from tests.broker.ticking import some_turns_until
from tests.broker.wire_client import WireClient

_VERSION = 12


def _frame(partitions: int = 1, size_bytes: int = 100) -> bytes:
    records = encode_batch([Record(0, 1_700_000_000_000, b"k", b"v" * size_bytes)])
    data = tuple(PartitionProduceData(number, records) for number in range(partitions))
    return encode_request(
        ApiKey.PRODUCE,
        _VERSION,
        1,
        "c",
        ProduceRequest(None, 0, 1000, (TopicProduceData(name="t", partition_data=data),)),
    )


def _written(broker: AsyncBroker, partitions: int = 1) -> int:
    found = [broker.node.partitions.find("t", number) for number in range(partitions)]
    return sum(each.log.end_offset for each in found if each is not None)


@pytest.mark.parametrize(
    ("config", "partitions", "size_bytes"),
    [
        pytest.param({"compression.type": "gzip"}, 1, 500_000, id="compressed in a thread"),
        pytest.param({"cleanup.policy": "compact"}, 1, 500_000, id="keys are looked at in a thread"),
        pytest.param({}, 100, 100, id="many partitions, in slices"),
    ],
)
async def test_what_is_under_way_when_the_client_closes_is_written(
    config: dict[str, str], partitions: int, size_bytes: int
) -> None:
    """It was cancelled with its connection, and the client heard of nothing."""
    async with AsyncBroker() as broker:
        await broker.create_topics("t", partitions=partitions, config=config)
        async with WireClient(broker) as client:
            await client.send_bytes(_frame(partitions, size_bytes))
            assert await client.drained() == b""
        await some_turns_until(lambda: _written(broker, partitions) == partitions)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
async def test_what_is_on_its_way_when_the_client_closes_without_hearing_answers_is_written(
    tmp_path: Path, protocol: str
) -> None:
    make_certificates(tmp_path)
    async with AsyncBroker(settings(tmp_path)) as broker:
        await broker.create_topics("t", partitions=1)
        host, port = broker.listener(protocol).rsplit(":", 1)
        tls = None if protocol == "PLAINTEXT" else ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        _, writer = await asyncio.open_connection(host, int(port), ssl=tls)
        asked = encode_request(ApiKey.METADATA, 12, 1, "c", MetadataRequest())
        writer.write((_frame() + asked) * 200)
        await writer.drain()
        writer.close()
        await some_turns_until(lambda: _written(broker) == 200)


@pytest.mark.parametrize(
    ("how", "written"), [("ended", 2 * FRAMES_AT_ONCE), ("closed here", FRAMES_AT_ONCE), ("reset", FRAMES_AT_ONCE)]
)
async def test_what_waits_when_a_connection_ends_is_written_if_its_client_has_ended_it(how: str, written: int) -> None:
    clock, handled = ManualClock(), list[bytes]()
    connections = Connections(clock, max_idle_ms=-1)
    listener = Listener(
        lambda frame, _session: handled.append(bytes(frame)), clock, connections, name="SSL", max_request_bytes=100
    )
    client = LoneClient(listener, b"\0\0")
    client.send_bytes((struct.pack(">i", 2) + b"\0\0") * 2 * FRAMES_AT_ONCE)
    assert len(handled) == FRAMES_AT_ONCE
    if how == "ended":
        assert client.connection.eof_received()
    elif how == "closed here":
        client.connection.close()
    client.connection.connection_lost(ConnectionError() if how == "reset" else None)
    for _ in range(10 * FRAMES_AT_ONCE):
        await asyncio.sleep(0)
    assert len(handled) == written
    client.close()


@pytest.mark.parametrize("says_goodbye", [True, False])
async def test_what_a_client_with_tls_has_sent_before_its_end_is_answered(tmp_path: Path, says_goodbye: bool) -> None:
    """Also where TLS ends without a word (no close_notify)."""
    make_certificates(tmp_path)
    async with AsyncBroker(settings(tmp_path)) as broker:
        host, port = broker.listener("SSL").rsplit(":", 1)
        tls = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        asked = encode_request(ApiKey.METADATA, 12, 1, "c", MetadataRequest())
        loop = asyncio.get_running_loop()

        def ask() -> int:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            mine = tls.wrap_bio(incoming, outgoing, server_hostname=host)
            with socket.create_connection((host, int(port))) as bare:
                while True:
                    try:
                        mine.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        bare.sendall(outgoing.read())
                        incoming.write(bare.recv(65_536))
                mine.write(asked * 200)
                if says_goodbye:  # before any answer has come: OpenSSL takes none while it says it
                    with suppress(ssl.SSLWantReadError):
                        mine.unwrap()
                bare.sendall(outgoing.read())
                if not says_goodbye:
                    bare.shutdown(socket.SHUT_WR)
                while more := bare.recv(65_536):
                    incoming.write(more)
            answers = 0
            with suppress(ssl.SSLZeroReturnError):  # both have said goodbye
                while heard := mine.read(65_536):
                    answers += len(heard)
            return answers

        one = await loop.run_in_executor(None, ask)
        assert one % 200 == 0
        assert one > 0


async def test_of_more_than_may_wait_nothing_is_begun() -> None:
    done: list[bytes] = []

    def dispatch(frame: bytes | bytearray | memoryview, session: Session) -> None:
        done.append(bytes(frame))

    session = Session("PLAINTEXT", "/127.0.0.1")
    last = LastFrames(10, Turn(), ManualClock())
    under_way = Later(asyncio.get_running_loop().create_future(), lambda result: None)
    assert last.take(under_way, [b"\0\0first"], dispatch, session)
    assert not last.take(None, [b"\0\0second"], dispatch, session)
    assert last.take(None, [b"\0\3no produce"], dispatch, session)
    under_way.future.set_result(None)
    await some_turns_until(lambda: done == [b"\0\0first"])
    await some_turns_until(lambda: last.take(None, [b"\0\0second"], dispatch, session))
    await some_turns_until(lambda: done == [b"\0\0first", b"\0\0second"])


async def test_a_stop_ends_what_is_under_way() -> None:
    last = LastFrames(10, Turn(), ManualClock())
    under_way = Later(asyncio.get_running_loop().create_future(), lambda result: None)
    last.take(under_way, [], lambda frame, session: None, Session("PLAINTEXT", "/127.0.0.1"))
    await asyncio.sleep(0)
    last.stop()
    await some_turns_until(under_way.future.cancelled)
    late = Later(asyncio.get_running_loop().create_future(), lambda result: None)
    last.take(late, [b"\0\0late"], lambda frame, session: None, Session("PLAINTEXT", "/127.0.0.1"))
    assert late.future.cancelled(), "a connection that is lost behind the stop adds nothing"

"""The idempotent producer, P1 to P7: what it takes for a record to be there once, and in its place."""

from __future__ import annotations

import asyncio

import pytest

from ottla import AsyncAdmin, AsyncConsumer, AsyncProducer, ConfigError, NewTopic, Producer, TopicPartition
from ottla.base.steps import result_of
from ottla.client.core import intents
from ottla.client.errors import DisconnectedError, RequestTimeoutError
from ottla.log.config import LogConfig
from ottla.testing import AsyncBroker, Broker
from ottla.wire.apis import ApiKey
from ottla.wire.batch import parse_header
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.wire_client import WireClient, batch
from tests.client.core.producer.by_hand import ByHand
from tests.client.core.producer.world import World
from tests.log.batches import NOW_MS, idempotent
from tests.log.logs import append, append_in_transaction, open_log
from tests.seeds.live import PATIENCE_S

TP = TopicPartition("t", 0)
_NOWHERE: dict[str, object] = {"bootstrap.servers": "127.0.0.1:9092"}
#: How many ids a broker takes into stock at once (KIP-730).
_BLOCK = 1_000


@pytest.mark.parametrize(
    ("contradiction", "named"),
    [({"acks": "1"}, "acks"), ({"retries": 0}, "retries"), ({"max.in.flight.requests.per.connection": 6}, "flight")],
)
def test_p1_idempotence_is_on_and_a_contradiction_is_an_error(contradiction: dict[str, object], named: str) -> None:
    """`enable.idempotence` is true unless told otherwise; asked for by name it does not give way in silence."""
    with pytest.raises(ConfigError, match=named):
        Producer({**_NOWHERE, "enable.idempotence": True, **contradiction})


async def _new_producer(client: WireClient) -> int:
    answer = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(None, 60_000))
    assert answer.error_code == ErrorCode.NONE
    return int(answer.producer_id)


async def test_p2_no_producer_id_is_given_twice_over_crashes() -> None:
    """A block of 1,000 is on disk before its first id is used. A broker that is killed throws the rest away."""
    given: list[int] = []
    with Broker() as broker:
        for _ in range(3):
            async with WireClient(broker) as client:
                given += [await _new_producer(client) for _ in range(3)]
            broker.kill()
            broker.restart()
    assert len(set(given)) == len(given)
    assert {later - earlier for earlier, later in zip(given[::3], given[3::3], strict=False)} == {_BLOCK}


async def _produce(client: WireClient, sequence: int, *values: bytes, epoch: int = 0) -> tuple[ErrorCode, int]:
    """A batch of producer 7: the error, and where its first record is."""
    records = batch(*values, producer_id=7, producer_epoch=epoch, base_sequence=sequence)
    topic = TopicProduceData(name="t", partition_data=(PartitionProduceData(0, records),))
    answer = await client.ask(ApiKey.PRODUCE, ProduceRequest(None, -1, 1_000, (topic,)), 12)
    (told,) = answer.responses[0].partition_responses
    return ErrorCode(told.error_code), told.base_offset


async def _create(servers: str) -> None:
    async with AsyncAdmin({"bootstrap.servers": servers}) as admin:
        await admin.create_topics([NewTopic("t", 1)])


async def _all(servers: str, count: int) -> list[bytes]:
    """The first records of the partition, and that there are no more of them."""
    async with AsyncConsumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TP])
        found: list[bytes] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < count:
                found += [record.value or b"" for record in await consumer.poll(0.1)]
        assert (await consumer.end_offsets([TP]))[TP] == len(found)
    return found


async def test_p3_the_broker_takes_the_next_sequence_and_knows_the_last_five_batches() -> None:
    async with AsyncBroker() as broker, WireClient(broker) as client:
        await _create(broker.bootstrap_servers)
        out_of_order = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        for number in range(6):
            assert await _produce(client, number, b"%d" % number) == (ErrorCode.NONE, number)
        assert await _produce(client, 1, b"1") == (ErrorCode.NONE, 1), "a repetition is answered, and not written"
        assert await _produce(client, 0, b"0") == out_of_order, "the sixth last is forgotten"
        assert await _produce(client, 7, b"7") == out_of_order, "a gap"
        assert await _produce(client, 6, b"6", epoch=1) == out_of_order, "a new epoch begins at 0"
        assert await _produce(client, 0, b"6", epoch=1) == (ErrorCode.NONE, 6)
        assert await _produce(client, 6, b"6") == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert await _all(broker.bootstrap_servers, 7) == [b"%d" % number for number in range(7)]


def test_p4_with_five_in_flight_a_broken_connection_lets_nothing_overtake() -> None:
    """Two of the five had arrived, and one answer; the rest is sent again, and the log has each record in its place."""
    world = World()
    world.send(0, 1)
    world.settle()  # until the broker knows the producer, a batch goes alone
    for _ in range(7):
        world.send(0, 1)
    assert len(world.wires[1].requests) == 5
    world.serve(1)
    world.hear(1)
    world.break_connection(1, served=2)
    world.settle()
    assert world.leaders[0].values == list(range(8))
    assert all(record.delivery.exception() is None for record in world.records)


def test_p5_a_batch_that_is_given_up_on_ends_its_epoch() -> None:
    """After `delivery.timeout.ms` nobody knows if it was written: what follows begins at 0 in a new epoch (KIP-360)."""
    producer = ByHand("t", delivery_timeout_ms=1_000, request_timeout_ms=500, retry_backoff_ms=9_000)
    producer.send("t")
    producer.identify(7, 3)
    producer.connect()
    assert _sent_as(producer.acknowledge()) == (7, 3, 0)
    in_doubt = producer.send("t")
    producer.lose(ApiKey.PRODUCE, DisconnectedError("no answer came"))
    producer.pass_time(1.1)
    assert isinstance(in_doubt.exception(), RequestTimeoutError)
    following = producer.send("t")
    assert _sent_as(producer.acknowledge()) == (7, 4, 0)
    assert following.exception() is None


def _sent_as(ask: intents.Ask) -> tuple[int, int, int]:
    """Producer id, epoch and sequence of the request's batch."""
    (topic,) = ask.message.topic_data  # type: ignore[union-attr]
    header = parse_header(bytes(topic.partition_data[0].records))
    return header.producer_id, header.producer_epoch, header.base_sequence


async def test_p6_two_equal_records_are_two_records() -> None:
    """Only a repetition of the client's own is taken for one."""
    async with AsyncBroker() as broker:
        await _create(broker.bootstrap_servers)
        async with AsyncProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            for _ in range(2):
                await producer.send("t", b"same", key=b"k", timestamp_ms=1_000)
        assert await _all(broker.bootstrap_servers, 2) == [b"same", b"same"]


async def test_p7_what_is_known_of_producers_outlives_a_crash() -> None:
    """It comes back from a snapshot, and from the log behind it."""
    with Broker() as broker:
        async with WireClient(broker) as client:
            await _create(broker.bootstrap_servers)
            assert await _produce(client, 0, b"0") == (ErrorCode.NONE, 0)
        broker.kill()
        broker.restart()
        async with WireClient(broker) as client:
            assert await _produce(client, 0, b"0") == (ErrorCode.NONE, 0)
            assert await _produce(client, 1, b"1") == (ErrorCode.NONE, 1)
        assert await _all(broker.bootstrap_servers, 2) == [b"0", b"1"]


def test_p7_and_is_forgotten_after_its_time() -> None:
    """`producer.id.expiration.ms` after its last batch, unless a transaction of it is open."""
    log = open_log(config=LogConfig(producer_id_expiration_ms=1_000))
    append(log, idempotent(0, producer_id=1))
    append_in_transaction(log, 0, producer_id=2)
    assert result_of(log.expire_producers(NOW_MS + 999)) == 0
    assert result_of(log.expire_producers(NOW_MS + 1_000)) == 1
    assert [each.producer_id for each in log.producers.active()] == [2]

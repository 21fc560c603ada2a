"""Faults as switches: each harms the message it names, and no other; clients live through it."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer as LibrdkafkaProducer

from ottla import Admin, AsyncConsumer, AsyncProducer, Producer, TopicPartition
from ottla.client.errors import KafkaError
from ottla.testing import AsyncBroker, Broker, Faults
from ottla.testing.faults.refusals import _MIRRORS, _ONE_ERROR, names_its_parts, refusal, spoiled
from ottla.testing.ports import free_port
from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_body, decode_response, encode_response
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from ottla.wire.schema import encode
from tests.testing.samples import sample

PATIENCE_S = 60.0
_ERROR = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture(scope="module")
def _running() -> Iterator[Broker]:
    with Broker(faults=Faults()) as broker:
        yield broker


@pytest.fixture
def broker(_running: Broker) -> Iterator[Broker]:
    """A broker behind faults, of which none is left over."""
    yield _running
    assert _running.faults is not None
    _running.faults.clear()


@pytest.fixture
def faults(broker: Broker) -> Faults:
    """Its faults."""
    assert broker.faults is not None
    return broker.faults


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of one partition."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topics(name)
    return name


def _producer(broker: Broker, **more: object) -> Producer:
    settings = {key.replace("_", "."): value for key, value in more.items()}
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10, **settings})


def _values(broker: Broker, topic: str) -> list[bytes]:
    """Everything in the topic."""
    return [record.value or b"" for record in broker.records(topic)]


@pytest.mark.parametrize("answer", [False, True], ids=["request", "answer"])
@pytest.mark.parametrize("silent", [False, True], ids=["cut", "silent"])
def test_what_is_dropped_is_sent_again_and_written_once(
    broker: Broker, faults: Faults, topic: str, *, answer: bool, silent: bool
) -> None:
    fault = faults.drop("Produce", answer=answer, silent=silent)
    with _producer(broker, request_timeout_ms=500, delivery_timeout_ms=60_000) as producer:
        producer.send(topic, b"once").result(PATIENCE_S)
    assert fault.happened == 1
    assert _values(broker, topic) == [b"once"]


def test_a_request_that_fails_is_not_carried_out(broker: Broker, faults: Faults, topic: str) -> None:
    with _producer(broker, retries=0, enable_idempotence=False) as producer:
        faults.fail("Produce", "NOT_ENOUGH_REPLICAS")
        with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
            producer.send(topic, b"lost").result(PATIENCE_S)
        faults.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, done=True)
        with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS_AFTER_APPEND"):
            producer.send(topic, b"written").result(PATIENCE_S)
        producer.send(topic, b"well").result(PATIENCE_S)
    assert _values(broker, topic) == [b"written", b"well"]


def test_librdkafka_lives_through_a_fault_of_each_kind(broker: Broker, faults: Faults, topic: str) -> None:
    fault_list = [
        faults.fail("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS"),
        faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER"),
        faults.drop("Produce", answer=True, nth=2),
        faults.delay("Produce", 0.01, nth=3),
        faults.repeat("Produce", nth=4),
    ]
    settings = {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "retry.backoff.ms": 10}
    producer: Any = LibrdkafkaProducer(settings)
    for number in range(8):
        producer.produce(topic, b"%d" % number)
        assert producer.flush(PATIENCE_S) == 0
    assert [fault.happened for fault in fault_list] == [1] * 5
    assert _values(broker, topic) == [b"%d" % number for number in range(8)]


def test_a_late_answer_comes_when_its_client_has_given_up(broker: Broker, faults: Faults, topic: str) -> None:
    faults.delay("Produce", 3_600.0, answer=True)
    with _producer(broker, request_timeout_ms=300, delivery_timeout_ms=60_000) as producer:
        producer.send(topic, b"once").result(PATIENCE_S)
    assert _values(broker, topic) == [b"once"]


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_repeated_request_is_written_twice_unless_it_is_idempotent(
    broker: Broker, faults: Faults, topic: str, *, idempotent: bool
) -> None:
    faults.repeat("Produce")
    with _producer(broker, enable_idempotence=idempotent) as producer:
        for value in (b"1", b"2"):
            producer.send(topic, value).result(PATIENCE_S)
    assert _values(broker, topic) == ([b"1", b"2"] if idempotent else [b"1", b"1", b"2"])


def test_an_answer_that_comes_twice_costs_the_connection_and_nothing_else(
    broker: Broker, faults: Faults, topic: str
) -> None:
    fault = faults.repeat("Produce", answer=True)
    with _producer(broker) as producer:
        for value in (b"1", b"2"):
            producer.send(topic, value).result(PATIENCE_S)
    assert fault.happened == 1
    assert _values(broker, topic) == [b"1", b"2"]


def test_requests_are_counted_and_of_one_client_if_that_is_asked(broker: Broker, faults: Faults, topic: str) -> None:
    fault = faults.fail("Produce", "NOT_ENOUGH_REPLICAS", nth=2, times=2, client_id="one")
    with (
        _producer(broker, retries=0, enable_idempotence=False, client_id="one") as one,
        _producer(broker, retries=0, enable_idempotence=False, client_id="other") as other,
    ):
        told = []
        for number in range(4):
            other.send(topic, b"other").result(PATIENCE_S)
            try:
                one.send(topic, b"%d" % number).result(PATIENCE_S)
            except KafkaError as error:
                told.append((number, error.code))
    assert told == [(1, ErrorCode.NOT_ENOUGH_REPLICAS), (2, ErrorCode.NOT_ENOUGH_REPLICAS)]
    assert (fault.seen, fault.happened) == (4, 2)
    fault.wait(0.0, times=2)
    with pytest.raises(TimeoutError, match="fail the request of Produce: happened 2 times"):
        fault.wait(0.0, times=3)


def test_what_a_test_asks_of_its_broker_meets_no_fault(broker: Broker, faults: Faults, topic: str) -> None:
    never = [faults.drop(api, times=None) for api in ("Metadata", "Fetch", "ListOffsets", "DescribeGroups")]
    assert broker.records(topic) == []
    assert [fault.seen for fault in never] == [0] * 4


def test_all_from_now_on_until_it_is_cancelled(broker: Broker, faults: Faults, topic: str) -> None:
    fault = faults.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None)
    with _producer(broker) as producer:
        delivery = producer.send(topic, b"in the end")
        fault.wait(PATIENCE_S, times=3)
        assert not delivery.done()
        fault.cancel()
        delivery.result(PATIENCE_S)
    assert _values(broker, topic) == [b"in the end"]


def test_connections_are_cut_and_an_outage_takes_none(broker: Broker, faults: Faults, topic: str) -> None:
    with _producer(broker, client_id="p") as producer:
        producer.send(topic, b"before").result(PATIENCE_S)
        assert faults.cut("nobody") == 0
        assert faults.cut("p") > 0
        producer.send(topic, b"after").result(PATIENCE_S)
        with faults.outage():
            delivery = producer.send(topic, b"when it is over")
            with socket.create_connection((broker.host, broker.port)) as connection:
                assert connection.recv(1) == b""
            assert not delivery.done()
        delivery.result(PATIENCE_S)
    assert _values(broker, topic) == [b"before", b"after", b"when it is over"]


def test_a_broker_that_is_killed_comes_back_behind_its_faults() -> None:
    faults = Faults()
    with Broker(faults=faults) as broker:
        port = broker.port
        with _producer(broker) as producer:
            producer.send("t", b"before").result(PATIENCE_S)
            broker.kill()
            broker.restart()
            fault = faults.drop("Produce")
            producer.send("t", b"after").result(PATIENCE_S)
        assert (broker.port, fault.happened) == (port, 1)
        assert _values(broker, "t") == [b"before", b"after"]
    with Broker(faults=faults) as other, _producer(other) as producer:
        producer.send("t", b"they may be used again").result(PATIENCE_S)


def test_they_stand_before_a_port_that_was_named() -> None:
    port = free_port()
    with Broker(faults=Faults(), port=port) as broker:
        broker.create_topics("t")
        broker.restart()
        assert broker.bootstrap_servers == f"127.0.0.1:{port}"
        assert _values(broker, "t") == []


async def test_a_broker_in_the_loop_has_them_too() -> None:
    faults = Faults()
    async with AsyncBroker(faults=faults) as broker:
        fault = faults.drop("Produce", answer=True)
        async with AsyncProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            await (await producer.send("t", b"once"))
        assert fault.happened == 1
        async with AsyncProducer({"bootstrap.servers": broker.bootstrap_servers, "acks": 0}) as producer:
            await producer.send("t", b"no answer is waited for")
            await producer.flush()
        async with (
            AsyncConsumer({"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}) as consumer,
            asyncio.timeout(PATIENCE_S),
        ):
            consumer.assign([TopicPartition("t", 0)])
            found: list[bytes | None] = []
            while len(found) < 2:
                found += [record.value for record in await consumer.poll(0.1)]
        assert found == [b"once", b"no answer is waited for"]


@pytest.mark.parametrize("done", [False, True])
def test_who_asks_for_all_topics_hears_the_error_for_each(
    broker: Broker, faults: Faults, topic: str, done: bool
) -> None:
    """Such a request names none: the answer's topics and brokers are the broker's own."""
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        assert topic in [each.name for each in admin.list_topics()]
        failed = faults.fail("Metadata", "TOPIC_AUTHORIZATION_FAILED", done=done)
        assert topic not in [each.name for each in admin.list_topics()]
        assert failed.happened == 1
        assert topic in [each.name for each in admin.list_topics()]


@pytest.mark.parametrize("version", range(API[ApiKey.METADATA].min_version, API[ApiKey.METADATA].max_version + 1))
def test_an_answer_about_all_topics_is_spoiled_in_every_version(version: int) -> None:
    everything = MetadataRequest(() if version == 0 else None)
    assert not names_its_parts(ApiKey.METADATA, version, everything)
    assert names_its_parts(ApiKey.METADATA, version, MetadataRequest((MetadataRequestTopic(name="t"),)))
    assert names_its_parts(ApiKey.METADATA, 1, MetadataRequest(()))
    said = MetadataResponse(brokers=(MetadataResponseBroker(1, "h", 9),), topics=(MetadataResponseTopic(name="t"),))
    frame = encode_response(ApiKey.METADATA, version, 7, spoiled(said, _ERROR))
    _, answer = decode_response(ApiKey.METADATA, version, frame[4:])
    assert [(each.name, each.error_code, each.partitions) for each in answer.topics] == [("t", _ERROR, ())]
    assert [each.host for each in answer.brokers] == ["h"]


# --- the made-up answers ---


@pytest.mark.parametrize("api", sorted({*_MIRRORS, *_ONE_ERROR}), ids=lambda api: ApiKey(api).name)
def test_a_made_up_answer_says_the_error_in_every_version(api: ApiKey) -> None:
    for version in range(API[api].min_version, API[api].max_version + 1):
        asked = decode_body(API[api].request, version, encode(sample(API[api].request, version), version))
        frame = encode_response(api, version, 7, refusal(api, asked, _ERROR))
        correlation_id, answer = decode_response(api, version, frame[4:])
        assert correlation_id == 7
        assert int(_ERROR) in _errors(answer), f"{API[api].name} v{version}: {answer}"


def _errors(message: Any) -> set[int]:
    found: set[int] = set()
    for name, value in zip(getattr(message, "_fields", ()), message, strict=False):
        if name.endswith("error_code"):
            found.add(value)
        elif isinstance(value, tuple):
            for each in (value,) if hasattr(value, "_fields") else value:
                found |= _errors(each) if isinstance(each, tuple) else set()
    return found


# --- misuse ---


def test_a_fault_that_cannot_be_is_refused_with_a_sentence() -> None:
    faults = Faults()
    for call, said in (
        (lambda: faults.drop("Produkt"), "no API has the name Produkt; did you mean Produce?"),
        (lambda: faults.drop("?"), "Kafka's names are meant"),
        (lambda: faults.fail("Produce", "NOT_LEADER"), "Kafka has no error NOT_LEADER; did you mean NOT_LEADER_OR"),
        (lambda: faults.fail("Produce", "NONE"), "NONE is no error"),
        (lambda: faults.fail("DescribeConfigs", "INVALID_REQUEST"), "an answer of DescribeConfigs cannot be made up"),
        (lambda: faults.delay("Fetch", -1.0), "a positive number of seconds"),
        (lambda: faults.delay("Fetch", float("nan")), "a positive number of seconds"),
        (lambda: faults.drop("Fetch", nth=0), "nth counts from 1"),
        (lambda: faults.drop("Fetch", times=0), "times is at least 1"),
        (faults.cut, "no broker runs with these faults"),
    ):
        with pytest.raises(ValueError, match=said.replace("?", r"\?")):
            call()


def test_two_brokers_do_not_share_them(broker: Broker) -> None:
    with pytest.raises(ValueError, match="make others for another one"):
        Broker(faults=broker.faults).start()

"""Five clients: each sends one record and reads it again. RefusedError says what it is told when it cannot."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
from aiokafka.errors import KafkaError as AioKafkaError
from kafka.errors import KafkaError as KafkaPythonError
from kafka.net.sasl.oauth import AbstractTokenProvider

from ottla import Consumer, Producer
from ottla.client.errors import ClientError
from tests.interop.secured.where import USER, WAIT_S, RefusedError, Where

Guest: TypeAlias = Callable[[Where, str], list[bytes | None]]
_OAUTHBEARER = "OAUTHBEARER"


def _told(keys: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in keys.items() if value is not None}


def keys_of(where: Where) -> dict[str, Any]:
    """As librdkafka and our client want it, but for a token."""
    has_password = where.mechanism not in (None, _OAUTHBEARER)
    return _told(
        {
            "bootstrap.servers": where.address,
            "security.protocol": where.protocol,
            "ssl.ca.location": where.authority,
            "ssl.certificate.location": where.certificate,
            "ssl.key.location": where.certificate,
            "sasl.mechanism": where.mechanism,
            "sasl.username": USER if has_password else None,
            "sasl.password": where.secret if has_password else None,
        }
    )


def ours(where: Where, topic: str) -> list[bytes | None]:
    """Our blocking client."""
    keys = keys_of(where)
    if where.mechanism == _OAUTHBEARER:
        keys["oauth_cb"] = lambda config: where.secret
    try:
        with Producer({**keys, "delivery.timeout.ms": 40_000}) as producer:
            producer.send(topic, b"hello").result(WAIT_S)
        with Consumer({**keys, "auto.offset.reset": "earliest", "group.id": topic}) as consumer:
            consumer.subscribe([topic])
            return [record.value for record in consumer.poll(WAIT_S)]
    except ClientError as refusal:
        raise RefusedError(str(refusal)) from refusal


def confluent(where: Where, topic: str) -> list[bytes | None]:
    """confluent-kafka, which is librdkafka."""
    faults: list[confluent_kafka.KafkaError] = []
    keys = {**keys_of(where), "broker.address.family": "v4", "error_cb": faults.append, "log_level": 0}
    if where.mechanism == _OAUTHBEARER:
        keys["oauth_cb"] = lambda config: (where.secret, time.time() + 3_600)
    producer = confluent_kafka.Producer(keys)
    delivered: list[object] = []
    producer.produce(topic, b"hello", on_delivery=lambda fault, message: delivered.append(fault))
    fatal = (confluent_kafka.KafkaError._AUTHENTICATION, confluent_kafka.KafkaError._SSL)
    end_s = time.monotonic() + WAIT_S
    while not delivered and time.monotonic() < end_s:
        producer.poll(0.1)
        refusals = [fault.str() for fault in faults if fault.code() in fatal or "SSL alert" in fault.str()]
        if refusals:
            producer.purge()
            raise RefusedError(refusals[0])
    assert delivered == [None], faults
    consumer = confluent_kafka.Consumer(
        {**keys, "auto.offset.reset": "earliest", "group.id": topic, "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    message = consumer.poll(WAIT_S)
    consumer.close()
    assert message is not None, faults
    return [message.value()]


class _Token(AbstractTokenProvider):  # type: ignore[misc]
    """kafka-python's."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


def kafka_python(where: Where, topic: str) -> list[bytes | None]:
    """kafka-python. It tries again until it gives up, also when it is told that a password is wrong."""
    keys = _told(
        {
            "bootstrap_servers": where.address,
            "security_protocol": where.protocol,
            "ssl_cafile": where.authority,
            "ssl_certfile": where.certificate,
            "ssl_keyfile": where.certificate,
            "sasl_mechanism": where.mechanism,
            "bootstrap_timeout_ms": int(where.patience_s * 1_000),
        }
    )
    if where.mechanism == _OAUTHBEARER:
        keys["sasl_oauth_token_provider"] = _Token(where.secret or "")
    elif where.mechanism is not None:
        keys |= {"sasl_plain_username": USER, "sasl_plain_password": where.secret}
    try:
        producer = kafka.KafkaProducer(**keys, max_block_ms=int(where.patience_s * 1_000))
        try:
            producer.send(topic, b"hello").get(WAIT_S)
        finally:
            producer.close()
    except KafkaPythonError as refusal:
        raise RefusedError(repr(refusal)) from refusal
    consumer = kafka.KafkaConsumer(
        topic, **keys, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False
    )
    try:
        return [next(consumer).value]
    finally:
        consumer.close()


class _AsyncToken(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    """aiokafka's."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


async def _by_aiokafka(where: Where, topic: str) -> list[bytes | None]:
    keys: dict[str, Any] = {"bootstrap_servers": where.address, "security_protocol": where.protocol}
    if where.authority is not None:
        context = ssl.create_default_context(cafile=where.authority)
        if where.certificate is not None:
            context.load_cert_chain(where.certificate)
        keys["ssl_context"] = context
    if where.mechanism is not None:
        keys["sasl_mechanism"] = where.mechanism
    if where.mechanism == _OAUTHBEARER:
        keys["sasl_oauth_token_provider"] = _AsyncToken(where.secret or "")
    elif where.mechanism is not None:
        keys |= {"sasl_plain_username": USER, "sasl_plain_password": where.secret}
    producer = aiokafka.AIOKafkaProducer(**keys)
    try:
        await producer.start()
        await producer.send_and_wait(topic, b"hello")
    finally:
        await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(topic, **keys, group_id=topic, auto_offset_reset="earliest")
    try:
        await consumer.start()
        return [(await consumer.getone()).value]
    finally:
        await consumer.stop()


def by_aiokafka(where: Where, topic: str) -> list[bytes | None]:
    """aiokafka."""
    try:
        return asyncio.run(asyncio.wait_for(_by_aiokafka(where, topic), 2 * WAIT_S))
    except AioKafkaError as refusal:
        raise RefusedError(repr(refusal)) from refusal


#: Those of Python; Java's is in `secured.java`.
GUESTS: dict[str, Guest] = {
    "ottla": ours,
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": by_aiokafka,
}

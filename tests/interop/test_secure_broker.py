"""Foreign clients on our broker, with each security protocol and mechanism; and where they must not get in.

One broker with seven listeners: plain text, TLS, TLS that asks for a certificate, SASL with and without TLS, an expired
certificate, and one for another host.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import KafkaError as AioKafkaError
from kafka.errors import KafkaError as KafkaPythonError

from ottla import Admin, Consumer, Producer, ScramMechanism, SetScramCredential
from ottla.base.secret import Secret
from ottla.client.errors import ClientError, SaslAuthenticationError, SslAuthenticationError
from ottla.testing import Broker
from tests.client.certificates import Authority

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]
_LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "PLAINSASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "EXPIRED": "SSL",
    "OTHERHOST": "SSL",
}
_PASSWORDS = {"PLAIN": "plain-hunter2", "SCRAM-SHA-256": "scram-hunter2", "SCRAM-SHA-512": "scram-hunter2"}
_WAIT_S = 30.0


class Where(NamedTuple):
    """A listener, and who the client says that it is."""

    address: str
    protocol: str
    ca: str | None = None
    certificate: str | None = None
    mechanism: str | None = None
    password: str | None = None


class Secure(NamedTuple):
    """A running broker, and where the certificates are."""

    broker: Broker
    directory: Path

    def at(
        self, listener: str, mechanism: str | None = None, password: str | None = None, certificate: str | None = None
    ) -> Where:
        protocol = _LISTENERS[listener]
        return Where(
            f"localhost:{self.broker.listener(listener).rpartition(':')[2]}",
            protocol,
            str(self.directory / "authority.pem") if protocol.endswith("SSL") else None,
            None if certificate is None else str(self.directory / f"{certificate}.pem"),
            mechanism,
            password or (None if mechanism is None else _PASSWORDS[mechanism]),
        )


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    directory = tmp_path_factory.mktemp("secure")
    ours, theirs = Authority(directory, "authority"), Authority(directory, "stranger")
    here = ours.certificate("here", host="localhost")
    stores = dict.fromkeys(_LISTENERS, here)
    stores["EXPIRED"] = ours.certificate("expired", host="localhost", days=(-9, -1))
    stores["OTHERHOST"] = ours.certificate("other", host="kafka.example")
    ours.certificate("client")
    theirs.certificate("unknown")
    config: dict[str, object] = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in _LISTENERS),
        "advertised.listeners": ",".join(f"{name}://localhost:0" for name in _LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in _LISTENERS.items()),
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ours.file,
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(_PASSWORDS),
    }
    for name, protocol in _LISTENERS.items():
        prefix = f"listener.name.{name.lower()}."
        if protocol.endswith("SSL"):
            config[f"{prefix}ssl.keystore.location"] = stores[name]
        if protocol.startswith("SASL"):
            config[f"{prefix}plain.sasl.jaas.config"] = (
                f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{_PASSWORDS["PLAIN"]}";'
            )
    with Broker(config) as broker:
        with Admin({"bootstrap.servers": broker.listener("PLAINTEXT")}) as admin:
            for mechanism in ScramMechanism:
                password = Secret(_PASSWORDS[mechanism.mechanism])
                admin.alter_user_scram_credentials([SetScramCredential("alice", mechanism, password, 4096)])
        yield Secure(broker, directory)


# one client each: what it has to be told, a record to and fro, and how it says that it is not let in


def _keys(where: Where) -> dict[str, object]:
    """As librdkafka and our client want it."""
    keys = {
        "bootstrap.servers": where.address,
        "security.protocol": where.protocol,
        "ssl.ca.location": where.ca,
        "ssl.certificate.location": where.certificate,
        "ssl.key.location": where.certificate,
        "sasl.mechanism": where.mechanism,
        "sasl.username": None if where.mechanism is None else "alice",
        "sasl.password": where.password,
    }
    return {name: value for name, value in keys.items() if value is not None}


def _ours(where: Where, topic: str) -> list[bytes | None]:
    with Producer(_keys(where)) as producer:
        producer.send(topic, b"hello").result(_WAIT_S)
    with Consumer({**_keys(where), "auto.offset.reset": "earliest", "group.id": topic}) as consumer:
        consumer.subscribe([topic])
        return [record.value for record in consumer.poll(_WAIT_S)]


def _confluent(where: Where, topic: str) -> list[bytes | None]:
    faults: list[confluent_kafka.KafkaError] = []
    keys = {**_keys(where), "broker.address.family": "v4", "error_cb": faults.append}
    producer = confluent_kafka.Producer(keys)
    delivered: list[object] = []
    producer.produce(topic, b"hello", on_delivery=lambda fault, message: delivered.append(fault))
    fatal = (confluent_kafka.KafkaError._AUTHENTICATION, confluent_kafka.KafkaError._SSL)
    end_s = time.monotonic() + _WAIT_S
    while not delivered and time.monotonic() < end_s:
        producer.poll(0.1)
        refusals = [fault for fault in faults if fault.code() in fatal]
        if refusals:
            producer.purge()
            raise confluent_kafka.KafkaException(refusals[0])
    assert delivered == [None], faults
    consumer = confluent_kafka.Consumer(
        {**keys, "auto.offset.reset": "earliest", "group.id": topic, "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    message = consumer.poll(_WAIT_S)
    consumer.close()
    assert message is not None, faults
    return [message.value()]


def _kafka_python_keys(where: Where) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "bootstrap_servers": where.address,
        "security_protocol": where.protocol,
        "ssl_cafile": where.ca,
        "ssl_certfile": where.certificate,
        "ssl_keyfile": where.certificate,
        "sasl_mechanism": where.mechanism,
        # It tries again for so long, also when it is told that the password is wrong.
        "bootstrap_timeout_ms": 5_000,
    }
    if where.mechanism is not None:
        keys |= {"sasl_plain_username": "alice", "sasl_plain_password": where.password}
    return {name: value for name, value in keys.items() if value is not None}


def _kafka_python(where: Where, topic: str) -> list[bytes | None]:
    producer = kafka.KafkaProducer(**_kafka_python_keys(where), max_block_ms=5_000)
    try:
        producer.send(topic, b"hello").get(_WAIT_S)
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **_kafka_python_keys(where), group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False
    )
    try:
        return [next(consumer).value]
    finally:
        consumer.close()


async def _aiokafka_round_trip(where: Where, topic: str) -> list[bytes | None]:
    keys: dict[str, Any] = {"bootstrap_servers": where.address, "security_protocol": where.protocol}
    if where.ca is not None:
        context = ssl.create_default_context(cafile=where.ca)
        if where.certificate is not None:
            context.load_cert_chain(where.certificate)
        keys["ssl_context"] = context
    if where.mechanism is not None:
        keys |= {
            "sasl_mechanism": where.mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": where.password,
        }
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


def _aiokafka(where: Where, topic: str) -> list[bytes | None]:
    return asyncio.run(asyncio.wait_for(_aiokafka_round_trip(where, topic), 2 * _WAIT_S))


Client = Callable[[Where, str], list[bytes | None]]
_CLIENTS = pytest.mark.parametrize(
    "client", [_ours, _confluent, _kafka_python, _aiokafka], ids=lambda each: each.__name__
)
_REFUSED = (ClientError, confluent_kafka.KafkaException, KafkaPythonError, AioKafkaError)


@_CLIENTS
def test_tls(secure: Secure, client: Client, fresh: Fresh) -> None:
    assert client(secure.at("TLS"), fresh("tls")) == [b"hello"]


@_CLIENTS
def test_mutual_tls(secure: Secure, client: Client, fresh: Fresh) -> None:
    assert client(secure.at("MUTUAL", certificate="client"), fresh("mutual")) == [b"hello"]


@_CLIENTS
@pytest.mark.parametrize("mechanism", list(_PASSWORDS))
@pytest.mark.parametrize("listener", ["PLAINSASL", "SASLTLS"])
def test_sasl(secure: Secure, client: Client, mechanism: str, listener: str, fresh: Fresh) -> None:
    assert client(secure.at(listener, mechanism), fresh("sasl")) == [b"hello"]


@_CLIENTS
@pytest.mark.parametrize("mechanism", list(_PASSWORDS))
def test_a_wrong_password(secure: Secure, client: Client, mechanism: str, fresh: Fresh) -> None:
    with pytest.raises(_REFUSED) as refused:
        client(secure.at("SASLTLS", mechanism, "not-hunter2"), fresh("wrong"))
    assert "not-hunter2" not in str(refused.value)


@_CLIENTS
@pytest.mark.parametrize("listener", ["EXPIRED", "OTHERHOST"])
def test_a_certificate_that_cannot_be_trusted(secure: Secure, client: Client, listener: str, fresh: Fresh) -> None:
    with pytest.raises(_REFUSED):
        client(secure.at(listener), fresh("untrusted"))


def test_our_client_says_what_is_wrong(secure: Secure, fresh: Fresh) -> None:
    def refused(where: Where, kind: type[ClientError], words: str) -> None:
        keys = {**_keys(where), "default.api.timeout.ms": 3_000}
        with Admin(keys) as admin, pytest.raises(kind, match=words):
            admin.list_topics()

    refused(secure.at("EXPIRED"), SslAuthenticationError, "has expired")
    refused(secure.at("OTHERHOST"), SslAuthenticationError, "for another host")
    refused(secure.at("TLS")._replace(ca=str(secure.directory / "stranger.pem")), SslAuthenticationError, "not known")
    refused(secure.at("PLAINSASL", "PLAIN", "x"), SaslAuthenticationError, "Invalid username or password")
    refused(secure.at("PLAINSASL", "SCRAM-SHA-256", "x"), SaslAuthenticationError, "invalid credentials")
    refused(secure.at("TLS")._replace(protocol="PLAINTEXT", ca=None), ClientError, "security.protocol")
    refused(secure.at("MUTUAL"), ClientError, "")
    refused(secure.at("MUTUAL", certificate="unknown"), ClientError, "")

"""OAUTHBEARER on our broker with confluent-kafka: its `oauth_cb`, its renewal of sessions, a token that is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest

from ottla.testing import Broker
from tests.broker.authentication.token_issuer import Issuer

pytestmark = pytest.mark.interop

_ISSUER, _STRANGER = Issuer(), Issuer()
_WAIT_S = 30.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """It knows the issuer's keys."""
    keys = tmp_path_factory.mktemp("oauth") / "keys.json"
    keys.write_text(_ISSUER.jwks())
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": "https://issuer",
    }
    with Broker(config) as running:
        yield running


def _keys(broker: Broker, token: Callable[[], tuple[str, float]]) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": lambda text: token(),
    }


def _token(issuer: Issuer, lasts_s: int) -> tuple[str, float]:
    now_s = int(time.time())
    return issuer.token("two", iss="https://issuer", iat=now_s, exp=now_s + lasts_s), now_s + lasts_s


def test_it_produces_and_consumes_and_renews_its_session(broker: Broker) -> None:
    asked: list[float] = []

    def token() -> tuple[str, float]:
        asked.append(time.monotonic())
        return _token(_ISSUER, 4)

    producer = confluent_kafka.Producer(_keys(broker, token))
    faults: list[object] = []
    count, end_s = 0, time.monotonic() + _WAIT_S
    while len(asked) < 3 and time.monotonic() < end_s:  # two of its sessions have ended meanwhile
        producer.produce("t", str(count), on_delivery=lambda error, message: faults.append(error))
        count += 1
        producer.flush(_WAIT_S)
    assert len(asked) >= 3
    assert set(faults) == {None}
    consumer = confluent_kafka.Consumer(
        {**_keys(broker, token), "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe(["t"])
    values = [message.value() for message in consumer.consume(count, _WAIT_S)]
    consumer.close()
    assert values == [str(number).encode() for number in range(count)]


def test_a_token_of_somebody_else_is_refused(broker: Broker) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer(
        {**_keys(broker, lambda: _token(_STRANGER, 600)), "error_cb": errors.append, "message.timeout.ms": 20_000}
    )
    end_s = time.monotonic() + _WAIT_S
    while not errors and time.monotonic() < end_s:
        producer.poll(0.1)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "invalid_token" in errors[0].str()

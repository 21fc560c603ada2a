"""The clients on Apache Kafka: the same journeys as on our own broker."""

import logging
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from ottla import Producer
from tests.client import (
    asyncio_journeys,
    delivery_journeys,
    exactly_once_journeys,
    group_admin_journeys,
    journeys,
    transaction_journeys,
    two_phase_journeys,
)
from tests.interop.apache import ApacheKafka, run_tool
from tests.recording.current import EXCUSED, judged

pytestmark = pytest.mark.interop


_JOURNEYS = [*transaction_journeys.ALL, *group_admin_journeys.ALL, *delivery_journeys.ALL]


@pytest.mark.parametrize("journey", _JOURNEYS, ids=lambda journey: journey.__name__)
def test_blocking(journey: Callable[[str], None], apache_kafka: ApacheKafka) -> None:
    if journey in delivery_journeys.ALL:
        journey(apache_kafka.bootstrap)  # processes of an example, of which two lose or repeat: the journey counts
        return
    with judged(apache_kafka.bootstrap, ignore=EXCUSED.get(journey.__name__, ())):
        journey(apache_kafka.bootstrap)


@pytest.mark.parametrize("journey", asyncio_journeys.ALL, ids=lambda journey: journey.__name__)
async def test_asyncio(journey: Callable[[str], Coroutine[None, None, None]], apache_kafka: ApacheKafka) -> None:
    await journey(apache_kafka.bootstrap)


@pytest.fixture(scope="module")
def first_protocol(apache_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node whose `transaction.version` is 1: producers have to speak the protocol from before KIP-890."""
    with ApacheKafka(tmp_path_factory.mktemp("first-protocol")) as node:
        feature = ("--feature", "transaction.version=1")
        run_tool("FeatureCommand", "--bootstrap-server", node.bootstrap, "downgrade", *feature)
        yield node.bootstrap


@pytest.mark.parametrize("journey", transaction_journeys.TRANSACTIONS, ids=lambda journey: journey.__name__)
def test_t5_the_first_protocol(journey: Callable[[str], None], first_protocol: str) -> None:
    with judged(first_protocol, ignore=EXCUSED.get(journey.__name__, ())):
        journey(first_protocol)


_EXACTLY_ONCE = pytest.mark.parametrize("journey", exactly_once_journeys.ALL, ids=lambda journey: journey.__name__)


@_EXACTLY_ONCE
def test_t11_exactly_once(journey: Callable[[str], None], apache_kafka: ApacheKafka) -> None:
    journey(apache_kafka.bootstrap)


@_EXACTLY_ONCE
@pytest.mark.slow
def test_t11_exactly_once_in_the_first_protocol(journey: Callable[[str], None], first_protocol: str) -> None:
    journey(first_protocol)


@pytest.mark.slow
def test_kip219_a_client_is_silent_for_as_long_as_its_quota_asks(
    apache_kafka: ApacheKafka, caplog: pytest.LogCaptureFixture
) -> None:
    """A request sent meanwhile would not be read for about 3 s, and time out."""
    client_id, topic = journeys.fresh("throttled"), journeys.make_topic(apache_kafka.bootstrap)
    quota = ("--alter", "--add-config", "producer_byte_rate=100000")
    entity = ("--entity-type", "clients", "--entity-name", client_id)
    run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", apache_kafka.bootstrap, *quota, *entity)
    config = {"bootstrap.servers": apache_kafka.bootstrap, "client.id": client_id, "request.timeout.ms": 1_000}
    caplog.set_level(logging.DEBUG, "ottla.client")
    with Producer(config | {"acks": "1", "retries": 0, "linger.ms": 0}) as producer:
        sent = [producer.send(topic, b"x" * 10_000) for _ in range(130)]
        producer.flush(60)
        assert {delivery.exception() for delivery in sent} == {None}
        sent = [producer.send(topic, b"x" * 10_000) for _ in range(10)]
        producer.flush(60)
        assert {delivery.exception() for delivery in sent} == {None}
    assert "throttles this client" in caplog.text


@pytest.fixture(scope="module")
def with_two_phase_commit(apache_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ApacheKafka(tmp_path_factory.mktemp("two-phase"), two_phase_journeys.SETTINGS) as node:
        yield node.bootstrap


@pytest.mark.parametrize("journey", two_phase_journeys.ALL, ids=lambda journey: journey.__name__)
def test_t15_two_phase_commit(journey: Callable[[str], None], with_two_phase_commit: str) -> None:
    journey(with_two_phase_commit)


def test_t15_two_phase_commit_is_refused_with_advice(apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    two_phase_journeys.refused_where_the_broker_does_not_have_it(apache_kafka.bootstrap)
    settings = {**two_phase_journeys.SETTINGS, "transaction.two.phase.commit.enable": "false"}
    with ApacheKafka(tmp_path, settings) as node:
        two_phase_journeys.refused_where_the_broker_does_not_allow_it(node.bootstrap)

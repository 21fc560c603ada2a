"""The clients on Apache Kafka: the same journeys as on our own broker."""

from collections.abc import Callable, Coroutine, Iterator

import pytest

from tests.client import journeys, transaction_journeys
from tests.interop.apache import ApacheKafka, run_tool

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("journey", transaction_journeys.ALL, ids=lambda journey: journey.__name__)
def test_blocking(journey: Callable[[str], None], apache_kafka: ApacheKafka) -> None:
    journey(apache_kafka.bootstrap)


@pytest.mark.parametrize("journey", journeys.ASYNCIO, ids=lambda journey: journey.__name__)
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
    journey(first_protocol)

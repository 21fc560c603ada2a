"""The clients on Apache Kafka: the same journeys as on our own broker."""

from collections.abc import Callable, Coroutine

import pytest

from tests.client import journeys, transaction_journeys
from tests.interop.apache import ApacheKafka

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("journey", transaction_journeys.ALL, ids=lambda journey: journey.__name__)
def test_blocking(journey: Callable[[str], None], apache_kafka: ApacheKafka) -> None:
    journey(apache_kafka.bootstrap)


@pytest.mark.parametrize("journey", journeys.ASYNCIO, ids=lambda journey: journey.__name__)
async def test_asyncio(journey: Callable[[str], Coroutine[None, None, None]], apache_kafka: ApacheKafka) -> None:
    await journey(apache_kafka.bootstrap)

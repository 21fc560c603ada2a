"""Our broker's answers at the edges of the APIs are Apache Kafka's, which `tests/interop` asks the same."""

from collections.abc import AsyncIterator

import pytest

from ottla.testing import AsyncBroker
from tests.broker.answers import prepare
from tests.broker.one_node_answers import EVERY
from tests.broker.wire_client import WireClient


@pytest.fixture
async def client() -> AsyncIterator[WireClient]:
    async with AsyncBroker() as broker, WireClient(broker) as asking:
        await prepare(asking)
        yield asking


@pytest.mark.parametrize("name", EVERY)
async def test_an_answer_is_kafkas(client: WireClient, name: str) -> None:
    question, answer = EVERY[name]
    assert await question(client) == answer

"""Apache Kafka still answers as the `*answers.py` in `tests/broker` say: ours is held to it."""

from __future__ import annotations

import pytest

from tests.broker.answers import prepare
from tests.broker.one_node_answers import EVERY
from tests.broker.wire_client import WireClient
from tests.interop.apache import ApacheKafka

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", EVERY)
async def test_apache_kafka_answers(apache_kafka: ApacheKafka, name: str) -> None:
    question, answer = EVERY[name]
    async with WireClient(apache_kafka) as client:
        await prepare(client)
        assert await question(client) == answer

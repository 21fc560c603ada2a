"""Apache Kafka still answers as `tests/broker/answers.py` says, so our broker is held to the truth."""

from __future__ import annotations

import pytest

from tests.broker.answers import ANSWERS, prepare
from tests.broker.wire_client import WireClient
from tests.interop.apache import ApacheKafka

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", ANSWERS)
async def test_apache_kafka_answers(apache_kafka: ApacheKafka, name: str) -> None:
    question, answer = ANSWERS[name]
    async with WireClient(apache_kafka) as client:
        await prepare(client)
        assert await question(client) == answer

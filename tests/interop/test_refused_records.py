"""Apache Kafka still refuses records as `tests/broker/refused_records.py` says, so our broker is held to the truth."""

from __future__ import annotations

import pytest

from tests.broker.refused_records import REFUSALS, ask, prepare
from tests.broker.wire_client import WireClient
from tests.interop.apache import ApacheKafka

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", REFUSALS)
async def test_apache_kafka_answers(apache_kafka: ApacheKafka, name: str) -> None:
    async with WireClient(apache_kafka) as client:
        await prepare(client)
        assert await ask(client, name) == REFUSALS[name][1]

"""Records that a topic does not take are named one by one (KIP-467), as Apache Kafka names them."""

import pytest

from tests.broker.refused_records import REFUSALS, ask, prepare
from tests.broker.wire_client import WireClient


@pytest.mark.parametrize("name", REFUSALS)
async def test_p1_refused_records_are_answered_as_by_apache_kafka(client: WireClient, name: str) -> None:
    await prepare(client)
    assert await ask(client, name) == REFUSALS[name][1]

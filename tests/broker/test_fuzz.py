"""Requests that decode but make no sense, for every API and version: answered or disconnected, and nothing ever breaks.

A fault inside a handler would only close one connection; it is logged as an error, and that fails the test.
"""

import asyncio
import logging
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.broker.handlers.table import TABLE
from ottla.broker.session import ANONYMOUS
from ottla.testing import AsyncBroker
from tests.broker.fuzzing import request
from tests.broker.guarded import GUARDED
from tests.broker.wire_client import WireClient

_FRAMES = 40
#: Everybody may do everything, nobody may do anything, or a client is asked about and may do everything.
_CONFIGS: tuple[dict[str, str], ...] = ({}, GUARDED, {**GUARDED, "super.users": ANONYMOUS})


async def _send_all(frames: list[bytes], config: dict[str, str]) -> None:
    async with AsyncBroker(config) as broker:
        await broker.node.topics.create("t", 2, {})
        for frame in frames:
            async with WireClient(broker) as client:
                await client.send_bytes(frame)
                # A join or a fetch may well wait; who asked has gone by then.
                await client.drained()
        async with WireClient(broker) as client:
            assert len(await client.ask_api_versions()) == len(TABLE)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 2**32))
def test_no_request_breaks_a_handler(caplog: pytest.LogCaptureFixture, seed: int) -> None:
    rng = random.Random(seed)
    caplog.clear()
    asyncio.run(_send_all([request(rng) for _ in range(_FRAMES)], rng.choice(_CONFIGS)))
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []

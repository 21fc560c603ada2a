"""Requests that decode but make no sense, for every API and version: answered or disconnected, and nothing ever breaks.

A fault inside a handler would only close one connection; it is logged as an error, and that fails the test.
"""

import asyncio
import logging
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.broker.handlers.table import TABLE
from ottla.broker.session import ANONYMOUS
from ottla.testing import AsyncBroker
from ottla.wire.apis import API
from ottla.wire.codec import WireError
from ottla.wire.frames import encode_request
from ottla.wire.schema import Field, schema
from tests.broker.guarded import GUARDED
from tests.broker.wire_client import WireClient, batch

_INTERESTING: dict[str, tuple[Any, ...]] = {
    "bool": (False, True),
    "int8": (-128, -1, 0, 1, 2, 127),
    "int16": (-(2**15), -1, 0, 1, 5, 2**15 - 1),
    "int32": (-(2**31), -1, 0, 1, 5, 100, 2**31 - 1),
    "int64": (-(2**63), -3, -2, -1, 0, 1, 100, 2**63 - 1),
    "uint16": (0, 1, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "float64": (0.0, -1.0),
    "uuid": (bytes(16), b"i" * 16),
    "string": ("", "t", "g", "a.b", "__consumer_offsets", "__transaction_state", "x" * 300, "é"),
    "bytes": (b"", b"x" * 70),
    "records": (
        b"",
        b"x" * 70,
        batch(b"v"),
        *(
            batch(b"v", producer_id=pid, producer_epoch=epoch, base_sequence=at, transactional=open_)
            for pid in (0, 1)
            for epoch, at in ((0, 0), (0, 1), (1, 0))
            for open_ in (False, True)
        ),
    ),
}
_FRAMES = 40
#: Everybody may do everything, nobody may do anything, or a client is asked about and may do everything.
_CONFIGS: tuple[dict[str, str], ...] = ({}, GUARDED, {**GUARDED, "super.users": ANONYMOUS})


def _message(cls: type[Any], version: int, rng: random.Random) -> Any:
    values = []
    for field in schema(cls).fields:
        if not field.first <= version <= field.last:
            values.append(cls._field_defaults[field.name])
        elif field.null_first <= version <= field.null_last and rng.random() < 0.2:
            values.append(None)
        else:
            values.append(_value(field, field.type, version, rng))
    return cls(*values)


def _value(field: Field, kind: Any, version: int, rng: random.Random) -> Any:
    if isinstance(kind, list):
        return tuple(_value(field, kind[0], version, rng) for _ in range(rng.choice((0, 1, 1, 2))))
    if isinstance(kind, str):
        return rng.choice(_INTERESTING[kind])
    return _message(kind, version, rng)


def _frame(rng: random.Random) -> bytes:
    """A request that decodes, or, now and then, one with a few bytes changed behind its header."""
    entry = TABLE[rng.choice(sorted(TABLE))]
    version = rng.randint(entry.min_version, entry.max_version)
    try:
        frame = bytearray(encode_request(entry.key, version, 1, "c", _message(API[entry.key].request, version, rng)))
    except WireError:
        return b""
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(12, len(frame))] = rng.choice((0, 1, 2, 127, 128, 255, rng.randrange(256)))
    return bytes(frame)


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
    asyncio.run(_send_all([_frame(rng) for _ in range(_FRAMES)], rng.choice(_CONFIGS)))
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []

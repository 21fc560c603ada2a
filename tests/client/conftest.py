"""What the client's tests share."""

import asyncio
from collections.abc import Callable

import pytest

#: What must come takes milliseconds; a busy machine gets time.
_PATIENCE_S = 10.0
#: A test that is known to hang is not waited for long.
_KNOWN_TO_HANG_S = 0.5

Watchdog = Callable[[], asyncio.Timeout]


@pytest.fixture
def watchdog(request: pytest.FixtureRequest) -> Watchdog:
    """`async with watchdog():` — a hang is a failure."""
    known = request.node.get_closest_marker("xfail") is not None
    return lambda: asyncio.timeout(_KNOWN_TO_HANG_S if known else _PATIENCE_S)

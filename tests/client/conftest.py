"""What the client's tests share."""

import asyncio
import gc
from collections.abc import Callable, Generator

import pytest

from tests.steady_loop import SteadyLoop

#: What must come takes milliseconds; a busy machine gets time.
_PATIENCE_S = 10.0

Watchdog = Callable[[], asyncio.Timeout]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Client and fake broker are in one loop; by its clock the limits of a call are not over while both are stopped."""
    return {"steady": SteadyLoop}


@pytest.fixture
def watchdog() -> Watchdog:
    """`async with watchdog():` — a hang is a failure."""
    return lambda: asyncio.timeout(_PATIENCE_S)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """No garbage is collected while pytest reads the source of a failed test.

    A task whose exception nobody has retrieved says so when it is collected, and formats a traceback for it; in
    CPython 3.11 that is a second use of the parser inside the first, which ends the whole run with a SystemError.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()

"""What the tests of the seeds share."""

import asyncio
from collections.abc import Callable

from tests.steady_loop import SteadyLoop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Consumers and broker are in one loop; by its clock nobody misses its next poll while all are stopped."""
    return {"steady": SteadyLoop}

"""The event loop of asyncio's clients."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from bench.clients.cost import Cost


def in_uvloop(work: Callable[[], Coroutine[Any, Any, Cost]]) -> Cost:
    """What `work` costs, in a loop of its own."""
    cost: Cost = uvloop.run(work())
    return cost

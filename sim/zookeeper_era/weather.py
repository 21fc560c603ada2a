"""Delays, the same for both ways of coordination, and connections that keep the order of what is sent on them."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final

from sim.loop import SimLoop

#: One way through the network, milliseconds.
_NETWORK_MS: Final = (0.2, 2.0)
#: Until a consumer's fetchers have ended and its queues are empty.
_STOP_MS: Final = (10.0, 150.0)
#: How far a follower is behind its leader; once in a while its disk is slow.
_LAG_MS: Final = (1.0, 20.0)
_SLOW_LAG_MS: Final = (100.0, 1_500.0)
_SLOW: Final = 0.05


class Weather:
    """Draws delays."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)

    def network_ms(self) -> float:
        """One way."""
        return self.rng.uniform(*_NETWORK_MS)

    def stop_ms(self) -> float:
        """To stop reading."""
        return self.rng.uniform(*_STOP_MS)

    def lag_ms(self) -> float:
        """Of one entry of the log, on a follower."""
        return self.rng.uniform(*(_SLOW_LAG_MS if self.rng.random() < _SLOW else _LAG_MS))


class Line:
    """One direction of a connection: what is sent first arrives first.

    What arrives runs on no process's account (an empty context): a process that is killed has sent what it has sent.
    """

    def __init__(self, loop: SimLoop, weather: Weather) -> None:
        self._loop = loop
        self._weather = weather
        self._last_s = 0.0

    def send(self, deliver: Callable[..., object], *arguments: Any) -> None:
        """Call `deliver` when it has arrived."""
        at_s = max(self._last_s, self._loop.time() + self._weather.network_ms() / 1_000)
        self._last_s = at_s + 1e-6
        self._loop.call_at(at_s, deliver, *arguments, context=Context())

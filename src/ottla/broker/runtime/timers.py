"""Keyed timers on the monotonic clock, all driven by one callback of the event loop.

Coordinators set a timer by key and replace it very often (a session timeout at every heartbeat). So replacing must be
cheap: the old entry stays in the heap, and is dropped when its turn comes because its key no longer points to it.

Nobody can set the monotonic clock, so a step of the wall clock fires nothing. The monotonic clock stands still while
the machine is suspended (see `Clock`): after the resume every timer has as much time left as before.

An event loop runs timers before it reads sockets. When the process stood still (it was stopped, or a request took
long), the heartbeats that came meanwhile are read first, so that nobody is expelled for the broker's own silence.

Thousands of members may be due at one time. A turn of the loop fires a few; the others follow in the next turns.
"""

import heapq
import logging
from collections.abc import Callable, Hashable
from typing import Protocol

from ottla.base.clock import Clock
from ottla.base.limits import TIMERS_AT_ONCE, TIMERS_TURN_MS

_log = logging.getLogger(__name__)


class Handle(Protocol):
    """What `call_later` returns."""

    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """The part of an event loop that timers need."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Handle:
        """Run `callback` after `delay` seconds."""
        ...


#: Waking up later than this is a stall, after which sockets are read for `_CATCH_UP_S` before anything fires.
_STALL_MS = 500
_CATCH_UP_S = 0.05


class Timers:
    """Timers by key; setting a key again replaces its timer."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._heap: list[tuple[int, int, Hashable]] = []
        self._live: dict[Hashable, tuple[int, Callable[[], None]]] = {}
        self._count = 0
        self._handle: Handle | None = None
        self._wake_at_ms = 0
        #: When the loop should call next.
        self._expected_ms = 0

    def set(self, key: Hashable, delay_ms: int, action: Callable[[], None]) -> None:
        """Run `action` once, after `delay_ms` or as soon after that as the loop can."""
        at_ms = self._clock.monotonic_ms() + delay_ms
        self._count += 1
        self._live[key] = (self._count, action)
        heapq.heappush(self._heap, (at_ms, self._count, key))
        if self._handle is None or at_ms < self._wake_at_ms:
            self._sleep()
        elif len(self._heap) > 64 and len(self._heap) > 4 * len(self._live):
            self._compact()

    def cancel(self, key: Hashable) -> None:
        """Forget the timer of `key`, if there is one."""
        self._live.pop(key, None)

    def cancel_all(self, owned: Callable[[Hashable], bool]) -> None:
        """Forget every timer whose key `owned` accepts (a shard that is unloaded)."""
        for key in [key for key in self._live if owned(key)]:
            del self._live[key]

    def close(self) -> None:
        """Forget everything."""
        self._live.clear()
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def fire(self) -> None:
        """Run all that is due, for tests that move the clock by hand."""
        now_ms = self._clock.monotonic_ms()
        while self._fire_one(now_ms):
            pass
        self._sleep()

    def _fire_some(self) -> None:
        """Run what is due, as much as one turn of the loop may take."""
        now_ms = self._clock.monotonic_ms()
        for _ in range(TIMERS_AT_ONCE):
            if not self._fire_one(now_ms) or self._clock.monotonic_ms() - now_ms >= TIMERS_TURN_MS:
                break
        self._sleep()

    def _fire_one(self, now_ms: int) -> bool:
        """Run the first that is due; False if none is."""
        while self._heap and self._heap[0][0] <= now_ms:
            _, count, key = heapq.heappop(self._heap)
            live = self._live.get(key)
            if live is not None and live[0] == count:
                del self._live[key]
                try:
                    live[1]()
                except Exception:  # noqa: BLE001 - logged; the other timers must go on
                    _log.exception("the timer %s failed", key)
                return True
        return False

    def _woken(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._expected_ms > _STALL_MS:
            self._expected_ms = now_ms + int(_CATCH_UP_S * 1000)
            self._handle = self._scheduler.call_later(_CATCH_UP_S, self._woken)
        else:
            self._fire_some()

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if self._live.get(entry[2], (0,))[0] == entry[1]]
        heapq.heapify(self._heap)

    def _sleep(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._heap:
            self._wake_at_ms = self._heap[0][0]
            now_ms = self._clock.monotonic_ms()
            delay_ms = max(self._wake_at_ms - now_ms, 0)
            self._expected_ms = now_ms + delay_ms
            self._handle = self._scheduler.call_later(delay_ms / 1000, self._woken)

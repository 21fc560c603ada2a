"""A broker in a thread of its own, and how many calls of Python and C each turn of its loop makes.

A turn is all callbacks between two looks at the sockets. Counted, not timed: a loop that stands still for 20 ms makes
some 200,000 calls. What other threads do is not counted.
"""

import asyncio
import selectors
import threading
from asyncio import events
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from sys import setprofile
from types import FrameType
from typing import Any, NamedTuple

from ottla.base.clock import SystemClock
from ottla.broker.handlers.table import TABLE
from ottla.testing import AsyncBroker
from tests.broker.wire_client import WireClient

_CALLBACK = events.Handle._run.__code__
_LOOK = selectors.DefaultSelector.select.__code__


class QuickClock(SystemClock):
    """Each look at the monotonic reading costs a millisecond more, so that a slice of `TURN_MS` has so many steps."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic_ms(self) -> int:
        self._looks += 1
        return super().monotonic_ms() + self._looks


class Turns:
    """The turn that made the most calls, and the callback that made the most of them."""

    def __init__(self) -> None:
        self.most, self.whose = 0, ""
        self._calls, self._of_callback, self._callback = 0, 0, ""
        self._longest = 0, ""

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """What `sys.setprofile` calls."""
        if event == "call" and frame.f_code is _LOOK:
            self._turn_ends()
        elif event == "call" and frame.f_code is _CALLBACK:
            self._callback_ends()
            self._callback = _name(frame.f_locals["self"]._callback)
        elif event in ("call", "c_call"):
            self._calls += 1
            self._of_callback += 1

    def _callback_ends(self) -> None:
        self._longest = max(self._longest, (self._of_callback, self._callback))
        self._of_callback = 0

    def _turn_ends(self) -> None:
        self._callback_ends()
        self.most, self.whose = max((self.most, self.whose), (self._calls, self._longest[1]))
        self._calls, self._longest = 0, (0, "")


def _name(callback: Any) -> str:
    owner = getattr(callback, "__self__", None)
    called = owner.get_coro() if isinstance(owner, asyncio.Task) else callback
    return str(getattr(called, "__qualname__", called))


class _Address(NamedTuple):
    host: str
    port: int


class CountedBroker:
    """Its loop is asyncio's own, in which every callback is a call of Python."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._config = config
        self._ready, self._closing = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),))
        self._loop: asyncio.AbstractEventLoop | None = None
        self.bootstrap_servers = ""

    async def _serve(self) -> None:
        try:
            async with AsyncBroker(self._config, clock=QuickClock()) as broker:
                self.bootstrap_servers, self._loop = broker.bootstrap_servers, asyncio.get_running_loop()
                self._ready.set()
                await self._closing.wait()
        finally:
            self._ready.set()

    def client(self) -> WireClient:
        """A connection to it, to be opened."""
        host, _, port = self.bootstrap_servers.rpartition(":")
        return WireClient(_Address(host, int(port)))

    def __enter__(self) -> "CountedBroker":
        for entry in TABLE.values():
            entry.load()  # the first request of an API imports its module, once
        self._thread.start()
        self._ready.wait()
        assert self._loop is not None, "the broker does not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._in_loop(self._closing.set)
        self._thread.join()

    def _in_loop(self, work: Callable[[], object]) -> None:
        done = threading.Event()
        assert self._loop is not None
        self._loop.call_soon_threadsafe(work)
        self._loop.call_soon_threadsafe(done.set)
        done.wait()

    @contextmanager
    def counted(self) -> Iterator[Turns]:
        """Count while the body runs."""
        turns = Turns()
        self._in_loop(lambda: setprofile(turns.note))
        try:
            yield turns
        finally:
            self._in_loop(lambda: setprofile(None))

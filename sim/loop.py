"""An asyncio event loop in virtual time.

When nothing is ready, the time jumps to the next timer, so a world of minutes runs in as long as its computing takes.
Nothing here reads a real clock, opens a socket or starts a thread: connections go to the simulated network, and what
is given to an executor runs in the loop, a drawn moment later. One seed gives one history.

A loop that has nothing ready and no timer can never go on: it raises DeadlockError with the tasks that wait. One that
does a million steps without any time passing raises LivelockError.
"""

import asyncio
import gc
import heapq
import random
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from ottla.base.errors import OttlaError

T = TypeVar("T")

#: Virtual seconds at the beginning. Not 0, which some code takes for "never".
START_S = 1_000.0
#: Wall clock of the worlds, milliseconds since the epoch, at START_S.
_EPOCH_MS = 1_700_000_000_000
#: Steps without any time passing after which the loop is taken to turn in a circle.
_MOST_STEPS_AT_ONCE = 1_000_000


class DeadlockError(OttlaError):
    """Nothing is ready, nothing is scheduled, and the main task waits."""


class LivelockError(OttlaError):
    """Step follows step, and time stands still."""


class Connector(Protocol):
    """What the loop asks for connections: the simulated network."""

    async def connect(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...

    async def listen(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.AbstractServer: ...


class SimLoop(asyncio.BaseEventLoop):
    """See the module. `rng` decides how long work for an executor takes."""

    # BaseEventLoop's own, which its type stub does not show
    _ready: "deque[asyncio.Handle]"
    _scheduled: "list[asyncio.TimerHandle]"
    _timer_cancelled_count: int

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._now_s = START_S
        self._rng = rng
        self._steps_at_once = 0
        self.network: Connector | None = None
        #: Exceptions that nobody heard: of tasks that were forgotten, and of callbacks.
        self.unheard: list[str] = []
        self.set_exception_handler(self._note)

    # time

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def now_ms(self) -> int:
        """The worlds' wall clock."""
        return _EPOCH_MS + round((self._now_s - START_S) * 1000)

    def monotonic_ms(self) -> int:
        """The loop's time in whole milliseconds (ottla.base.clock.Clock)."""
        return int(self._now_s * 1000)

    # what is simulated

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: object
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect through the simulated network. Raises OSError as a real one does."""
        return await self._connector().connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: object
    ) -> asyncio.AbstractServer:
        """Listen in the simulated network."""
        return await self._connector().listen(protocol_factory, host, port)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Call `func` in the loop, up to ten virtual milliseconds later."""
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - it is the caller's, as in a real executor
                future.set_exception(error)

        self.call_later(self._rng.uniform(0.0, 0.01), run)
        return future

    async def getaddrinfo(self, *args: Any, **options: Any) -> Any:
        """Never: hosts are names of the simulated network."""
        raise AssertionError("a simulated world asks no resolver")

    def _connector(self) -> Connector:
        if self.network is None:
            raise OSError("this loop has no network")
        return self.network

    # BaseEventLoop's engine

    def _run_once(self) -> None:
        ready = self._ready
        if not ready:
            self._advance()
        count = len(ready)
        self._steps_at_once += count
        if self._steps_at_once > _MOST_STEPS_AT_ONCE:
            raise LivelockError(f"{self._steps_at_once} steps at {self._now_s - START_S:.6f} s:\n{self.waiting()}")
        for _ in range(count):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _advance(self) -> None:
        """Jump to the next timer, and make everything ready that is due then."""
        if self._stopping:  # type: ignore[attr-defined]
            return
        scheduled = self._scheduled
        if self._timer_cancelled_count > 256 and self._timer_cancelled_count * 2 > len(scheduled):
            self._forget_cancelled()
        while scheduled:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]
            if timer._cancelled:
                self._timer_cancelled_count -= 1
                continue
            if timer.when() > self._now_s:
                self._now_s = timer.when()
                self._steps_at_once = 0
            self._ready.append(timer)
            return
        raise DeadlockError(f"nothing will ever happen again; these tasks wait:\n{self.waiting()}")

    def _forget_cancelled(self) -> None:
        kept = []
        for timer in self._scheduled:
            if timer._cancelled:
                timer._scheduled = False  # type: ignore[attr-defined]
            else:
                kept.append(timer)
        heapq.heapify(kept)
        self._scheduled[:] = kept
        self._timer_cancelled_count = 0

    def _write_to_self(self) -> None:
        """Nobody waits in a selector: what another thread would wake is looked at in the next step."""

    # what went wrong

    def waiting(self) -> str:
        """Every task that is not done, and the line at which it waits."""
        lines = []
        for task in asyncio.all_tasks(self):
            frames = task.get_stack(limit=1)
            where = "nowhere"
            if frames:
                summary = traceback.extract_stack(frames[-1], limit=1)[0]
                where = f"{summary.filename}:{summary.lineno} {summary.name}"
            lines.append(f"  {task.get_name()} at {where}")
        return "\n".join(sorted(lines)) or "  none"

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = "".join(traceback.format_exception(error)) if error is not None else ""
        self.unheard.append(f"{context.get('message')}\n{text}".strip())


def run(main: Coroutine[Any, Any, T], loop: SimLoop) -> T:
    """Run `main` to its end in `loop`, then cancel what is left of it, and close the loop."""
    try:
        return loop.run_until_complete(main)
    finally:
        try:
            _cancel_all(loop)
        finally:
            loop.close()


def _cancel_all(loop: SimLoop) -> None:
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    del tasks
    gc.collect()  # so that what nobody heard is heard in the world that it belongs to

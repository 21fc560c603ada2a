"""An asyncio event loop in virtual time.

When nothing is ready, the time jumps to the next timer, so a world of minutes runs in as long as its computing takes.
Nothing here reads a real clock, opens a socket or starts a thread: connections go to the simulated network, and what
is given to an executor runs in the loop, a drawn moment later. One seed gives one history.

Every callback belongs to the host that its context names, HOST. A host can be frozen, then its callbacks wait until it
is thawed, and killed, then they never run: so a client dies in the middle of anything, as a process does.

A loop that has nothing ready and no timer can never go on: it raises DeadlockError with the tasks that wait. One that
does a hundred thousand steps without any time passing raises LivelockError.
"""

import asyncio
import contextlib
import gc
import heapq
import random
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from ottla.base.errors import OttlaError

T = TypeVar("T")

#: The host (a simulated process and its machine) on which the running code lives. Set it in the process's first task.
HOST: ContextVar[str] = ContextVar("host", default="nowhere")

#: Virtual seconds at the beginning. Not 0, which some code takes for "never".
START_S = 1_000.0
#: Wall clock of the worlds, milliseconds since the epoch, at START_S.
_EPOCH_MS = 1_700_000_000_000
#: No clock stands still while code runs: timer after timer that is due at once moves the time by so much.
_STEP_S = 1e-6
#: How long tasks may take to end after the world's end, in virtual seconds.
_MOST_FOR_CANCELLING_S = 5.0
#: Steps without any time passing after which the loop is taken to turn in a circle.
_MOST_STEPS_AT_ONCE = 100_000


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
        #: Frozen hosts with the callbacks that wait, and hosts that were killed.
        self._frozen: dict[str, deque[asyncio.Handle]] = {}
        self._killed: set[str] = set()
        self._buried: deque[asyncio.Handle] = deque()
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

    # hosts

    def freeze(self, host: str) -> None:
        """Nothing of this host runs until it is thawed."""
        self._frozen.setdefault(host, deque())

    def thaw(self, host: str) -> None:
        """It goes on with what has become due meanwhile."""
        self._ready.extend(self._frozen.pop(host, ()))

    def kill(self, host: str) -> None:
        """Nothing of this host runs any more."""
        self._buried.extend(self._frozen.pop(host, ()))
        self._killed.add(host)

    def host_runs(self, host: str) -> bool:
        """Whether its code runs."""
        return host not in self._killed and host not in self._frozen

    def raise_the_dead(self) -> None:
        """The world is over: let killed hosts run, so that their tasks can be cancelled."""
        self._killed.clear()
        self._ready.extend(self._buried)
        self._buried.clear()
        for host in list(self._frozen):
            self.thaw(host)

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
            if not handle._cancelled and not ((self._frozen or self._killed) and self._stopped(handle)):
                handle._run()

    def _stopped(self, handle: asyncio.Handle) -> bool:
        """Whether the callback's host does not run; one that is frozen has it later."""
        host = handle._context.get(HOST)  # type: ignore[attr-defined]
        if host in self._killed:
            self._buried.append(handle)
            return True
        waiting = self._frozen.get(host)
        if waiting is None:
            return False
        waiting.append(handle)
        return True

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
            else:
                self._now_s += _STEP_S
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

    def _check_closed(self) -> None:
        """What is collected after the world may still call; nothing comes of it."""

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
        result = loop.run_until_complete(main)
        gc.collect()  # so that `unheard` has the exceptions of forgotten tasks
        return result
    finally:
        loop.set_exception_handler(lambda loop, context: None)
        with contextlib.suppress(DeadlockError, LivelockError):
            _cancel_all(loop)
        loop.close()


def _cancel_all(loop: SimLoop) -> None:
    """End what still runs, so that nothing is said of it when it is collected."""
    loop.raise_the_dead()
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    for task in tasks:
        task.cancel()
    if tasks:
        ended = loop.create_future()
        loop.call_later(_MOST_FOR_CANCELLING_S, ended.set_result, None)
        loop.run_until_complete(ended)

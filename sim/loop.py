"""An asyncio event loop in virtual time.

When no callback is ready, the time jumps to the next timer. So minutes of a world take only as long as its code runs.
Nothing here reads a real clock, opens a socket or starts a thread. Connections go through the simulated network. Work
for an executor runs in the loop, after a delay by chance. The same seed gives the same history.

Every callback belongs to a host: its context variable HOST names it. While a host is frozen, its callbacks wait. After
it is killed, they never run. So a client can end between any two steps, as a real process can.

If no callback is ready and there is no timer, the loop can never go on: it raises DeadlockError with the tasks that
wait. After a hundred thousand steps at the same virtual time it raises LivelockError.
"""

import asyncio
import contextlib
import gc
import heapq
import logging
import random
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, Protocol, TypeVar

from ottla.base.errors import OttlaError
from sim.steps import ProcessDied

T = TypeVar("T")

#: The host (a simulated process and its machine) that the running code belongs to. A process's first task sets it.
HOST: ContextVar[str] = ContextVar("host", default="nowhere")

#: The virtual time at the beginning, in seconds. It is not 0, because code may use 0 for "never".
START_S = 1_000.0
#: The wall clock at START_S, in milliseconds since the epoch.
_EPOCH_MS = 1_700_000_000_000
#: A real clock does not stand still while code runs: each timer that is due already moves the time by so much.
_STEP_S = 1e-6
#: How long tasks may take to end after they are cancelled, in virtual seconds.
_MOST_FOR_CANCELLING_S = 5.0
#: After so many steps at the same virtual time the loop raises LivelockError.
_MOST_STEPS_AT_ONCE = 100_000


class DeadlockError(OttlaError):
    """No callback is ready, there is no timer, and the main task waits."""


class LivelockError(OttlaError):
    """There are always more callbacks ready, so that the virtual time stands still."""


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

    # BaseEventLoop has these; its type stub does not show them
    _ready: "deque[asyncio.Handle]"
    _timer_cancelled_count: int

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._now_s = START_S
        self._rng = rng
        #: Timers in a heap: when, the number of the timer (so that those of one time come in their order), the timer.
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_number = 0
        self._steps_at_once = 0
        self.network: Connector | None = None
        #: The longest time that work for an executor takes: ten milliseconds, more while a disk is slow.
        self.work_s = 0.01
        #: Frozen hosts, and their callbacks that wait.
        self._frozen: dict[str, deque[asyncio.Handle]] = {}
        #: Hosts that were killed, and their callbacks, which are kept until `run_killed_hosts`.
        self._killed: set[str] = set()
        self._of_killed: deque[asyncio.Handle] = deque()
        #: When the last piece of work of each executor is done.
        self._executors: weakref.WeakKeyDictionary[object, float] = weakref.WeakKeyDictionary()
        #: Exceptions that no code has handled: of tasks that nobody awaits, and of callbacks.
        self.unheard: list[str] = []
        self.set_exception_handler(self._note)

    # time

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def now_ms(self) -> int:
        """The wall clock, in milliseconds since the epoch (ottla.base.clock.Clock)."""
        return _EPOCH_MS + round((self._now_s - START_S) * 1000)

    def monotonic_ms(self) -> int:
        """The loop's time in whole milliseconds (ottla.base.clock.Clock)."""
        return int(self._now_s * 1000)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call `callback` at a virtual time. As asyncio does, with a heap whose order needs no call into Python."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]
        self._timer_number += 1
        heapq.heappush(self._timers, (when, self._timer_number, timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call `callback` so many virtual seconds from now."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    # hosts

    def freeze(self, host: str) -> None:
        """Run no callback of this host until it is thawed."""
        self._frozen.setdefault(host, deque())

    def thaw(self, host: str) -> None:
        """Let the host go on, first with the callbacks that have waited."""
        self._ready.extend(self._frozen.pop(host, ()))

    def kill(self, host: str) -> None:
        """Run no callback of this host any more."""
        self._of_killed.extend(self._frozen.pop(host, ()))
        self._killed.add(host)

    def host_runs(self, host: str) -> bool:
        """Whether the host is neither frozen nor killed."""
        return host not in self._killed and host not in self._frozen

    def run_killed_hosts(self) -> None:
        """The world is over: let all hosts run again, so that their tasks can be cancelled."""
        self._killed.clear()
        self._ready.extend(self._of_killed)
        self._of_killed.clear()
        for host in list(self._frozen):
            self.thaw(host)

    # simulated instead of real

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: object
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect through the simulated network. Raises OSError, as a real loop does."""
        return await self._connector().connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: object
    ) -> asyncio.AbstractServer:
        """Listen in the simulated network."""
        return await self._connector().listen(protocol_factory, host, port)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Call `func` in the loop, at most `work_s` virtual seconds later. One executor's work is done in order."""
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - the caller gets it, as from a real executor
                future.set_exception(error)

        at_s = self._now_s + self._rng.uniform(0.0, self.work_s)
        if executor is not None:
            at_s = self._executors[executor] = max(at_s, self._executors.get(executor, 0.0) + _STEP_S)
        self.call_at(at_s, run)
        return future

    async def getaddrinfo(self, *args: Any, **options: Any) -> Any:
        """Fails: the simulated network uses names of hosts, so nobody needs an address."""
        raise AssertionError("a simulated world needs no resolver: hosts have names only")

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
        """Whether the callback's host is frozen or killed. Keeps the callback in that case."""
        host = handle._context.get(HOST)  # type: ignore[attr-defined]
        if host in self._killed:
            self._of_killed.append(handle)
            return True
        waiting = self._frozen.get(host)
        if waiting is None:
            return False
        waiting.append(handle)
        return True

    def _advance(self) -> None:
        """Jump to the time of the next timer, and make its callback ready."""
        if self._stopping:  # type: ignore[attr-defined]
            return
        timers = self._timers
        if self._timer_cancelled_count > 256 and self._timer_cancelled_count * 2 > len(timers):
            self._forget_cancelled()
        while timers:
            when, _, timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            if timer._cancelled:
                self._timer_cancelled_count -= 1
                continue
            if when > self._now_s:
                self._now_s = when
                self._steps_at_once = 0
            else:
                self._now_s += _STEP_S
            self._ready.append(timer)
            return
        raise DeadlockError(f"nothing is ready and there is no timer, but these tasks wait:\n{self.waiting()}")

    def _forget_cancelled(self) -> None:
        kept = []
        for entry in self._timers:
            if entry[2]._cancelled:
                entry[2]._scheduled = False  # type: ignore[attr-defined]
            else:
                kept.append(entry)
        heapq.heapify(kept)
        self._timers[:] = kept
        self._timer_cancelled_count = 0

    def _check_closed(self) -> None:
        """Do not raise: objects that are collected after the world may still call the loop. Nothing runs then."""

    def _write_to_self(self) -> None:
        """Nothing to do: this loop has no selector that another thread would have to wake."""

    # what went wrong

    def waiting(self) -> str:
        """Each task that is not done, and the line at which it waits."""
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
        if isinstance(error, ProcessDied):
            return
        text = "".join(traceback.format_exception(error)) if error is not None else ""
        self.unheard.append(f"{context.get('message')}\n{text}".strip())


def run(main: Coroutine[Any, Any, T], loop: SimLoop) -> T:
    """Run `main` to its end in `loop`. Then cancel the other tasks, and close the loop."""
    try:
        result = loop.run_until_complete(main)
        gc.collect()  # tasks that nobody awaits report their exceptions to `unheard` when they are collected
        return result
    finally:
        loop.set_exception_handler(lambda loop, context: None)
        with contextlib.suppress(DeadlockError, LivelockError):
            _cancel_all(loop)
        loop.close()


def _cancel_all(loop: SimLoop) -> None:
    """Cancel every task, so that none is reported as pending when it is collected. What they log then is no news."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        _cancel_tasks(loop)
    finally:
        logging.disable(disabled)


def _cancel_tasks(loop: SimLoop) -> None:
    loop.run_killed_hosts()
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    for task in tasks:
        task.cancel()
    if tasks:
        ended = loop.create_future()
        loop.call_later(_MOST_FOR_CANCELLING_S, ended.set_result, None)
        loop.run_until_complete(ended)

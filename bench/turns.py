"""Which turns of the broker's loop are long: `python -m bench.turns MILLISECONDS [--uvloop] serve --port 9092 …`

Runs `ottla` with asyncio's own loop in place of uvloop, and prints each turn of the loop that takes longer, each
callback in it, each step of long work, and each garbage collection, to its error output. A turn is all callbacks
between two looks at the sockets: those of many connections together. A coroutine, or an iterator of steps, is told with
the line at which it went on, and those of all that it waits for. Beside other work the milliseconds of CPU are what
counts; a few microseconds a callback are this tool's own. With `--uvloop` the broker has its own loop, which is kept
busy, and only whole turns are told: it says nothing of callbacks.
"""

from __future__ import annotations

import asyncio
import gc
import runpy
import selectors
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any


def _place(work: Any) -> str:
    """Where a coroutine or a generator goes on: function and line, of each that the one before waits for."""
    found = []
    while work is not None:
        frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)
        if frame is None:
            break
        if frame.f_globals.get("__package__") != "asyncio":
            found.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)
    return " > ".join(found)


def _name(callback: Any) -> str:
    """What will be called: a task by where its coroutine goes on, anything else by its own name."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        name = "" if owner.get_name().startswith("Task-") else f" ({owner.get_name()})"
        return f"task {_place(owner.get_coro())}{name}"
    return str(getattr(callback, "__qualname__", callback))[:200]


class _Watch:
    """From `begin` to `end`, again and again; what takes longer is printed."""

    def __init__(self, what: str, limit_ms: float) -> None:
        self._what, self._limit_ms = what, limit_ms
        self._begun = self._begun_cpu = time.perf_counter()

    def begin(self) -> None:
        self._begun, self._begun_cpu = time.perf_counter(), time.thread_time()

    def end(self, more: str) -> float:
        """How many milliseconds it has taken."""
        taken_ms = (time.perf_counter() - self._begun) * 1000
        if taken_ms > self._limit_ms:
            cpu_ms = (time.thread_time() - self._begun_cpu) * 1000
            told = f"{self._what} of {taken_ms:.0f} ms, {cpu_ms:.0f} of CPU{more}"
            print(told, file=sys.stderr, flush=True)
        return taken_ms


def _timed(run: Callable[[], Any], limit_ms: float, what: str, name: Callable[[], str]) -> Any:
    """What `run` gives; printed if it takes longer."""
    called, watch = name(), _Watch(what, limit_ms)
    watch.begin()
    try:
        return run()
    finally:
        watch.end(f": {called}")


def _watch_turns(limit_ms: float) -> None:
    """A turn goes from the end of a look at the sockets to the next look."""
    watch, look = _Watch("turn", limit_ms), selectors.DefaultSelector.select
    callbacks = _watch_callbacks(limit_ms)

    def looked(self: Any, timeout: float | None = None) -> Any:
        if callbacks:
            watch.end(f": {told(callbacks)}")
        callbacks.clear()
        found = look(self, timeout)
        watch.begin()
        return found

    selectors.DefaultSelector.select = looked  # type: ignore[method-assign]


def _watch_turns_of_uvloop(limit_ms: float) -> None:
    """A callback that comes in every turn."""
    import uvloop

    run = uvloop.run

    async def watched(work: Coroutine[Any, Any, Any]) -> Any:
        loop, watch = asyncio.get_running_loop(), _Watch("turn", limit_ms)

        def turn() -> None:
            watch.end("")
            watch.begin()
            loop.call_soon(turn)

        watch.begin()
        turn()
        return await work

    uvloop.run = lambda work, **settings: run(watched(work), **settings)


def told(callbacks: Sequence[tuple[float, str]]) -> str:
    """What the line of a turn says of its callbacks: milliseconds, and what was called."""
    longest_ms, name = max(callbacks)
    return f"{len(callbacks)} callbacks, the longest {longest_ms:.1f} ms: {name}"


def _watch_callbacks(limit_ms: float) -> list[tuple[float, str]]:
    """What each has taken in milliseconds is added to this list, and its name."""
    taken: list[tuple[float, str]] = []
    # A task of asyncio in C does not say which it is before it runs.
    asyncio.Task = asyncio.tasks.Task = asyncio.tasks._PyTask  # type: ignore[attr-defined, misc]
    asyncio.Future = asyncio.futures.Future = asyncio.futures._PyFuture  # type: ignore[attr-defined, misc]
    handle: Any = asyncio.Handle
    run, watch = handle._run, _Watch("callback", limit_ms)

    def timed(self: Any) -> None:
        name = _name(self._callback)
        watch.begin()
        run(self)
        taken.append((watch.end(f": {name}"), name))

    handle._run = timed
    return taken


def _watch_steps(limit_ms: float) -> None:
    from ottla.broker.runtime.slices import Slices

    taken = Slices._slice

    def timed_slice(self: Slices, steps: Iterator[object]) -> tuple[bool, asyncio.Future[Any] | None]:
        def timed() -> Iterator[object]:
            try:
                while True:
                    yield _timed(lambda: next(steps), limit_ms, "step", lambda: _place(steps))
            except StopIteration:
                return

        return taken(self, timed())

    Slices._slice = timed_slice  # type: ignore[method-assign]


def _watch_collections(limit_ms: float) -> None:
    begun = 0.0

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal begun
        if phase == "start":
            begun = time.perf_counter()
        elif (taken_ms := (time.perf_counter() - begun) * 1000) > limit_ms:
            generation = info["generation"]
            print(f"collection of generation {generation}, {taken_ms:.0f} ms", file=sys.stderr, flush=True)

    gc.callbacks.append(collected)


def watch(limit_ms: float, *, with_uvloop: bool) -> None:
    """From now on long turns, callbacks, steps and collections are printed."""
    if with_uvloop:
        _watch_turns_of_uvloop(limit_ms)
    else:
        sys.modules["uvloop"] = None  # type: ignore[assignment]  # importing it fails: the broker takes asyncio's loop
        _watch_turns(limit_ms)
    _watch_steps(limit_ms)
    _watch_collections(limit_ms)


if __name__ == "__main__":
    with_uvloop = "--uvloop" in sys.argv[:3]
    arguments = [each for each in sys.argv[1:3] if each != "--uvloop"] + sys.argv[3:]
    try:
        limit_ms = float(arguments[0])
    except (IndexError, ValueError):
        sys.exit("say from how many milliseconds on: python -m bench.turns 20 serve --port 9092 --data-dir DIR")
    watch(limit_ms, with_uvloop=with_uvloop)
    sys.argv = ["ottla", *arguments[1:]]
    runpy.run_module("ottla", run_name="__main__")

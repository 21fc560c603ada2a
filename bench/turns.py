"""Which turns of the broker's loop are long: `python -m bench.turns MILLISECONDS serve --port 9092 …`

Runs `ottla` with asyncio's own loop in place of uvloop, and prints each callback that takes longer, each step of long
work that does, and each garbage collection, to its error output. A coroutine, or an iterator of steps, is told with the
line at which it went on, and those of all that it waits for. Beside other work the milliseconds of CPU are what counts.
"""

from __future__ import annotations

import asyncio
import gc
import runpy
import sys
import time
from collections.abc import Callable, Iterator
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


def _timed(run: Callable[[], Any], limit_ms: float, what: str, name: Callable[[], str]) -> Any:
    """What `run` gives; printed if it takes longer."""
    called, start, cpu = name(), time.perf_counter(), time.thread_time()
    try:
        return run()
    finally:
        taken_ms = (time.perf_counter() - start) * 1000
        if taken_ms > limit_ms:
            cpu_ms = (time.thread_time() - cpu) * 1000
            print(f"{what} of {taken_ms:.0f} ms, {cpu_ms:.0f} of CPU: {called}", file=sys.stderr, flush=True)


def _watch_turns(limit_ms: float) -> None:
    # A task of asyncio in C does not say which it is before it runs.
    asyncio.Task = asyncio.tasks.Task = asyncio.tasks._PyTask  # type: ignore[attr-defined, misc]
    asyncio.Future = asyncio.futures.Future = asyncio.futures._PyFuture  # type: ignore[attr-defined, misc]
    handle: Any = asyncio.Handle
    run = handle._run

    def timed(self: Any) -> None:
        _timed(lambda: run(self), limit_ms, "turn", lambda: _name(self._callback))

    handle._run = timed


def _watch_steps(limit_ms: float) -> None:
    from ottla.broker.runtime.slices import Slices

    taken = Slices._slice

    def timed_slice(self: Slices, steps: Iterator[object]) -> bool:
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


def watch(limit_ms: float) -> None:
    """From now on long turns, long steps and long collections are printed."""
    _watch_turns(limit_ms)
    _watch_steps(limit_ms)
    _watch_collections(limit_ms)


if __name__ == "__main__":
    try:
        limit_ms = float(sys.argv[1])
    except (IndexError, ValueError):
        sys.exit("say from how many milliseconds on: python -m bench.turns 20 serve --port 9092 --data-dir DIR")
    watch(limit_ms)
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # importing it fails, and the broker takes asyncio's loop
    sys.argv = ["ottla", *sys.argv[2:]]
    runpy.run_module("ottla", run_name="__main__")

"""Which turns of the broker's loop are long: `python -m bench.turns MILLISECONDS serve --port 9092 …`

Runs `ottla` with asyncio's own loop in place of uvloop, and prints each callback that takes longer, and each garbage
collection that does, to its error output. Beside other work the milliseconds of CPU are what counts.
"""

from __future__ import annotations

import asyncio
import gc
import runpy
import sys
import time
from typing import Any


def _name(callback: Any) -> str:
    """What was called: a task by its coroutine, anything else by its own name."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        name = "" if owner.get_name().startswith("Task-") else f" ({owner.get_name()})"
        return f"task {getattr(owner.get_coro(), '__qualname__', owner.get_coro())}{name}"
    return str(getattr(callback, "__qualname__", callback))[:200]


def watch(limit_ms: float) -> None:
    """From now on long turns are printed."""
    handle: Any = asyncio.Handle
    run = handle._run

    def timed(self: Any) -> None:
        callback, start, cpu = self._callback, time.perf_counter(), time.thread_time()
        run(self)
        taken_ms = (time.perf_counter() - start) * 1000
        if taken_ms > limit_ms:
            cpu_ms = (time.thread_time() - cpu) * 1000
            print(f"turn of {taken_ms:.0f} ms, {cpu_ms:.0f} of CPU: {_name(callback)}", file=sys.stderr, flush=True)

    handle._run = timed
    begun = 0.0

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal begun
        if phase == "start":
            begun = time.perf_counter()
        elif (taken_ms := (time.perf_counter() - begun) * 1000) > limit_ms:
            generation = info["generation"]
            print(f"collection of generation {generation}, {taken_ms:.0f} ms", file=sys.stderr, flush=True)

    gc.callbacks.append(collected)


if __name__ == "__main__":
    try:
        limit_ms = float(sys.argv[1])
    except (IndexError, ValueError):
        sys.exit("say from how many milliseconds on: python -m bench.turns 20 serve --port 9092 --data-dir DIR")
    watch(limit_ms)
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # importing it fails, and the broker takes asyncio's loop
    sys.argv = ["ottla", *sys.argv[2:]]
    runpy.run_module("ottla", run_name="__main__")

"""How long another client waits meanwhile: a process that asks for nothing much every few milliseconds.

`python -m bench.canary BOOTSTRAP` until its input ends; then it prints milliseconds: of the slowest answer, and of p99.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.figure import Values, percentile
from bench.wire import Wire
from ottla.wire.apis import ApiKey
from ottla.wire.messages.metadata import MetadataRequest

_PAUSE_S = 0.005


@contextmanager
def canary(bootstrap: str, during: str, found: Values) -> Iterator[None]:
    """Put what another client waits while the body runs into `found`."""
    command = [sys.executable, "-m", "bench.canary", bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has begun
        try:
            yield
        finally:
            said, _ = process.communicate()
    slowest, high = json.loads(said)
    found[f"{during}: another client's slowest answer"] = slowest
    found[f"{during}: another client's answer, p99"] = high


async def _sing(bootstrap: str) -> list[float]:
    loop, taken = asyncio.get_running_loop(), list[float]()
    ended = loop.run_in_executor(None, sys.stdin.read)
    async with Wire(bootstrap) as wire:
        print(flush=True)
        while not ended.done():
            start = time.perf_counter()
            await wire.ask(ApiKey.METADATA, MetadataRequest(topics=()))
            taken.append((time.perf_counter() - start) * 1000)
            await asyncio.sleep(_PAUSE_S)
    return taken


if __name__ == "__main__":
    times = asyncio.run(_sing(sys.argv[1]))
    print(json.dumps([max(times), percentile(times, 0.99)]))

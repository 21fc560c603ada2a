"""The canary of the fuzz, a process of its own: a record every 20 ms by each of the configurations on standard input.

    python -m bench.fuzz_canary SECONDS < configurations.json

Prints p50, p99 and the longest time of an acknowledged write in milliseconds, by name. Times are from when a write was
due, so that a broker that stands still is not asked less often.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping

from ottla import AsyncProducer

_EVERY_S = 0.02


async def _writes(config: Mapping[str, str], seconds: float) -> dict[str, float]:
    took: list[float] = []

    async def write(producer: AsyncProducer, due: float) -> None:
        delivery = await producer.send("canary", b"x" * 100)
        await delivery
        took.append((time.perf_counter() - due) * 1000)

    async with AsyncProducer(config) as producer, asyncio.TaskGroup() as group:
        await producer.partitions_for("canary")
        begun = time.perf_counter()
        for n in range(int(seconds / _EVERY_S)):
            due = begun + n * _EVERY_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(write(producer, due))
    took.sort()
    at = {"p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100], "max": took[-1]}
    return {"writes": len(took), **{name: round(value, 2) for name, value in at.items()}}


async def _all(configs: Mapping[str, Mapping[str, str]], seconds: float) -> dict[str, dict[str, float]]:
    found = await asyncio.gather(*(_writes(config, seconds) for config in configs.values()))
    return dict(zip(configs, found, strict=True))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_all(json.load(sys.stdin), float(sys.argv[1])))))

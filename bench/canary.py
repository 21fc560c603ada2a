"""How long a small producer and consumer wait meanwhile: a process that writes a record every few milliseconds.

`python -m bench.canary BOOTSTRAP` until its input ends; then it prints milliseconds: of the slowest record, and of p99.
A record's time goes from its request until both are there: the acknowledgement, and the record at a reader that waits.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from bench.beside import beside
from bench.figure import Values, percentile
from bench.wire import NOW_MS, Wire, made_topic, settled
from ottla.wire.apis import ApiKey
from ottla.wire.batch import iter_headers
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch

_PAUSE_S = 0.005
_WAIT_MS, _BYTES = 30_000, 1_000_000
_RECORD = encode_batch([Record(0, NOW_MS, None, b"x" * 100, ())])
#: How a value of the canary is called, after what it was measured beside.
SLOWEST, HIGH = "another client's slowest record", "another client's record, p99"

#: A broker that serves nobody for so long after the heavy thing counts as one that has ended.
_PATIENCE_S = 60.0


@contextmanager
def canary(bootstrap: str, during: str, found: Values) -> Iterator[None]:
    """Put what another client waits while the body runs into `found`."""
    with beside("bench.canary", bootstrap, wait_s=_PATIENCE_S, late="another client is not served") as said:
        yield
    slowest, high = said
    found[f"{during}: {SLOWEST}"] = slowest
    found[f"{during}: {HIGH}"] = high


async def _sing(bootstrap: str) -> list[float]:
    loop, taken = asyncio.get_running_loop(), list[float]()
    topic = f"canary-{uuid.uuid4().hex[:10]}"
    async with Wire(bootstrap) as writer, Wire(bootstrap) as reader:
        await made_topic(writer, topic)
        end = await _written(writer, topic)
        ended = loop.run_in_executor(None, sys.stdin.read)
        print(flush=True)
        while not ended.done():
            start = time.perf_counter()
            await asyncio.gather(_written(writer, topic), _read(reader, topic, end + len(taken) + 1))
            taken.append((time.perf_counter() - start) * 1000)
            await asyncio.sleep(_PAUSE_S)
    return taken


async def _written(wire: Wire, topic: str) -> int:
    """Write a record; returns its offset."""
    data = (TopicProduceData(name=topic, partition_data=(PartitionProduceData(0, _RECORD),)),)
    request = ProduceRequest(None, -1, _WAIT_MS, data)
    answer = await settled(wire, ApiKey.PRODUCE, request, lambda a: a.responses[0].partition_responses[0].error_code)
    offset: int = answer.responses[0].partition_responses[0].base_offset
    return offset


async def _read(wire: Wire, topic: str, offset: int) -> None:
    """Until the record at this offset has come."""
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=_BYTES)
    request = FetchRequest(
        max_wait_ms=_WAIT_MS, min_bytes=1, max_bytes=_BYTES, topics=(FetchTopic(topic=topic, partitions=(wanted,)),)
    )
    last = -1
    while last < offset:
        answer = await settled(wire, ApiKey.FETCH, request, lambda a: a.responses[0].partitions[0].error_code)
        for _, header in iter_headers(memoryview(answer.responses[0].partitions[0].records or b"")):
            last = header.last_offset


if __name__ == "__main__":
    times = asyncio.run(_sing(sys.argv[1]))
    print(json.dumps([max(times), percentile(times, 0.99)]))

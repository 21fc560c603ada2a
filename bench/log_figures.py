"""What a broker's log costs: the cleaner's rate, and what others wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench.broker_cpu import counted
from bench.broker_figures import new_topic
from bench.figure import CPU, MEGABYTES_A_SECOND, MICROSECONDS, Measure, Unit, Values, percentile
from bench.loud import loud_producer
from bench.wire import Wire, check
from ottla.wire.apis import ApiKey
from ottla.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

#: What both brokers get for these figures: the cleaner looks often, so that its wait is no part of its rate.
SETTINGS = {"log.cleaner.backoff.ms": "500"}

NOTE = (
    "Cleaned: a topic of 300 MB, 10,000 keys written 30 times each with 1,000 bytes, without compression, in segments "
    "of 16 MB; its bytes, divided by the time from the moment its `cleanup.policy` becomes `compact` until its size "
    "falls no more (`log.cleaner.backoff.ms=500`). Acknowledged writes are of librdkafka, 100 bytes to another topic, "
    "one every 2 ms at most: first with nothing else on the broker, then while it cleans a second such topic. CPU is "
    "the broker's process's, all threads, for a million of the records that are cleaned, with what the looks at the "
    "size take, and the writes. Aim: 1.0."
)

_KEYS, _TIMES, _VALUE_BYTES, _SEGMENT_BYTES = 10_000, 30, 1_000, 16_777_216
_LOOK_S, _SETTLED_S, _GIVE_UP_S = 0.1, 3.0, 400.0
_WRITES, _PAUSE_S = 1_000, 0.002
_WAIT_S = 300.0


def cleaning(bootstrap: str, scale: float) -> Values:
    """The cleaner alone, and what acknowledged writes wait with it and without it."""
    keys = max(1_000, int(_KEYS * scale))
    alone, beside = (_filled(bootstrap, keys) for _ in range(2))
    found, records = Values(), keys * _TIMES
    _compact(bootstrap, alone)
    with counted(found, "cleaned", records):
        rate = asyncio.run(_rate(bootstrap, alone, keys, lambda: None))
    writer = _Writer(bootstrap)
    for _ in range(_WRITES):
        writer.write()
    quiet, writer.taken = writer.taken, []
    _compact(bootstrap, beside)
    with counted(found, "cleaned beside writes", records):
        with_writes = asyncio.run(_rate(bootstrap, beside, keys, writer.write))
    return {
        "cleaned": rate,
        "cleaned beside writes": with_writes,
        "acknowledged write, p50": percentile(quiet, 0.5),
        "acknowledged write, p99": percentile(quiet, 0.99),
        "acknowledged write while it cleans, p50": percentile(writer.taken, 0.5),
        "acknowledged write while it cleans, p99": percentile(writer.taken, 0.99),
        **found,
    }


class _Writer:
    """Writes a record at a time to a topic of its own; `taken` has the microseconds to each acknowledgement."""

    def __init__(self, bootstrap: str) -> None:
        self._topic = new_topic(bootstrap)
        self._producer = loud_producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
        self.taken: list[float] = []
        self.write()
        self.taken.clear()

    def write(self) -> None:
        """One record, and a pause."""
        start = time.perf_counter()
        self._producer.produce(self._topic, b"x" * 100)
        self._producer.flush()
        self.taken.append((time.perf_counter() - start) * 1e6)
        time.sleep(_PAUSE_S)


def _filled(bootstrap: str, keys: int) -> str:
    """A topic that nobody cleans yet: every key in each round, in another order."""
    topic = new_topic(bootstrap)
    _set(bootstrap, topic, {"segment.bytes": str(_SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01"})
    queue = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1_000_000}
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 500_000, **queue}
    producer = loud_producer(settings)
    value = b"v" * _VALUE_BYTES
    for turn in range(_TIMES):
        for n in range(keys):
            producer.produce(topic, value, key=b"%08d" % ((n * 7919 + turn) % keys))
        producer.flush()
    return topic


def _compact(bootstrap: str, topic: str) -> None:
    _set(bootstrap, topic, {"cleanup.policy": "compact"})


def _set(bootstrap: str, topic: str, settings: dict[str, str]) -> None:
    entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in settings.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept: without it the answer would be lost
    admin.incremental_alter_configs([resource])[resource].result(_WAIT_S)


async def _rate(bootstrap: str, topic: str, keys: int, meanwhile: Callable[[], None]) -> float:
    """MB a second until the topic's size has stayed the same for some seconds, which do not count.

    TimeoutError when it is not cleaned in the end: less than twice what is left at least.
    """
    async with Wire(bootstrap) as wire:
        full = size = await _size(wire, topic)
        start = looked = fallen = time.perf_counter()
        clean = 2 * (keys * _VALUE_BYTES + _SEGMENT_BYTES)
        while size > clean or looked - fallen < _SETTLED_S:
            if looked - start > _GIVE_UP_S:
                raise TimeoutError(f"{topic} has {size:,} bytes after {_GIVE_UP_S:.0f} s, cleaned less than {clean:,}")
            while time.perf_counter() - looked < _LOOK_S:
                meanwhile()
                await asyncio.sleep(0.001)
            before, size, looked = size, await _size(wire, topic), time.perf_counter()
            if size < before:
                fallen = looked
    return full / (fallen - start) / 1e6


async def _size(wire: Wire, topic: str) -> int:
    request = DescribeLogDirsRequest((DescribableLogDirTopic(topic, (0,)),))
    answer = await wire.ask(ApiKey.DESCRIBE_LOG_DIRS, request)
    check("DESCRIBE_LOG_DIRS", answer.error_code)
    size: int = answer.results[0].topics[0].partitions[0].partition_size
    return size


FIGURES: dict[str, Measure] = {"cleaning": cleaning}


def unit_of(name: str) -> Unit:
    """The unit of a value of this module."""
    if name.endswith("CPU"):
        return CPU
    return MEGABYTES_A_SECOND if name.startswith("cleaned") else MICROSECONDS

"""What load costs a broker: CPU of its process for records in and out, many clients at once, waits under half load.

A rate on a small machine is as often the client's limit as the broker's. Its CPU is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.broker_cpu import counted
from bench.broker_figures import SIZES, consume, new_topic, produce
from bench.figure import CPU, MICROSECONDS, RATE, Measure, Unit, Values, percentile
from bench.loud import loud_producer
from bench.raw_reader import Arrival, read_raw, reading, waits_us

NOTE = (
    "CPU is user and system time of the broker's process, all threads, in seconds for a million records; librdkafka "
    "writes and reads, if nothing else is said. The raw reader asks by Fetch v12 and looks at batches' headers only. "
    "Many clients share the records (100 bytes, of random partitions) and one Python process; a reader that has "
    "enough asks again after 10 ms (`fetch.queue.backoff.ms`, 1 s unless set). Half load: 1 KB records at half the "
    "rate that the same loop reaches without pauses; acknowledged goes from when a record is due until the producer is "
    "told; end to end, in a run of its own, until the raw reader, another process, has it. Aims: CPU in and out 3, the "
    "raw reader's rate 1.3."
)

_CLIENTS, _PARTITIONS, _MANY_RECORDS = (1, 10, 100), (1, 100, 1_000), 300_000
_SMALL_RECORDS, _HALF_RECORDS, _WAIT_S = 100_000, 300_000, 120.0
_QUEUE = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1_000_000}


def cost(bootstrap: str, scale: float) -> Values:
    """In, out, and out without a client's own work, at each size."""
    found: Values = {}
    for size_name, (size, full) in SIZES.items():
        records = int(full * scale)
        topic = new_topic(bootstrap)
        with counted(found, f"in, {size_name}", records):
            found[f"in, {size_name}"] = produce(bootstrap, topic, records, size)
        with counted(found, f"out, {size_name}", records):
            found[f"out, {size_name}"] = consume(bootstrap, topic, records)
        with counted(found, f"out, {size_name}, raw reader", records):
            found[f"out, {size_name}, raw reader"] = _raw_rate(bootstrap, topic, records)
    return found


def _raw_rate(bootstrap: str, topic: str, records: int) -> float:
    """Records a second of a reader that does not look at records."""
    start = time.perf_counter()
    read_raw(bootstrap, topic, records)
    return records / (time.perf_counter() - start)


def many(clients: int, partitions: int, bootstrap: str, scale: float) -> Values:
    """So many producers, then so many consumers, on a topic of so many partitions."""
    found: Values = {}
    records = int(_MANY_RECORDS * scale)
    topic = new_topic(bootstrap, partitions)
    name = f"{clients} clients, {partitions:,} partitions"
    with counted(found, f"in, {name}", records):
        found[f"in, {name}"] = _produced(bootstrap, topic, clients, records)
    with counted(found, f"out, {name}", records):
        found[f"out, {name}"] = _consumed(bootstrap, topic, clients, partitions, records)
    return found


def _produced(bootstrap: str, topic: str, clients: int, records: int) -> float:
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, **_QUEUE}
    producers = [loud_producer(settings) for _ in range(clients)]
    for each in producers:
        each.list_topics(topic, _WAIT_S)
    value, start = b"x" * 100, time.perf_counter()
    for n in range(records):
        producers[n % clients].produce(topic, value)
        if n % 1_000 < clients:
            producers[n % clients].poll(0)
    for each in producers:
        if each.flush(_WAIT_S):
            raise TimeoutError(f"some records were not acknowledged within {_WAIT_S:.0f} s")
    return records / (time.perf_counter() - start)


def _consumed(bootstrap: str, topic: str, clients: int, partitions: int, records: int) -> float:
    """Each reads its share of the partitions; where there are too few, several read the same one, a share each."""
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False}
    # A reader that has enough waits before it asks again, 1 s unless set: a broker that is soon ahead of it would seem
    # slow. Nor may readers of one partition, who are asked for a share each, go on to read all of it.
    enough = max(records // clients, 1_000) if clients > partitions else records
    settings |= {"queued.min.messages": enough, "fetch.queue.backoff.ms": 10, "fetch.wait.max.ms": 100}
    consumers: list[Any] = [Consumer(settings) for _ in range(clients)]
    for n, each in enumerate(consumers):
        numbers = range(n, partitions, clients) if clients <= partitions else (n % partitions,)
        each.assign([TopicPartition(topic, number, 0) for number in numbers])
    read, start = 0, time.perf_counter()
    left = dict.fromkeys(consumers, records // clients) if clients > partitions else {}
    while read < records // clients * clients:
        if time.perf_counter() - start > _WAIT_S:
            raise TimeoutError(f"{read} of {records} records after {_WAIT_S:.0f} s")
        for each in consumers:
            got = len(each.consume(10_000, 0.0 if clients > 1 else 0.1))
            if left:
                got = min(got, left[each])
                left[each] -= got
            read += got
    taken = time.perf_counter() - start
    for each in consumers:
        each.close()
    return read / taken


def small(bootstrap: str, scale: float) -> Values:
    """Records that leave at once, in batches of ten at most."""
    found: Values = {}
    records = int(_SMALL_RECORDS * scale)
    with counted(found, "in, linger 0, batches of 10", records):
        rate = produce(
            bootstrap, new_topic(bootstrap), records, 100, **{"linger.ms": 0, "batch.num.messages": 10, **_QUEUE}
        )
    return {"in, linger 0, batches of 10": rate, **found}


class _Paced(NamedTuple):
    """What one loop of `_paced` was."""

    rate: float
    #: time.perf_counter() when record 0 was due.
    start_s: float
    #: Microseconds from when each record was due until it was acknowledged.
    taken: list[float]


def half(bootstrap: str, scale: float) -> Values:
    """What an acknowledgement takes at half the rate that the loop reaches, and then until a reader has a record."""
    topic, records, found = new_topic(bootstrap), max(20_000, int(_HALF_RECORDS * scale)), Values()
    rate = _paced(bootstrap, topic, records, lambda _: 0.0).rate
    found["half load"] = rate / 2

    def due_s(number: int) -> float:
        return number / rate * 2

    with counted(found, "half load", records):
        alone = _paced(bootstrap, topic, records, due_s)
    _told(found, "acknowledged", alone.taken[records // 10 :])
    topic, arrivals = new_topic(bootstrap), list[Arrival]()
    with counted(found, "half load, with a reader", records), reading(bootstrap, topic, records, arrivals):
        beside = _paced(bootstrap, topic, records, due_s)
    _told(found, "end to end", waits_us(arrivals, lambda number: beside.start_s + due_s(number), records // 10))
    return found


def _told(found: Values, what: str, taken: list[float]) -> None:
    for name, share in {"50": 0.5, "99": 0.99, "99.9": 0.999}.items():
        found[f"half load: {what}, p{name}"] = percentile(taken, share)


def _paced(bootstrap: str, topic: str, records: int, due_s: Callable[[int], float]) -> _Paced:
    """Write so many records, each when it is due: `due_s` says how long after the start."""
    producer: Any = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1, **_QUEUE})
    producer.list_topics(topic, _WAIT_S)
    value, taken, start = b"x" * 1_000, list[float](), time.perf_counter()

    def acknowledged(due: float, error: Any, _message: Any) -> None:
        if error is not None:
            raise RuntimeError(f"a record was not written: {error}")
        taken.append((time.perf_counter() - due) * 1e6)

    for n in range(records):
        due = due_s(n)
        while due and time.perf_counter() - start < due:
            producer.poll(0.0005)
        producer.produce(topic, value, on_delivery=partial(acknowledged, start + due if due else time.perf_counter()))
        if n % 20 == 0:
            producer.poll(0)
    producer.flush(_WAIT_S)
    return _Paced(records / (time.perf_counter() - start), start, taken)


FIGURES: dict[str, Measure] = {
    "cost": cost,
    "small": small,
    "half": half,
    **{f"many {c} {p}": partial(many, c, p) for c in _CLIENTS for p in _PARTITIONS},
}


def unit_of(name: str) -> Unit:
    """The unit of a value of this module."""
    if name.endswith("CPU"):
        return CPU
    return MICROSECONDS if name.startswith("half load:") else RATE

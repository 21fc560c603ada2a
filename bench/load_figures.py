"""What load costs a broker: CPU of its process for records in and out, many clients at once, waits under half load.

A rate on a small machine is as often the client's limit as the broker's. Its CPU is not.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.broker_figures import SIZES, consume, new_topic, produce
from bench.figure import CPU, MICROSECONDS, RATE, Measure, Unit, Values, percentile
from bench.loud import loud_producer
from bench.peers import cpu_s
from bench.wire import VERSIONS
from bench.worker import BROKER_PID
from ottla.wire.apis import ApiKey
from ottla.wire.batch import iter_headers
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

NOTE = (
    "CPU is user and system time of the broker's process, all threads, in seconds for a million records; librdkafka "
    "writes and reads, if nothing else is said. The raw reader asks by Fetch v12 and looks at batches' headers only. "
    "Many clients share the records (100 bytes, of random partitions) and one Python process; a reader that has "
    "enough asks again after 10 ms (`fetch.queue.backoff.ms`, 1 s unless set). Half load: 1 KB records at half the "
    "rate that the same loop reaches without pauses. Aims: CPU in and out 3, the raw reader's rate 1.3."
)

_CLIENTS, _PARTITIONS, _MANY_RECORDS = (1, 10, 100), (1, 100, 1_000), 300_000
_SMALL_RECORDS, _HALF_RECORDS, _WAIT_S = 100_000, 100_000, 120.0
_QUEUE = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1_000_000}
_FETCH_BYTES, _PARTITION_BYTES = 52_428_800, 10_485_760


@contextmanager
def _counted(found: Values, name: str, records: int) -> Iterator[None]:
    """The broker's CPU for what happens inside, a million of `records`."""
    pid = int(os.environ[BROKER_PID])
    before = cpu_s(pid)
    yield
    found[f"{name}: CPU"] = (cpu_s(pid) - before) / records * 1e6


def cost(bootstrap: str, scale: float) -> Values:
    """In, out, and out without a client's own work, at each size."""
    found: Values = {}
    for size_name, (size, full) in SIZES.items():
        records = int(full * scale)
        topic = new_topic(bootstrap)
        with _counted(found, f"in, {size_name}", records):
            found[f"in, {size_name}"] = produce(bootstrap, topic, records, size)
        with _counted(found, f"out, {size_name}", records):
            found[f"out, {size_name}"] = consume(bootstrap, topic, records)
        with _counted(found, f"out, {size_name}, raw reader", records):
            found[f"out, {size_name}, raw reader"] = _read_raw(bootstrap, topic, records)
    return found


def _read_raw(bootstrap: str, topic: str, records: int) -> float:
    """Records a second of a reader that does not look at records."""
    host, port = bootstrap.rsplit(":", 1)
    offset, buffer, start = 0, bytearray(2 * _FETCH_BYTES), time.perf_counter()
    with socket.create_connection((host, int(port))) as connection:
        while offset < records:
            asked = FetchPartition(0, fetch_offset=offset, partition_max_bytes=_PARTITION_BYTES)
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=_FETCH_BYTES,
                topics=(FetchTopic(topic=topic, partitions=(asked,)),),
            )
            connection.sendall(encode_request(ApiKey.FETCH, VERSIONS[ApiKey.FETCH], 1, "raw", request))
            _, answer = decode_response(ApiKey.FETCH, VERSIONS[ApiKey.FETCH], _frame(connection, buffer))
            for _, header in iter_headers(answer.responses[0].partitions[0].records):
                offset = header.last_offset + 1
    return records / (time.perf_counter() - start)


def _frame(connection: socket.socket, buffer: bytearray) -> memoryview:
    view, size, here = memoryview(buffer), 4, 0
    while here < size:
        got = connection.recv_into(view[here:])
        if not got:
            raise ConnectionError("the broker has closed the raw reader's connection")
        here += got
        if here >= 4:
            size = 4 + struct.unpack_from(">i", buffer)[0]
    return view[4:size]


def many(clients: int, partitions: int, bootstrap: str, scale: float) -> Values:
    """So many producers, then so many consumers, on a topic of so many partitions."""
    found: Values = {}
    records = int(_MANY_RECORDS * scale)
    topic = new_topic(bootstrap, partitions)
    name = f"{clients} clients, {partitions:,} partitions"
    with _counted(found, f"in, {name}", records):
        found[f"in, {name}"] = _produced(bootstrap, topic, clients, records)
    with _counted(found, f"out, {name}", records):
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
    with _counted(found, "in, linger 0, batches of 10", records):
        rate = produce(
            bootstrap, new_topic(bootstrap), records, 100, **{"linger.ms": 0, "batch.num.messages": 10, **_QUEUE}
        )
    return {"in, linger 0, batches of 10": rate, **found}


def half(bootstrap: str, scale: float) -> Values:
    """What an acknowledgement takes at half the rate that the loop reaches."""
    topic, records = new_topic(bootstrap), max(20_000, int(_HALF_RECORDS * scale))
    rate, _ = _paced(bootstrap, topic, records, lambda _: 0.0)
    _, taken = _paced(bootstrap, topic, records, lambda n: n / rate * 2)
    taken = taken[len(taken) // 10 :]
    return {
        "half load": rate / 2,
        **{f"half load: acknowledged, p{name}": percentile(taken, share) for name, share in _SHARES.items()},
    }


_SHARES = {"50": 0.5, "99": 0.99, "99.9": 0.999}


def _paced(bootstrap: str, topic: str, records: int, due_s: Callable[[int], float]) -> tuple[float, list[float]]:
    """The rate, and the microseconds from when each record was due until it was acknowledged."""
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
    return records / (time.perf_counter() - start), taken


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
    return MICROSECONDS if "acknowledged" in name else RATE

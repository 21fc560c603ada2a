"""What a consumer keeps in memory while a topic holds far more than it may: ours, and confluent-kafka's.

    python -m bench.client_memory 127.0.0.1:9092

Each consumer is a process of its own. It takes one record and stands still for some seconds, while it fetches ahead as
far as its settings allow; then it goes on and reads all. What is told is the most memory that the process had (VmHWM).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.broker_figures import delete_topics, new_topic
from bench.figure import MEGABYTES, Measure, Unit, Values

NOTE = (
    "Four partitions with 1 GB, records of 1,000 bytes. A consumer takes one record and stands still for three "
    "seconds; then it reads all, by `poll_arrow` (pyarrow takes some 30 MB), and `consume` of 500 of confluent-kafka. "
    "The most resident memory that its process had until then. The bounds of our client: two fetches of a partition "
    "at most (`max.partition.fetch.bytes`), and none while `fetch.max.bytes` wait; of librdkafka beside these "
    "`queued.max.messages.kbytes`, 64 MB. One round."
)
_VALUE, _PARTITIONS = b"x" * 1_000, 4
_RECORDS, _STILL_S, _WAIT_S = 1_000_000, 3.0, 60.0
_MEGABYTE = 1_000_000
#: What a consumer is given: a few of the settings that bound it.
SETTINGS: dict[str, dict[str, int]] = {
    "defaults": {},
    "`fetch.max.bytes=4194304`": {"fetch.max.bytes": 4_194_304},
    "`max.partition.fetch.bytes=10485760`": {"max.partition.fetch.bytes": 10_485_760},
}


def _memory_mb(field: str) -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024 / _MEGABYTE
    raise LookupError(field)


def _records(scale: float) -> int:
    return int(_RECORDS * scale)


@contextmanager
def filled(bootstrap: str, scale: float) -> Iterator[str]:
    """Where the figures find the broker, and a topic with what waits: `bootstrap;topic`. It is deleted afterwards."""
    from ottla import Producer

    topic = new_topic(bootstrap, _PARTITIONS)
    with Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 1_000_000}) as producer:
        for number in range(_records(scale)):
            producer.send(topic, _VALUE, partition=number // 1_000 % _PARTITIONS)
    yield f"{bootstrap};{topic}"
    delete_topics(bootstrap, [topic])


def _ottla(bootstrap: str, topic: str, settings: dict[str, Any], records: int) -> Values:
    from ottla import Consumer, TopicPartition

    with Consumer(
        {"bootstrap.servers": bootstrap, "enable.auto.commit": False, "max.poll.records": 1, **settings}
    ) as one:
        one.assign([TopicPartition(topic, number) for number in range(_PARTITIONS)])
        one.seek_to_beginning()

        def rows() -> int:
            return sum(each.num_rows for each in one.poll_arrow(1.0).values())

        return _most(lambda: len(one.poll(10.0)), rows, records)


def _confluent(bootstrap: str, topic: str, settings: dict[str, Any], records: int) -> Values:
    from confluent_kafka import Consumer, TopicPartition

    one: Any = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False, **settings})
    one.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
    found = _most(lambda: len(one.consume(1, 10.0)), lambda: len(one.consume(500, 1.0)), records)
    one.close()
    return found


def _most(first: Callable[[], int], more: Callable[[], int], records: int) -> Values:
    """The most megabytes, until it stood still with a record taken, and until all are read. TimeoutError."""
    left = records - first()
    time.sleep(_STILL_S)
    still, give_up = _memory_mb("VmHWM"), time.perf_counter() + _WAIT_S
    while left > 0:
        left -= more()
        if time.perf_counter() > give_up:
            raise TimeoutError(f"{left} of {records} records were not read within {_WAIT_S:.0f} s")
    return {"stands still": still, "reads all": _memory_mb("VmHWM")}


_READERS = {"ottla": _ottla, "confluent-kafka": _confluent}
CLIENTS = tuple(_READERS)


def _kept(client: str, settings: str, where: str, scale: float) -> Values:
    """In a process that has read nothing before; both clients are imported, so that they begin with the same."""
    __import__("ottla.client.consumer.consumer")
    bootstrap, topic = where.split(";")
    before = _memory_mb("VmRSS")
    found = _READERS[client](bootstrap, topic, SETTINGS[settings], _records(scale))
    return {"before there is a consumer": before, **{f"{settings}: {name}": value for name, value in found.items()}}


def figure(client: str, settings: str) -> str:
    """The name of one."""
    return f"{client} / {settings}"


FIGURES: dict[str, Measure] = {
    figure(client, settings): partial(_kept, client, settings) for settings in SETTINGS for client in CLIENTS
}


def unit_of(_name: str) -> Unit:
    """All values of this module are megabytes."""
    return MEGABYTES


def main() -> None:
    """Print a line for each value."""
    from bench.worker import measure

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("--scale", type=float, default=1.0, help="below 1: less than 1 GB waits")
    asked = parser.parse_args()
    with filled(asked.bootstrap, asked.scale) as where:
        for name in FIGURES:
            for what, megabytes in measure("client_memory", name, where, asked.scale).items():
                print(f"{name.split(' / ')[0]:16} {what:70} {megabytes:6,.0f} MB", flush=True)


if __name__ == "__main__":
    main()

"""Peak memory of a consumer while a topic holds far more than it may keep, beside confluent-kafka's.

    python -m bench.client_memory 127.0.0.1:9092 --megabytes 1000

Each consumer is a process of its own. It takes one record and stands still for three seconds, while it fetches ahead as
far as its settings allow; another one goes on and reads all. What is printed is the most memory that the process ever
had (VmHWM), beside what it had before it was given the consumer.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.broker_figures import new_topic

_VALUE = b"x" * 1_000
_STILL_S = 3.0
_MEGABYTE = 1_000_000
#: What a consumer is given: a few of the settings that bound it.
SETTINGS: dict[str, dict[str, int]] = {
    "defaults": {},
    "fetch.max.bytes=4194304": {"fetch.max.bytes": 4_194_304},
    "max.partition.fetch.bytes=10485760": {"max.partition.fetch.bytes": 10_485_760},
}


def _memory_mb(field: str) -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024 / _MEGABYTE
    raise LookupError(field)


def _fill(bootstrap: str, megabytes: int, partitions: int) -> str:
    from ottla import Producer

    topic = new_topic(bootstrap, partitions)
    with Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 1_000_000}) as producer:
        for number in range(megabytes * _MEGABYTE // len(_VALUE)):
            producer.send(topic, _VALUE, partition=number // 1_000 % partitions)
    return topic


def _ottla(bootstrap: str, topic: str, partitions: int, settings: dict[str, Any], records: int) -> None:
    from ottla import Consumer, TopicPartition

    with Consumer(
        {"bootstrap.servers": bootstrap, "enable.auto.commit": False, "max.poll.records": 1, **settings}
    ) as one:
        one.assign([TopicPartition(topic, number) for number in range(partitions)])
        one.seek_to_beginning()
        left = records - len(one.poll(10.0))
        time.sleep(_STILL_S)
        while left > 0 and records > 1:
            left -= sum(rows.num_rows for rows in one.poll_arrow(1.0).values())


def _confluent(bootstrap: str, topic: str, partitions: int, settings: dict[str, Any], records: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    one: Any = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False, **settings})
    one.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    left = records - len(one.consume(1, 10.0))
    time.sleep(_STILL_S)
    while left > 0 and records > 1:
        left -= len(one.consume(500, 1.0))
    one.close()


READERS = {"ottla": _ottla, "confluent-kafka": _confluent}


def _child(asked: argparse.Namespace) -> None:
    __import__("ottla.client.consumer.consumer")
    __import__("confluent_kafka")
    before = _memory_mb("VmRSS")
    READERS[asked.reader](asked.bootstrap, asked.topic, asked.partitions, SETTINGS[asked.settings], asked.records)
    print(f"{before:.0f} MB before, {_memory_mb('VmHWM'):.0f} MB at most")


def main() -> None:
    """Print a line for each reader, setting, and way of reading."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("--megabytes", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--topic", help="one that is filled already")
    parser.add_argument("--reader", choices=READERS)
    parser.add_argument("--settings", choices=SETTINGS)
    parser.add_argument("--records", type=int)
    asked = parser.parse_args()
    if asked.reader:
        _child(asked)
        return
    topic = asked.topic or _fill(asked.bootstrap, asked.megabytes, asked.partitions)
    print(f"{asked.megabytes} MB wait in {asked.partitions} partitions of {topic}", flush=True)
    every = asked.megabytes * _MEGABYTE // len(_VALUE)
    for settings in SETTINGS:
        for reader in READERS:
            for what, records in (("stands still", 1), ("reads all", every)):
                given = ["--topic", topic, "--partitions", str(asked.partitions), "--reader", reader]
                given += ["--settings", settings, "--records", str(records)]
                command = [sys.executable, "-m", "bench.client_memory", asked.bootstrap, *given]
                told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
                print(f"{settings:36} {reader:16} {what:13} {told}", flush=True)


if __name__ == "__main__":
    main()

"""A process that copies `in` to `out`, exactly once, until it is killed or gets SIGTERM; a test starts and kills it.

    python -m tests.chaos.copier BOOTSTRAP NAME LIFE FILE

What its clients do and are told goes into FILE. It says `copies` when it begins.
"""

from __future__ import annotations

import itertools
import signal
import sys
import threading

from ottla.testing import StreamedHistory
from tests.client.outage_journeys import copy_once
from tests.recording.ours import RecordingConsumer, RecordingProducer

GROUP = "copiers"


def main() -> None:
    """Copy."""
    bootstrap, name, life, path = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    base = {"bootstrap.servers": bootstrap}
    reading = {
        "group.id": GROUP,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "session.timeout.ms": 2_000,
        "heartbeat.interval.ms": 200,
        "max.poll.records": 20,
    }
    with (
        StreamedHistory(path) as history,
        RecordingProducer(base | {"transactional.id": name}, history, f"{name} life {life} out") as producer,
        RecordingConsumer(base | reading, history, f"{name} life {life} in") as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe(["in"])
        print("copies", flush=True)
        # Lives do not share attempts: so no two of their records are the same.
        for attempt in itertools.count(int(life) * 1_000_000):
            if stop.is_set():
                break
            copy_once(consumer, producer, attempt)


if __name__ == "__main__":
    main()

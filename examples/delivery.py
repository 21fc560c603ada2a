"""Copies a topic, record by record, in each of the three orders of its two steps, and may be killed between them.

    python examples/delivery.py at-least-once --bootstrap 127.0.0.1:9092 --input orders --output bills --crash-at 3

The two steps are *process the record* (here: write it to the output) and *commit its offset*. `--crash-at 3` ends the
process, as kill -9 does, between the two steps of the record at offset 3. Start it again without that: record 3 is
missing in the output (at most once), is there twice (at least once), or is there once (exactly once).
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable

from ottla import Consumer, ConsumerRecord, OffsetAndMetadata, Producer, TopicPartition

GUARANTEES = ("at-most-once", "at-least-once", "exactly-once")


class Copy:
    """One guarantee, from one topic to another."""

    def __init__(self, guarantee: str, bootstrap: str, output: str, crash: Callable[[ConsumerRecord], None]) -> None:
        base = {"bootstrap.servers": bootstrap}
        name = f"{output}-{guarantee}"
        transactional = {"transactional.id": name} if guarantee == "exactly-once" else {}
        self.copy = getattr(self, guarantee.replace("-", "_"))
        self._output, self._crash = output, crash
        self.producer = Producer({**base, **transactional})
        self.consumer = Consumer(
            {
                **base,
                "group.id": name,
                "group.instance.id": "the-only-one",  # so that a new process need not wait for the end of a session
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        if transactional:
            self.producer.init_transactions()  # ends what a process that was killed has left open

    def at_most_once(self, record: ConsumerRecord) -> None:
        """Commit, then process."""
        self.consumer.commit(_next(record))
        self._crash(record)
        self.producer.send(self._output, record.value).result()

    def at_least_once(self, record: ConsumerRecord) -> None:
        """Process, then commit."""
        self.producer.send(self._output, record.value).result()
        self._crash(record)
        self.consumer.commit(_next(record))

    def exactly_once(self, record: ConsumerRecord) -> None:
        """Process, and commit with the result, in one transaction."""
        with self.producer.transaction():
            self.producer.send(self._output, record.value).result()
            self._crash(record)
            self.producer.send_offsets_to_transaction(_next(record), self.consumer.group_metadata())

    def run(self, topic: str) -> None:
        """Copy what is in the topic now."""
        self.consumer.subscribe([topic])
        while not self.consumer.assignment():
            for record in self.consumer.poll():
                self.copy(record)
        ends = self.consumer.end_offsets(self.consumer.assignment())
        while any(self.consumer.position(tp) < end for tp, end in ends.items()):
            for record in self.consumer.poll():
                self.copy(record)
        self.consumer.close()
        self.producer.close()


def _next(record: ConsumerRecord) -> dict[TopicPartition, OffsetAndMetadata]:
    """What to commit when this record is done."""
    return {TopicPartition(record.topic, record.partition): OffsetAndMetadata(record.offset + 1)}


def main() -> None:
    """Copy until the end of the input, or until the crash."""
    parser = argparse.ArgumentParser(description="Copy a topic with one of Kafka's delivery guarantees.")
    parser.add_argument("guarantee", choices=GUARANTEES)
    parser.add_argument("--bootstrap", required=True, help="host:port of a broker")
    parser.add_argument("--input", required=True, help="topic to read")
    parser.add_argument("--output", required=True, help="topic to write")
    parser.add_argument("--crash-at", type=int, help="offset of a record between whose two steps it is killed")
    options = parser.parse_args()

    def crash(record: ConsumerRecord) -> None:
        if record.offset == options.crash_at:
            os.kill(os.getpid(), signal.SIGKILL)

    Copy(options.guarantee, options.bootstrap, options.output, crash).run(options.input)


if __name__ == "__main__":
    main()

"""The programs of the crash matrix. Each is started by a test, and killed, or told to end by SIGTERM.

    python -m tests.chaos.matrix.programs PROGRAM BOOTSTRAP NAME LIFE JOURNAL

What a program was told goes into its journal at once, a line each: `acked VALUE`, `committed TXN`, `aborted TXN`,
`copied COUNT`. On an error that it does not know it ends with exit code CRASHED, as a user's program would crash.
Values and transactions of two lives are never the same.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import confluent_kafka

import ottla
from tests.chaos.load import OFTEN_KILLED

PARTITIONS = 2
#: Records of a transaction.
TXN_RECORDS = 10
SOURCE, SINK, GROUP = "in", "out", "copiers"
_WAIT_S, _SHORT_WAIT_S, _GIVEN_UP_S = 60.0, 10.0, 20.0
#: The exit code of a program that does not know what to do; its next life goes on.
CRASHED = 3
#: The numbers of a life: those of its records, or of its transactions.
A_LIFE = 1_000_000_000


class Journal:
    """What a program was told: it survives the process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, *lines: str) -> None:
        """One line each."""
        if lines:
            os.write(self._file, "".join(f"{line}\n" for line in lines).encode())


class Run:
    """One life of a program."""

    def __init__(self, bootstrap: str, name: str, life: int, journal: Journal) -> None:
        self.bootstrap, self.name, self.journal = bootstrap, name, journal
        self.first = life * A_LIFE
        self.stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self.stop.set())

    def numbers(self) -> Iterator[int]:
        """Of records, or of transactions, until the program shall end."""
        return itertools.takewhile(lambda _: not self.stop.is_set(), itertools.count(self.first))


def confluent_idempotent(run: Run) -> None:
    told: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            raise confluent_kafka.KafkaException(error)
        told.append(f"acked {run.name}:{int(message.value().rpartition(b':')[2])}")

    settings = {"enable.idempotence": True, "linger.ms": 2, "delivery.timeout.ms": 120_000, **OFTEN_KILLED}
    producer = confluent_kafka.Producer({"bootstrap.servers": run.bootstrap, **settings})
    for number in run.numbers():
        value = f"{run.name}:{number}".encode()
        producer.produce(SINK, value, partition=number % PARTITIONS, on_delivery=delivered)
        if number % 200 == 0:
            run.stop.wait(0.02)  # or, while the broker is to die, it writes millions
            producer.poll(0.01)
            while len(producer) > 2_000:
                producer.poll(0.1)
            run.journal.note(*told)
            told.clear()
    assert producer.flush(_WAIT_S) == 0
    run.journal.note(*told)


def ours_idempotent(run: Run) -> None:
    with ottla.Producer({"bootstrap.servers": run.bootstrap, "linger.ms": 2}) as producer:
        numbers = run.numbers()
        while group := list(itertools.islice(numbers, 500)):
            deliveries = [
                producer.send(SINK, f"{run.name}:{number}".encode(), partition=number % PARTITIONS) for number in group
            ]
            for delivery in deliveries:
                delivery.result(_WAIT_S)
            run.stop.wait(0.05)
            run.journal.note(*(f"acked {run.name}:{number}" for number in group))


def _values(run: Run, txn: int) -> list[bytes]:
    return [f"{run.name}:{txn}:{number}".encode() for number in range(TXN_RECORDS)]


def confluent_transactional(run: Run) -> None:
    settings = {"transactional.id": run.name, "linger.ms": 0, **OFTEN_KILLED}
    producer = confluent_kafka.Producer({"bootstrap.servers": run.bootstrap, **settings})
    producer.init_transactions(_WAIT_S)
    for txn in run.numbers():
        producer.begin_transaction()
        for number, value in enumerate(_values(run, txn)):
            producer.produce(SINK, value, partition=number % PARTITIONS)
        if txn % 4:
            producer.commit_transaction(_WAIT_S)
            run.journal.note(f"committed {run.name}:{txn}")
        else:
            producer.flush(_WAIT_S)
            producer.abort_transaction(_WAIT_S)
            run.journal.note(f"aborted {run.name}:{txn}")


def ours_transactional(run: Run) -> None:
    with ottla.Producer({"bootstrap.servers": run.bootstrap, "transactional.id": run.name}) as producer:
        producer.init_transactions()
        for txn in run.numbers():
            producer.begin_transaction()
            for number, value in enumerate(_values(run, txn)):
                producer.send(SINK, value, partition=number % PARTITIONS)
            if txn % 4:
                producer.commit_transaction()
                run.journal.note(f"committed {run.name}:{txn}")
            else:
                producer.flush()
                producer.abort_transaction()
                run.journal.note(f"aborted {run.name}:{txn}")


@contextmanager
def _given_up_after(seconds: float) -> Iterator[None]:
    """The program crashes when the body takes longer.

    librdkafka 2.16 may wait for the group's coordinator for ever, although it is connected to it again, and was given a
    time (`rd_kafka_txn_op_req0` waits without one).
    """
    watch = threading.Timer(seconds, os._exit, (CRASHED,))
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def confluent_copier(run: Run) -> None:
    base = {"bootstrap.servers": run.bootstrap, **OFTEN_KILLED}
    reading = {"group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(
        {**base, **reading, "isolation.level": "read_committed", "session.timeout.ms": 6_000}
    )
    producer = confluent_kafka.Producer({**base, "transactional.id": run.name, "linger.ms": 0})
    producer.init_transactions(_WAIT_S)
    consumer.subscribe([SOURCE])
    while not run.stop.is_set():
        messages = [message for message in consumer.consume(100, timeout=0.5) if message.error() is None]
        if messages:
            producer.begin_transaction()
            for message in messages:
                producer.produce(SINK, message.value(), partition=message.partition())
            positions = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
            with _given_up_after(_GIVEN_UP_S):
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), _SHORT_WAIT_S)
            producer.commit_transaction(_WAIT_S)
            run.journal.note(f"copied {len(messages)}")
    consumer.close()


def ours_copier(run: Run) -> None:
    config = {
        "bootstrap.servers": run.bootstrap,
        "group.id": GROUP,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 1_000,
    }
    with ottla.exactly_once(SOURCE, SINK, run.name, config | {"max.poll.records": 100}) as work:

        def stop() -> None:
            run.stop.wait()
            work.stop()

        threading.Thread(target=stop, daemon=True).start()
        copied = 0
        for batch in work:
            run.journal.note(f"copied {copied}")  # the batch before is committed
            for record in batch:
                batch.send(record.value, partition=record.partition)
            copied = len(batch)


PROGRAMS: dict[str, Callable[[Run], None]] = {
    each.__name__: each
    for each in (
        confluent_idempotent,
        ours_idempotent,
        confluent_transactional,
        ours_transactional,
        confluent_copier,
        ours_copier,
    )
}


def main() -> int:
    """Run a program; its exit code."""
    program, bootstrap, name, life, path = sys.argv[1:]
    try:
        PROGRAMS[program](Run(bootstrap, name, int(life), Journal(path)))
    except (confluent_kafka.KafkaException, ottla.OttlaError) as error:
        with suppress(OSError):
            Path(path).with_suffix(f".error-{life}").write_text(repr(error))
        os._exit(CRASHED)  # no close, no flush
    return 0


if __name__ == "__main__":
    sys.exit(main())

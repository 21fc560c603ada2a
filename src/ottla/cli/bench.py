"""`ottla bench`: how fast broker and client are on this machine."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ottla.cli.common import (
    PATIENCE_MS,
    CommandError,
    Config,
    Json,
    admin_config,
    bootstrap_of_the_file,
    consumer_config,
    only,
    pairs,
    print_rows,
    producer_config,
    say,
)

Row = dict[str, object]
_WARM_UP = 50


def bench(
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="A running broker; else one is started."),
    ] = None,
    records: Annotated[int, typer.Option("--records", "-n", min=1000, help="How many records.")] = 500_000,
    size: Annotated[int, typer.Option("--size", min=1, help="Bytes of each record.")] = 100,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Measure producing, consuming, acknowledged writes and transactions, with our client.

    A broker that the file of `ottla --config` names counts as a running one.

    Figures mean little across machines; `make bench` compares with Apache Kafka and other clients side by side.

    Example: `ottla bench --records 1000000 --size 100`
    """
    with _broker(bootstrap or bootstrap_of_the_file()) as address:
        say(f"{records:,} records of {size} bytes through the broker on {address}")
        rows = list(_figures(_Settings.of(address, config), records, size))
    print_rows(rows, ("figure", "value", "unit"), as_json=as_json, none="")


@contextmanager
def _broker(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    from ottla.cli.demo.processes import BrokerProcess, broker_command
    from ottla.testing.ports import free_port

    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        port = free_port()
        command = broker_command(None, sys.executable, port, Path(directory) / "data")
        broker = BrokerProcess(command, port, Path(directory) / "broker.log")
        try:
            broker.start_and_wait()
            yield broker.bootstrap
        finally:
            broker.stop()


class _Settings(NamedTuple):
    """The user's settings, divided among the clients: each gets those that it knows."""

    admin: dict[str, object]
    producer: dict[str, object]
    consumer: dict[str, object]

    @classmethod
    def of(cls, address: str, config: list[str] | None) -> _Settings:
        """Raises ConfigError for a setting that no client has."""
        from ottla.client.config.admin import ADMIN_CONFIG
        from ottla.client.config.consumer import CONSUMER_CONFIG
        from ottla.client.config.producer import PRODUCER_CONFIG

        for name in pairs(config):
            if name not in CONSUMER_CONFIG.keys:
                PRODUCER_CONFIG.find(name)
        return cls(
            only(admin_config(address, config), ADMIN_CONFIG),
            only(producer_config(address, config), PRODUCER_CONFIG),
            only(consumer_config(address, config), CONSUMER_CONFIG),
        )


def _figures(settings: _Settings, records: int, size: int) -> Iterator[Row]:
    from ottla import Admin
    from ottla.client.admin.types import NewTopic

    topic = f"ottla-bench-{time.time_ns()}"
    with Admin(settings.admin) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
        try:
            yield _row("produce", records / _produce(settings.producer, topic, records, size), "records/s")
            yield _row("consume", records / _consume(settings.consumer, topic, records), "records/s")
            p50, p99 = _acknowledged(settings.producer, topic, 500)
            yield _row("acknowledged write, p50", p50 * 1e6, "µs")
            yield _row("acknowledged write, p99", p99 * 1e6, "µs")
            yield _row(
                "transactions of 10 records", 100 / _transactions(settings.producer, topic, 100), "transactions/s"
            )
        finally:
            admin.delete_topics([topic])


def _row(figure: str, value: float, unit: str) -> Row:
    return {"figure": figure, "value": round(value), "unit": unit}


def _produce(settings: dict[str, object], topic: str, records: int, size: int) -> float:
    from ottla import Producer

    value = b"x" * size
    with Producer({"linger.ms": 5, "batch.size": 1_000_000, **settings}) as producer:
        producer.partitions_for(topic)
        start = time.perf_counter()
        for _ in range(records):
            producer.send(topic, value)
        producer.flush()
        return time.perf_counter() - start


def _consume(settings: dict[str, object], topic: str, records: int) -> float:
    from ottla import Consumer, TopicPartition

    with Consumer({**settings, "enable.auto.commit": False, "max.poll.records": 5000}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning([TopicPartition(topic, 0)])
        start, left = time.perf_counter(), records
        while left > 0:
            came = consumer.poll(PATIENCE_MS / 1000)
            if not came:
                raise CommandError(
                    f"no records of {topic} came for {PATIENCE_MS // 1000} s; is the broker still there?"
                )
            left -= len(came)
        return time.perf_counter() - start


def _acknowledged(settings: dict[str, object], topic: str, times: int) -> tuple[float, float]:
    from ottla import Producer

    taken: list[float] = []
    with Producer({**settings, "linger.ms": 0}) as producer:
        for _ in range(times + _WARM_UP):
            start = time.perf_counter()
            producer.send(topic, b"x" * 100).result()
            taken.append(time.perf_counter() - start)
    taken = sorted(taken[_WARM_UP:])
    return taken[len(taken) // 2], taken[int(len(taken) * 0.99)]


def _transactions(settings: dict[str, object], topic: str, times: int) -> float:
    from ottla import Producer

    with Producer({**settings, "transactional.id": topic}) as producer:
        producer.init_transactions()
        start = time.perf_counter()
        for _ in range(times):
            with producer.transaction():
                for _ in range(10):
                    producer.send(topic, b"x" * 100)
        return time.perf_counter() - start

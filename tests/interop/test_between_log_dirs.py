"""A compacted partition that Apache Kafka has moved between its directories (KIP-113), and that we take over.

Its copy is a replica that has fetched a cleaned log: offsets are missing in its newest segment. Apache Kafka never
minds that, and after a kill no start may take it for damage.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker
from tests.interop.apache import ApacheKafka, run_tool
from tests.interop.whole_directory import Row, read

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_jars")]

_WAIT_S = 60.0
_TOPIC, _FOLDER = "keys", "keys-0"
_RECORDS, _COLD = 4_000, 7
#: One of seven keys stays, of all others only the last record.
_LEAST_KEPT = _RECORDS // _COLD
_CONFIG = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}


def _write(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 3})
    for number in range(_RECORDS):
        key = b"hot" if number % _COLD else b"key %d" % number
        producer.produce(_TOPIC, (b"%d" % number).ljust(900), key=key)
        producer.poll(0)
    assert producer.flush(_WAIT_S) == 0


def _wait(kafka: ApacheKafka, what: str, until: Callable[[], bool]) -> None:
    give_up = time.monotonic() + _WAIT_S
    while not until():
        assert time.monotonic() < give_up, what
        kafka.tick()


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.log"))


def _move(kafka: ApacheKafka, to: Path) -> None:
    plan = kafka.directory / "plan.json"
    partition = {"topic": _TOPIC, "partition": 0, "replicas": [1], "log_dirs": [str(to)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    where = ("--bootstrap-server", kafka.bootstrap, "--reassignment-json-file", str(plan))
    run_tool("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", *where, "--execute")
    other = kafka.directory / "other" if to == kafka.data_dir else kafka.data_dir
    _wait(kafka, f"moved to {to}", lambda: (to / _FOLDER).exists() and not (other / _FOLDER).exists())


def _moved(tmp_path: Path) -> ApacheKafka:
    """A node that was killed when its partition had come back to the directory that is taken over."""
    other = tmp_path / "other"
    settings = {
        "log.dirs": f"{tmp_path / 'data'},{other}",
        "metadata.log.dir": str(tmp_path / "data"),
        "log.cleaner.backoff.ms": "300",
        "log.initial.task.delay.ms": "500",
    }
    kafka = ApacheKafka(tmp_path, settings)
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(_TOPIC, 1, 1, config=_CONFIG)])[_TOPIC].result(_WAIT_S)
        _write(kafka.bootstrap)
        begun = kafka.data_dir if (kafka.data_dir / _FOLDER).exists() else other
        _wait(kafka, "cleaned", lambda: _size(begun / _FOLDER) < _RECORDS * 900 // 2)
        # One segment holds all of the copy.
        arguments = ("--alter", "--topic", _TOPIC, "--add-config", "segment.bytes=104857600")
        run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap, *arguments)
        for to in [kafka.data_dir] if begun == other else [other, kafka.data_dir]:
            _move(kafka, to)
        kafka.kill9()
    del kafka.config["log.dirs"]
    return kafka


def _keys(rows: list[Row]) -> list[str | None]:
    return [key for _, key, _, _ in rows]


def test_its_records_outlive_the_move_and_every_kill(tmp_path: Path) -> None:
    kafka = _moved(tmp_path)
    copy = shutil.copytree(kafka.data_dir, tmp_path / "copy")
    with Broker(data_dir=copy) as broker:
        ours = read(broker.bootstrap_servers, _TOPIC)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(_TOPIC, b"last", key=b"last")
        assert producer.flush(_WAIT_S) == 0
        broker.kill()
    with kafka:
        theirs = read(kafka.bootstrap, _TOPIC)
    assert len(theirs) > _LEAST_KEPT
    assert ours == theirs
    with Broker(data_dir=copy) as broker:
        assert _keys(read(broker.bootstrap_servers, _TOPIC)) == [*_keys(theirs), "last"]

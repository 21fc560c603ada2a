"""Kafka Connect's distributed workers on our broker: a source exactly once, whoever is killed, and a sink behind it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from ottla.testing.ports import free_port
from tests.interop.nodes import node_of
from tests.interop.programs import Program, committed

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("program_jars")]

_FILE = "org.apache.kafka.connect.file.FileStream"
_TOPIC = "lines"
_STRINGS = "org.apache.kafka.connect.storage.StringConverter"
_WORKER = {
    "group.id": "workers",
    "key.converter": _STRINGS,
    "value.converter": _STRINGS,
    "offset.storage.topic": "connect-offsets",
    "offset.storage.partitions": "2",
    "offset.storage.replication.factor": "1",
    "config.storage.topic": "connect-configs",
    "config.storage.replication.factor": "1",
    "status.storage.topic": "connect-status",
    "status.storage.partitions": "2",
    "status.storage.replication.factor": "1",
    "exactly.once.source.support": "enabled",
    "offset.flush.interval.ms": "500",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
    "plugin.discovery": "service_load",
}


class _Worker(Program):
    """A worker, by the address of its REST interface."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self._address = f"http://127.0.0.1:{free_port()}"
        properties = directory / "worker.properties"
        settings = _WORKER | {"bootstrap.servers": bootstrap, "listeners": self._address}
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        super().__init__(directory / "worker.log", "org.apache.kafka.connect.cli.ConnectDistributed", str(properties))

    def configure(self, name: str, config: dict[str, str]) -> None:
        """Make a connector; as often as it is refused because the workers are just dividing their work."""

        def taken() -> bool:
            body = json.dumps(config).encode()
            headers = {"Content-Type": "application/json"}
            url = f"{self._address}/connectors/{name}/config"
            try:
                urllib.request.urlopen(urllib.request.Request(url, body, headers, method="PUT"), timeout=60).close()
            except (urllib.error.HTTPError, OSError) as refused:
                # It is not there yet, or the workers are dividing their work.
                if isinstance(refused, urllib.error.HTTPError) and refused.code not in (404, 409, 503):
                    raise AssertionError(refused.read().decode()) from None
                return False
            return True

        self.wait_until(taken)


class _File:
    """The file that is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []

    def grow(self, lines: int) -> None:
        """So many lines more, all different."""
        more = [f"line {number}" for number in range(len(self.lines), len(self.lines) + lines)]
        self.lines += more
        with self.path.open("a") as written:
            written.write("".join(f"{line}\n" for line in more))


def _settings(admin: AdminClient, topic: str) -> tuple[int, dict[str, str | None]]:
    """How many partitions a topic has, and the settings that it was made with."""
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    entries = described.result(30).values()
    given = {entry.name: entry.value for entry in entries if entry.source == 1 and entry.name != "min.insync.replicas"}
    return len(admin.list_topics(topic, timeout=30).topics[topic].partitions), given


@pytest.mark.parametrize("name", ["ottla", pytest.param("apache", marks=pytest.mark.slow)])
def test_t11_kafka_connect_is_exactly_once_while_worker_and_broker_are_killed(name: str, tmp_path: Path) -> None:
    source, sunk = _File(tmp_path / "source.txt"), tmp_path / "sunk.txt"
    source.grow(3000)
    with node_of(
        name, tmp_path / "broker", {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    ) as node:
        with _Worker(tmp_path, node.bootstrap) as first:
            reads = {"connector.class": f"{_FILE}SourceConnector", "file": str(source.path), "topic": _TOPIC}
            exactly = {"exactly.once.support": "required", "transaction.boundary": "poll"}
            made = {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1"}
            given = {"topic.creation.default.retention.ms": "86400000"}
            first.configure("source", {"tasks.max": "1", **reads, **exactly, **made, **given})
            committed(node.bootstrap, _TOPIC, 1, least=200)
            first.kill()
        source.grow(3000)
        with _Worker(tmp_path, node.bootstrap) as second:
            committed(node.bootstrap, _TOPIC, 1, least=3100)
            node.kill()
            node.start()
            source.grow(1000)
            writes = {"connector.class": f"{_FILE}SinkConnector", "file": str(sunk), "topics": _TOPIC}
            second.configure(
                "sink", {"tasks.max": "1", **writes, "consumer.override.isolation.level": "read_committed"}
            )
            committed(node.bootstrap, _TOPIC, 1, least=len(source.lines))
            second.wait_until(lambda: sunk.exists() and len(set(sunk.read_text().splitlines())) == len(source.lines))
            second.close()
        found = [message.value().decode() for message in committed(node.bootstrap, _TOPIC, 1, least=len(source.lines))]
        assert found == source.lines
        assert set(sunk.read_text().splitlines()) == set(source.lines)
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        assert _settings(admin, _TOPIC) == (1, {"retention.ms": "86400000"})
        for internal, partitions in {"connect-offsets": 2, "connect-configs": 1, "connect-status": 2}.items():
            assert _settings(admin, internal) == (partitions, {"cleanup.policy": "compact"})

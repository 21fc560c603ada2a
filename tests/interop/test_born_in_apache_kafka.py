"""A directory that Apache Kafka has formatted and written is served by us, and then by Apache Kafka again, whole.

What was written is compared record by record by `tests.interop.whole_directory`: no client here has a history.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker, BrokerError
from tests.interop.apache import ApacheCluster, ApacheKafka, run_tool
from tests.interop.whole_directory import SETTINGS, World, said

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_jars")]

_ENDINGS = ("stopped", "killed")
_METADATA = "__cluster_metadata-0"


def _end(broker: Broker | ApacheKafka, ending: str) -> None:
    if ending == "stopped":
        broker.stop()
    elif isinstance(broker, Broker):
        broker.kill()
    else:
        broker.kill9()


@pytest.mark.parametrize("ending", _ENDINGS)
def test_from_apache_kafka_to_us_and_back(tmp_path: Path, ending: str) -> None:
    world = World()
    with ApacheKafka(tmp_path, SETTINGS) as kafka:
        world.begin(kafka.bootstrap)
        world.check_records(kafka.bootstrap)
        before = said(kafka.bootstrap)
        _end(kafka, ending)

        with Broker(SETTINGS, data_dir=kafka.data_dir) as broker:
            assert said(broker.bootstrap_servers) == before
            world.end_open(broker.bootstrap_servers, "first")
            world.check_records(broker.bootstrap_servers)
            world.change(broker.bootstrap_servers, "ours")
            _end(broker, ending)
        with Broker(SETTINGS, data_dir=kafka.data_dir) as broker:
            after = said(broker.bootstrap_servers)
            _end(broker, ending)

        kafka.start()
        assert said(kafka.bootstrap) == after
        world.end_open(kafka.bootstrap, "ours")
        world.check_records(kafka.bootstrap)
        world.change(kafka.bootstrap, "theirs")
        last = said(kafka.bootstrap)
        _end(kafka, ending)

    with Broker(SETTINGS, data_dir=kafka.data_dir) as broker:
        assert said(broker.bootstrap_servers) == last
        world.end_open(broker.bootstrap_servers, "theirs")
        world.check_records(broker.bootstrap_servers)


@pytest.mark.parametrize("ending", _ENDINGS)
def test_from_us_to_apache_kafka_and_back(tmp_path: Path, ending: str) -> None:
    world = World()
    with Broker(SETTINGS, data_dir=tmp_path / "data") as broker:
        world.begin(broker.bootstrap_servers)
        before = said(broker.bootstrap_servers)
        _end(broker, ending)
    with ApacheKafka(tmp_path, SETTINGS) as kafka:
        assert said(kafka.bootstrap) == before
        world.end_open(kafka.bootstrap, "first")
        world.check_records(kafka.bootstrap)
        world.change(kafka.bootstrap, "theirs")
        after = said(kafka.bootstrap)
        _end(kafka, ending)
    with Broker(SETTINGS, data_dir=tmp_path / "data") as broker:
        assert said(broker.bootstrap_servers) == after
        world.end_open(broker.bootstrap_servers, "theirs")
        world.check_records(broker.bootstrap_servers)


@pytest.mark.slow
def test_a_metadata_log_that_has_lost_its_beginning_to_a_snapshot(tmp_path: Path) -> None:
    """Apache Kafka cleans its metadata log once in a minute."""
    small = {
        "metadata.log.max.record.bytes.between.snapshots": "500",
        "internal.metadata.log.segment.bytes": "2000",
        "internal.metadata.delete.delay.millis": "100",
        "metadata.max.retention.bytes": "4000",
    }
    with ApacheKafka(tmp_path, SETTINGS | small) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for number in range(8):
            admin.create_topics([NewTopic(f"t{number}", 2, 1)])[f"t{number}"].result(60)
        log = kafka.data_dir / "__cluster_metadata-0"
        while (log / f"{0:020}.log").exists():
            kafka.tick()
        before = said(kafka.bootstrap)
        kafka.kill9()
        assert list(log.glob("*.checkpoint"))

        with Broker(SETTINGS, data_dir=kafka.data_dir) as broker:
            assert said(broker.bootstrap_servers) == before
            ours = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            ours.create_topics([NewTopic("ours", 1, 1)])["ours"].result(60)
            after = said(broker.bootstrap_servers)
            broker.kill()
        kafka.start()
        assert said(kafka.bootstrap) == after


def test_a_directory_that_was_only_formatted(tmp_path: Path) -> None:
    """With `--standalone`: the quorum's voters are in a snapshot, and the first user comes with the formatting."""
    kafka = ApacheKafka(tmp_path, SETTINGS)
    voter = {
        "controller.quorum.voters": "",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{kafka.controller_port}",
    }
    kafka.config |= voter
    kafka.format("--standalone", "--add-scram", "SCRAM-SHA-512=[name=alice,password=alice-hunter2]")
    world = World()
    with Broker(SETTINGS, data_dir=kafka.data_dir) as broker:
        assert said(broker.bootstrap_servers)["users"] == ["('alice', {<ScramMechanism.SCRAM_SHA_512: 2>: 4096})"]
        world.begin(broker.bootstrap_servers)
        before = said(broker.bootstrap_servers)
    with kafka:
        assert said(kafka.bootstrap) == before
        world.end_open(kafka.bootstrap, "first")
        world.check_records(kafka.bootstrap)
    found = run_tool(
        "DumpLogSegments", "--cluster-metadata-decoder", "--files", str(kafka.data_dir / _METADATA / f"{0:020}.log")
    ).stdout
    assert '"leaderId":1' in found
    with Broker(SETTINGS, data_dir=kafka.data_dir) as broker:
        assert said(broker.bootstrap_servers)["topics"] == before["topics"]
        world.check_records(broker.bootstrap_servers)


def test_a_node_of_a_cluster_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    with ApacheCluster(tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 1, 3)])["t"].result(60)
        cluster.kill9()
        data = cluster.nodes[0].data_dir
        before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
        with pytest.raises(BrokerError, match=r"the quorum's voters are 1, 2, 3 \(__cluster_metadata-0\)"):
            Broker(SETTINGS, data_dir=data).start()
        assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
        cluster.start()
        assert len(admin.list_topics("t", 60).topics["t"].partitions[0].replicas) == 3

"""A directory that Apache Kafka has formatted and written is served by us, and then by Apache Kafka again, whole.

What was written is compared record by record by `tests.interop.whole_directory`: no client here has a history.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.interop.apache import ApacheKafka
from tests.interop.whole_directory import SETTINGS, World, said

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_jars")]

_ENDINGS = ("stopped", "killed")


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

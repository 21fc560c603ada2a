"""Three nodes of Apache Kafka, of which one at a time is killed: leaders and coordinators move, answers come late or
never."""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.conftest import RunDemo
from tests.chaos.conftest import run_demo as run_demo
from tests.client.outage_journeys import Outages, copy_through, create_topics, produce_through
from tests.interop.apache import ApacheCluster

pytestmark = [pytest.mark.interop, pytest.mark.slow]

_KILLS = 4


@pytest.fixture
def cluster(apache_jars: str, tmp_path: Path) -> Iterator[ApacheCluster]:
    with ApacheCluster(tmp_path) as started:
        create_topics(started.bootstrap)
        yield started


def _killed(cluster: ApacheCluster, seed: int, steps_between: int) -> Outages:
    draw = random.Random(seed)

    def outage() -> None:
        node = draw.choice(cluster.nodes)
        node.kill9()
        node.restart()

    return Outages(outage, seed, _KILLS, steps_between)


def test_p4_our_idempotent_producer_writes_every_record_once_and_in_order(cluster: ApacheCluster) -> None:
    produce_through(cluster.bootstrap, _killed(cluster, 1, 30_000))


def test_t11_our_consume_transform_produce_is_exactly_once(cluster: ApacheCluster) -> None:
    copy_through(cluster.bootstrap, _killed(cluster, 2, 40))


def test_s4_every_word_arrives_once_through_three_brokers(apache_jars: str, run_demo: RunDemo, tmp_path: Path) -> None:
    cluster = ApacheCluster(tmp_path)
    first, *others = cluster.nodes
    command = first.prepare()
    try:
        cluster.start(others)
        arguments = ("--broker-command", shlex.join(command), "--port", str(first.port))
        run = run_demo(*arguments, "--lines", "40000", "--seed", "1")
    finally:
        cluster.kill9()
    assert (run.code, run.counts) == (0, (0, 0, 0)), run.said
    assert run.outcome["kills"] == 3

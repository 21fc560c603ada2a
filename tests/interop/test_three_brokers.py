"""Three nodes of Apache Kafka, of which one at a time is killed or hangs: leaders and coordinators move, answers come
late or never. `outage_journeys` gives the clients' history to the checkers; the demo counts for itself."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla import Admin
from tests.chaos.conftest import RunDemo
from tests.chaos.conftest import run_demo as run_demo
from tests.chaos.outages import Outages, chaos_seeds, drawn
from tests.client.outage_journeys import copy_through, create_topics, produce_through
from tests.interop.apache import ApacheCluster, ApacheKafka

pytestmark = [pytest.mark.interop, pytest.mark.slow]

_OUTAGES = 4


@pytest.fixture
def cluster(apache_jars: str, tmp_path: Path) -> Iterator[ApacheCluster]:
    with ApacheCluster(tmp_path) as started:
        create_topics(started.bootstrap)
        yield started


def _killed(cluster: ApacheCluster, node: ApacheKafka) -> None:
    node.kill9()
    node.restart()


def _hung(cluster: ApacheCluster, node: ApacheKafka) -> None:
    """Until the others lead all that it has led; then it still believes that it leads."""
    node.suspend()
    others = ",".join(other.bootstrap for other in cluster.nodes if other is not node)
    try:
        with Admin({"bootstrap.servers": others, "request.timeout.ms": 2_000}) as admin:
            while cluster.node_id(node) in {
                partition.leader
                for topic in admin.describe_topics(["in", "out"]).values()
                for partition in topic.partitions
            }:
                pass
    finally:
        node.resume()


@pytest.fixture(params=[_killed, _hung], ids=["killed", "hung"])
def outages(request: pytest.FixtureRequest, cluster: ApacheCluster) -> Callable[[int, int], Outages]:
    """Makes outages of nodes drawn from a seed: `outages(seed, steps between two of them)`."""

    def made(seed: int, steps_between: int) -> Outages:
        faults = drawn(seed, _OUTAGES, steps_between, [f"node {number}" for number in range(len(cluster.nodes))])
        return Outages(faults, lambda victim: request.param(cluster, cluster.nodes[int(victim.split()[1])]))

    return made


@chaos_seeds(1)
def test_p4_our_idempotent_producer_writes_every_record_once_and_in_order(
    cluster: ApacheCluster, outages: Callable[[int, int], Outages], seed: int
) -> None:
    produce_through(cluster.bootstrap, outages(seed, 30_000))


@chaos_seeds(2)
def test_t11_our_consume_transform_produce_is_exactly_once(
    cluster: ApacheCluster, outages: Callable[[int, int], Outages], seed: int
) -> None:
    copy_through(cluster.bootstrap, outages(seed, 40))


@chaos_seeds(1)
def test_s4_every_word_arrives_once_through_three_brokers(
    apache_jars: str, run_demo: RunDemo, tmp_path: Path, seed: int
) -> None:
    cluster = ApacheCluster(tmp_path)
    first, *others = cluster.nodes
    command = first.prepare()
    try:
        cluster.start(others)
        arguments = ("--broker-command", shlex.join(command), "--port", str(first.port))
        run = run_demo(*arguments, "--lines", "40000", "--seed", str(seed))
    finally:
        cluster.kill9()
    assert (run.code, run.counts) == (0, (0, 0, 0)), run.said
    assert run.outcome["kills"] == 3

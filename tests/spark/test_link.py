"""A Spark worker lives long: what a fault has ended is replaced when it is needed again."""

import asyncio
import subprocess
import sys
from collections.abc import Callable

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa

from ottla import InternalError, TopicPartition
from ottla.base.types import topic_id_text
from ottla.client.errors import ClientError, IllegalStateError
from ottla.client.net.cluster import Cluster
from ottla.spark.errors import DataLossError
from ottla.spark.ledger import BatchKey, SlotMarker
from ottla.spark.link import KafkaLink, link
from ottla.spark.options import sink_options
from ottla.spark.slot_writer import SlotWriter
from tests.client.blame import blames
from tests.spark.sink_world import SinkWorld
from tests.spark.source_world import World

_FAULT = ZeroDivisionError("nobody expects this")


def crash(kafka: KafkaLink, cluster: Cluster) -> None:
    """As if a task of the client had met a fault."""

    async def crash() -> None:
        cluster.supervisor.crash(_FAULT)

    kafka.run(crash())


@pytest.fixture
def config(bootstrap: str, fresh_name: Callable[[str], str]) -> dict[str, object]:
    """Of a link that no other test has."""
    return {"bootstrap.servers": bootstrap, "client.id": fresh_name("link")}


def test_a_process_keeps_its_link(config: dict[str, object]) -> None:
    kafka = link(config)
    assert link(dict(config)) is kafka
    assert kafka.run(kafka.admin.list_groups()) is not None
    kafka.shut()
    kafka.shut()


def test_what_a_link_does_not_use_makes_no_other_one(config: dict[str, object]) -> None:
    """A link is never let go, with its thread and connections: a group id of its own for each read would be many."""
    mine = link({**config, "group.id": "one", "fetch.max.bytes": 1_000})
    assert mine is link({**config, "group.id": "two"}) is link(config)
    other = link({**config, "client.id": "another"})
    other.shut()
    assert other is not mine


def test_a_link_that_a_fault_has_ended_says_so_and_is_replaced(config: dict[str, object]) -> None:
    first = link(config)
    tp = TopicPartition("__ottla_none", 0)
    crash(first, first.cluster)
    for call in (
        first.topics(None, as_of_now=True),
        first.topics([tp.topic], as_of_now=False),
        first.offsets_at({tp: -1}, committed=True),
        first.fetch(tp, 0, committed=True, max_bytes=1, max_wait_ms=0),
        first.produce(tp, b"", None),
        first.versions(),
        first.admin.list_topics(),
    ):
        with pytest.raises(InternalError) as caught:
            first.run(call)
        assert blames(caught.value, _FAULT)
    second = link(config)
    assert second is not first
    assert link(config) is second
    second.run(second.admin.list_topics())
    with pytest.raises(IllegalStateError, match="the client is closed"):
        first.run(first.admin.list_topics())
    second.shut()


def test_a_link_whose_thread_has_ended_says_so_and_is_replaced(config: dict[str, object]) -> None:
    first = link(config)
    held = asyncio.Event()

    async def waits() -> None:
        await held.wait()

    async def ends_the_loop() -> None:
        asyncio.get_running_loop().stop()

    waiting = first.submit(waits())
    first.submit(ends_the_loop())
    with pytest.raises(IllegalStateError, match="somebody stopped its event loop"):
        waiting.result()
    with pytest.raises(IllegalStateError, match="somebody stopped its event loop"):
        first.submit(waits())
    second = link(config)
    assert second is not first
    second.run(second.admin.list_topics())
    second.shut()


def test_a_forked_worker_has_connections_of_its_own(world: SinkWorld) -> None:
    program = """
import os, sys
import pyarrow as pa
from ottla.spark.link import link
from ottla.spark.options import sink_options
from ottla.spark.slot_writer import PlainWriter
given = {"kafka.bootstrap.servers": sys.argv[1], "topic": sys.argv[2], "semantics": "at-least-once"}
options = sink_options(given)

def work(value):
    kafka = link(options.client)
    kafka.run(kafka.admin.list_topics())
    rows = pa.RecordBatch.from_pydict({"value": pa.array([value], pa.binary())})
    assert PlainWriter(options).write(iter([rows]), 0) == 1
    return kafka

parents = work(b"parent")
child = os.fork()
if child == 0:
    own = work(b"child")
    os._exit(own is parents or not own.is_usable)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), work(b"again") is parents)
"""
    # from 3.12 on Python itself warns of a fork beside threads
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, world.bootstrap, world.topic],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 True\n", "")
    assert world.output() == {"parent": 1, "child": 1, "again": 1}


def test_a_slot_after_one_whose_connections_a_fault_has_ended_gets_new_ones(world: SinkWorld) -> None:
    options = sink_options({"kafka.bootstrap.servers": world.bootstrap, "topic": world.topic, "sink.id": world.sink})
    world.driver()  # makes the ledger
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"v"], pa.binary())})
    kafka = link(options.client)
    shared = []

    def slot(number: int) -> SlotWriter:
        writer = SlotWriter(options, number)
        shared.append(kafka.run(kafka.slot_cluster(options.client)))
        return writer

    first, second = slot(0), slot(1)
    assert shared[0] is shared[1]
    crash(kafka, shared[0])
    for broken in (first, second):
        with pytest.raises(ClientError) as caught:
            broken.send(rows)
            broken.finish(SlotMarker(BatchKey("q", 1), 0, 1, "digest"))
        assert blames(caught.value, _FAULT)
        broken.give_up()
    third = slot(0)
    assert shared[2] is not shared[1]
    assert link(options.client) is kafka
    third.send(rows)
    assert third.finish(SlotMarker(BatchKey("q", 1), 0, 1, "digest")).transactional_id


def test_s1_a_topic_that_is_made_again_while_its_leader_is_looked_for_is_another_one(
    config: dict[str, object], bootstrap: str, fresh_name: Callable[[str], str]
) -> None:
    """Its rows were read in the place of those that were planned."""
    source, kafka = World(bootstrap, fresh_name("anew")), KafkaLink(config)
    source.make(2)
    try:
        before = kafka.run(kafka.topics([source.topic], as_of_now=True))
        info = before.topics[source.topic]
        source.delete()
        source.make(3)

        async def fetch() -> object:
            without = {number: each._replace(leader=-1) for number, each in info.partitions.items()}
            kafka.cluster.learn(before._replace(topics={source.topic: info._replace(partitions=without)}))
            tp, meant = TopicPartition(source.topic, 0), topic_id_text(info.topic_id)
            return await kafka.fetch(tp, 0, topic_id=meant, committed=True, max_bytes=10_000, max_wait_ms=0)

        with pytest.raises(DataLossError, match="was deleted and made again"):
            kafka.run(fetch())
    finally:
        kafka.shut()

"""`ottla pipeline list`, `describe`, `resolve`: sinks that wait for their driver, and batches in doubt."""

import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla import Admin
from ottla.spark.errors import InDoubtError, SinkFencedError
from ottla.spark.ids import slot_id
from ottla.spark.ledger import Plan
from ottla.spark.pipeline import planned
from ottla.testing import Broker
from tests.cli.conftest import Ottla
from tests.spark.sink_world import QUERY, SinkWorld, commit_until, ends_slots

_NUMBERS = itertools.count()


@pytest.fixture
def world(ottla_broker: Broker, tmp_path: Path) -> Iterator[SinkWorld]:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    name = f"pipeline-{os.getpid()}-{next(_NUMBERS)}"
    yield SinkWorld.create(ottla_broker.bootstrap_servers, name, tmp_path / "checkpoint")


def decided(world: SinkWorld) -> None:
    """Batch 0 is decided, and its driver dies."""
    driver = world.driver()
    world.plan(0, 3, "g")
    plan = Plan(planned(str(world.checkpoint), 0, None).digest, world.topic)
    commit_until(world.committer(), world.batch(driver, 0, "a", "b", "c"), ends_slots, plan)
    world.settle()


def in_doubt(world: SinkWorld) -> None:
    """... and slot 1 is lost before another driver comes."""
    decided(world)
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        admin.fence_producers([slot_id(world.sink, 1)])
    world.driver()
    world.settle()


def test_s6_what_waits_for_a_driver_is_listed_and_ended(ottla: Ottla, world: SinkWorld) -> None:
    decided(world)
    (listed,) = [each for each in ottla("pipeline", "list", "--json").data if each["sink"] == world.sink]
    assert listed["open_since"]
    assert {name: listed[name] for name in listed if name != "open_since"} == {
        "sink": world.sink,
        "state": "decided",
        "queries": 1,
        "last_query": QUERY,
        "last_batch": 0,
        "open": 3,
    }
    described = ottla("pipeline", "describe", world.sink, "--json").data
    (batch,) = described["batches"]
    assert [(slot["slot"], slot["state"], slot["rows"]) for slot in batch["slots"]] == [
        (slot, "open", 1) for slot in range(3)
    ]
    assert [each["transactional_id"] for each in described["open"] if each["decided"]] == [
        slot_id(world.sink, slot) for slot in range(3)
    ]
    dry = ottla("pipeline", "resolve", world.sink, "--dry-run")
    assert (dry.code, dry.out) == (0, "")
    assert "3 decided transactions (slot 0, 1, 2, open since " in dry.err
    assert len(world.open_transactions()) == 3
    done = ottla("pipeline", "resolve", world.sink, "--yes")
    assert (done.code, "Committed 3 decided transactions, aborted 0 others." in done.err) == (0, True)
    assert world.output() == Counter("abc")
    again = ottla("pipeline", "resolve", world.sink, "--yes")
    assert (again.code, again.err) == (0, "Nothing is to be done.\n")
    assert "idle" in ottla("pipeline", "list").out


def test_s6_what_no_decision_names_is_aborted_and_a_running_driver_stops(ottla: Ottla, world: SinkWorld) -> None:
    first = world.driver()
    world.plan(0, 3, "g")
    world.committer().commit(world.batch(first, 0, "a"), 0)
    driver = world.driver()
    messages = world.batch(driver, 1, "b", "c")
    assert "writing, or left open" in ottla("pipeline", "list").out
    said = ottla("pipeline", "resolve", world.sink, "--yes", "--json")
    assert (said.code, said.data["done"]) == (0, True)
    assert said.data["will"][0].startswith("2 undecided transactions (slot 0, 1")
    assert said.data["will"][1] == (
        f"A query that is writing a batch through sink {world.sink} now will stop (SinkFencedError); one that waits "
        "for rows does not: it claims the sink again with its next batch."
    )
    world.plan(1, 6, "g")
    with pytest.raises(SinkFencedError):
        world.committer().commit(messages, 1)
    assert world.output() == Counter("a")
    assert world.open_transactions() == []


def test_s6_a_batch_in_doubt_is_told_and_counts_as_written(ottla: Ottla, world: SinkWorld) -> None:
    in_doubt(world)
    said = ottla("pipeline", "describe", world.sink)
    assert f"Batch 0 of query {QUERY} is half committed:" in said.out
    left = ottla("pipeline", "resolve", world.sink, "--yes")
    assert left.code == 1
    assert "Nothing is to be done." in left.err
    assert "slots 1 are lost, others are committed" in left.err
    with pytest.raises(InDoubtError):
        world.batch(world.driver(), 0, "x", "y", "z")
    done = ottla("pipeline", "resolve", world.sink, "--as", "written", "--yes")
    assert done.code == 0
    assert "The rows of slots 1 stay missing." in done.err
    world.settle()
    world.committer().commit(world.batch(world.driver(), 0, "x", "y", "z"), 0)  # skipped
    world.plan(1, 6, "g")
    world.committer().commit(world.batch(world.driver(), 1, "d"), 1)
    assert world.output() == Counter("acd")


def test_s6_a_batch_in_doubt_counts_as_unwritten(ottla: Ottla, world: SinkWorld) -> None:
    in_doubt(world)
    done = ottla("pipeline", "resolve", world.sink, "--as", "unwritten", "--query", QUERY, "--yes")
    assert done.code == 0
    assert (
        f"batch 0 of query {QUERY} will count as unwritten: when Spark runs it again, the whole of it is written again."
        " Spark runs no batch again that its commit log has (commits/0 in the checkpoint)."
    ) in done.err
    world.settle()
    world.committer().commit(world.batch(world.driver(), 0, "x", "y", "z"), 0)
    assert world.output() == Counter("acxyz")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("no-such-sink",), "knows no sink no-such-sink"),
        (("SINK", "--ledger", "no-such-ledger"), "there is no ledger topic no-such-ledger"),
        (("SINK", "--yes", "--dry-run"), "not both"),
        (("SINK", "--json"), "--json asks nobody"),
        (("SINK", "--query", "q"), "--query says nothing without --as"),
        (("SINK", "--as", "written"), "half committed is none"),
        (("SINK", "--as", "written", "--query", "q"), "no decided batch of query q"),
        (("SINK", "--as", "written", "--query", QUERY), "it counts as written already"),
    ],
)
def test_s6_what_cannot_be_resolved_is_told(
    ottla: Ottla, world: SinkWorld, arguments: tuple[str, ...], why: str
) -> None:
    world.plan(0, 3, "g")
    world.committer().commit(world.batch(world.driver(), 0, "a"), 0)
    said = ottla("pipeline", "resolve", *(world.sink if each == "SINK" else each for each in arguments))
    assert said.code == 1
    assert why in said.err


def test_s6_a_sink_that_this_ledger_does_not_know_is_listed_and_left_alone(ottla: Ottla, world: SinkWorld) -> None:
    """Its decisions may be in another ledger: what looks undecided may be decided there."""
    world.batch(world.driver(), 0, "a", "b")
    (listed,) = [each for each in ottla("pipeline", "list", "--json").data if each["sink"] == world.sink]
    assert (listed["state"], listed["queries"], listed["open"]) == ("writing, or left open", 0, 2)
    refused = ottla("pipeline", "resolve", world.sink, "--yes")
    assert refused.code == 1
    assert "knows no decision of sink" in refused.err
    assert len(world.open_transactions()) == 2


def test_s6_nobody_to_ask_changes_nothing(world: SinkWorld) -> None:
    decided(world)
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "pipeline", "resolve", world.sink],
        input="",
        capture_output=True,
        text=True,
        env={**os.environ, "OTTLA_BOOTSTRAP": world.bootstrap},
        check=False,
    )
    assert done.returncode == 1
    assert "nobody answered; nothing was written" in done.stderr
    assert len(world.open_transactions()) == 3

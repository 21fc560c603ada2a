"""The Spark pipeline runs exactly once on Apache Kafka too, with the same kills."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.chaos.conftest import RunDemo
from tests.chaos.conftest import run_demo as run_demo
from tests.chaos.outages import chaos_seeds
from tests.interop.apache import ApacheKafka

pytestmark = pytest.mark.interop


@chaos_seeds(1)
def test_s4_every_word_arrives_once_through_apache_kafka_killed_as_well(
    apache_jars: str, run_demo: RunDemo, tmp_path: Path, seed: int
) -> None:
    node = ApacheKafka(tmp_path / "kafka")
    command = node.prepare()
    arguments = ("--broker-command", shlex.join(command), "--port", str(node.port), "--lines", "40000")
    run = run_demo(*arguments, "--seed", str(seed))
    assert (run.code, run.counts) == (0, (0, 0, 0)), run.said
    assert run.outcome["kills"] == 3

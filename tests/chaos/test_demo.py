"""The main job, with its kills: exactly once with our sink, and seen to fail with a sink that promises less.

It has no history for the checkers: the demo itself counts every word of every line with a consumer that is not ours,
the clients run inside Spark's workers, and its broker is gone when it ends.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
from pathlib import Path

import pytest

from tests.chaos.conftest import RunDemo
from tests.chaos.outages import chaos_seeds

pytestmark = pytest.mark.chaos

#: Fewer lines than `ottla demo` itself takes, in as many micro-batches.
_SMALL = ("--lines", "40000")


# Every step between which a driver can die is drawn by one of these.
@chaos_seeds(1, slow=[2, 5])
def test_s2_every_word_arrives_once_across_the_kills(run_demo: RunDemo, seed: int) -> None:
    run = run_demo("--seed", str(seed), *_SMALL)
    assert (run.code, run.counts) == (0, (0, 0, 0)), run.said
    assert run.outcome["kills"] == 3
    assert run.outcome["micro_batches"] >= 10
    assert run.outcome["restarts"] >= 1
    assert run.outcome["tally"]["read"] == run.outcome["tally"]["expected"] > 200_000


@chaos_seeds(1)
def test_s2_negative_control_the_same_kills_show_duplicates_at_least_once(run_demo: RunDemo, seed: int) -> None:
    run = run_demo("--seed", str(seed), "--sink", "at-least-once", *_SMALL)
    lost, duplicated, foreign = run.counts
    assert run.code == 1, run.said
    assert duplicated > 0, "the check could not fail: nothing was written twice"
    assert (lost, foreign) == (0, 0)


# Over TLS, with passwords and with just the rights of docs/spark.md; no other kills than above.
@chaos_seeds(1)
def test_x1_every_word_arrives_once_over_tls_with_the_rights_it_needs_and_no_others(
    run_demo: RunDemo, seed: int
) -> None:
    run = run_demo("--secure", "--keep", "--seed", str(seed), "--lines", "10000")
    kept = re.search(r"kept: (/\S+)\n.*`kill (\d+)` ends it", run.said)
    assert kept is not None, run.said
    _end(int(kept[2]))
    directory = Path(kept[1])
    try:
        assert (run.code, run.counts) == (0, (0, 0, 0)), run.said
        assert run.outcome["kills"] == 3
        assert run.outcome["reader"] == "confluent-kafka"
        assert _that_show_a_password(directory) == []
    finally:
        shutil.rmtree(directory)


def _end(pid: int) -> None:
    """End the broker that the demo has kept, which is no child of ours, and wait until it is gone."""
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        assert select.select([process], [], [], 60)[0], "the broker does not end"
    finally:
        os.close(process)


def _that_show_a_password(directory: Path) -> list[str]:
    """Files of the demo, beside those of its users, with one of their passwords: logs, the checkpoint, the broker's."""
    passwords = [file.read_bytes().strip() for file in (directory / "secure").glob("*.password")]
    assert len(passwords) == 4
    files = [file for file in directory.rglob("*") if file.is_file() and file.parent.name != "secure"]
    assert {"broker.log", "pipeline.log"} <= {file.name for file in files}
    return [str(file) for file in files if any(password in file.read_bytes() for password in passwords)]

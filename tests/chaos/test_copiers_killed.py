"""kill -9 of processes that copy a topic exactly once, as members of one group, and of the broker (T11, T13, G9)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, NewTopic, OffsetSpec, TopicPartition
from ottla.testing import Broker, History
from tests.chaos.copier import GROUP
from tests.chaos.outages import Outages, chaos_seeds, drawn
from tests.recording.final import assert_good, note_logs, note_positions
from tests.recording.ours import RecordingProducer

pytestmark = pytest.mark.chaos

_PARTITIONS = {"in": 4, "out": 2}
_INPUTS = [TopicPartition("in", number) for number in range(_PARTITIONS["in"])]
_KILLS = 8
_WAIT_S = 60.0


class Copier:
    """A copying process, and all its lives."""

    def __init__(self, bootstrap: str, name: str, folder: Path) -> None:
        self.name, self._bootstrap, self._folder = name, bootstrap, folder
        self.lives = 0
        self._start()

    def _start(self) -> None:
        self.lives += 1
        command = [sys.executable, "-m", "tests.chaos.copier", self._bootstrap, self.name, str(self.lives)]
        self._process = subprocess.Popen(
            [*command, str(self._file(self.lives))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def histories(self) -> list[History]:
        """What each life has noted: the last one to its end, the others as far as they came."""
        *killed, last = (self._file(life) for life in range(1, self.lives + 1))
        return [*(History.read(path, unfinished=True) for path in killed), History.read(last)]

    def _file(self, life: int) -> Path:
        return self._folder / f"{self.name}-{life}.jsonl"

    def kill(self, history: History) -> None:
        """kill -9 as soon as it copies, and a new life."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "copies\n", self._said()
        self._process.kill()
        self._said()
        for who in ("in", "out"):
            history.consumer(f"{self.name} life {self.lives} {who}").killed()
        self._start()

    def finish(self) -> None:
        """SIGTERM; it must end in order."""
        self._process.send_signal(signal.SIGTERM)
        said = self._said()
        assert self._process.returncode == 0, said

    def _said(self) -> str:
        _, said = self._process.communicate(timeout=_WAIT_S)
        return said


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        with Admin({"bootstrap.servers": started.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic(name, count) for name, count in _PARTITIONS.items()])
        yield started


def _is_copied(admin: Admin) -> bool:
    committed = admin.list_group_offsets(GROUP)
    ends = admin.list_offsets(dict.fromkeys(_INPUTS, OffsetSpec.LATEST))
    return all(tp in committed and committed[tp].offset >= ends[tp].offset for tp in _INPUTS)


@chaos_seeds(1, slow=[2, 3])
def test_t11_copiers_that_are_killed_copy_every_record_once(broker: Broker, tmp_path: Path, seed: int) -> None:
    bootstrap, history = broker.bootstrap_servers, History()
    copiers = {name: Copier(bootstrap, name, tmp_path) for name in ("copier-0", "copier-1")}

    def carry_out(victim: str) -> None:
        if victim == "broker":
            broker.kill()
            broker.restart()
        else:
            copiers[victim].kill(history)

    faults = drawn(seed, _KILLS, 4_000, ["broker", *copiers])
    with (
        Outages(faults, carry_out) as outages,
        RecordingProducer({"bootstrap.servers": bootstrap, "linger.ms": 1}, history, "source") as source,
    ):
        sent = 0
        while not outages.done.is_set() or sent < 2_000:
            deliveries = [
                source.send("in", b"%d" % (sent + n), partition=(sent + n) % _PARTITIONS["in"]) for n in range(20)
            ]
            sent += len(deliveries)
            for delivery in deliveries:
                delivery.result(_WAIT_S)
                outages.step()
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        while not _is_copied(admin):
            pass
    for copier in copiers.values():
        copier.finish()
    lives = [life for copier in copiers.values() for life in copier.histories()]
    together = History.merged([history, *lives])
    note_logs(together, bootstrap, _PARTITIONS)
    note_positions(together, bootstrap, GROUP)
    together.drained(GROUP, _INPUTS, transforms=True)
    assert_good(together)

"""A pipeline, `placed_wordcount.py`, and the deaths of its processes, each at a named step of a micro-batch.

Each launch of the pipeline has one death before it: the next micro-batch that reaches the step meets it, often a replay
of the one that the death before has cut short. The last launch has none, and finishes. Between the launches, and at the
end, a consumer that is not ours reads what is committed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ottla import Admin
from ottla.spark.plan import SourceOffset
from ottla.spark.run import launch
from tests.interop.spark_topics import Topics
from tests.spark.sessions import kill_session

PARTITIONS = 2
_LINES = 2_000
#: Lines of a micro-batch: there are more of them than deaths.
_A_BATCH = 50
_REACHED_S = 240.0

#: Word, how often, partition, offset.
Word = tuple[str, int, int, int]


class Death(NamedTuple):
    """Who dies at which step. A worker dies alone, and its task is run again; a driver takes all of Spark with it."""

    victim: str
    point: str

    @property
    def action(self) -> str:
        """What the switch does: a worker kills itself, the others are killed while the step waits."""
        return "kill" if self.victim == "worker" else "pause"


class Mortals(NamedTuple):
    """A broker that can die."""

    bootstrap: str
    kill_and_start: Callable[[], object]


class Pipeline:
    """One query over all its launches."""

    def __init__(self, broker: Mortals, folder: Path, *, atomicity: str, semantics: str = "exactly-once") -> None:
        self._broker, self._folder = broker, folder
        self._topics = Topics(broker.bootstrap)
        self._checkpoint = folder / "checkpoint"
        self._options = ["--atomicity", atomicity, "--semantics", semantics]
        self._topics.make("lines", "words", partitions=PARTITIONS)
        lines = [f"line {n} says {'spark' if n % 3 else 'kafka'} and {n % 7}" for n in range(_LINES)]
        for partition in range(PARTITIONS):
            self._topics.send_to("lines", partition, lines[partition::PARTITIONS])
        self.expected: Counter[Word] = Counter(
            (word, count, n % PARTITIONS, n // PARTITIONS)
            for n, line in enumerate(lines)
            for word, count in Counter(line.split()).items()
        )
        self._launches = 0

    def live(self, *deaths: Death) -> Iterator[Death]:
        """Launch for each death; then to the end. After each death, while nothing runs, the caller may look."""
        for death in deaths:
            self._launch(death)
            yield death
        driver = self._start({})
        assert driver.wait() == 0, self._said()

    def _launch(self, death: Death) -> None:
        self._launches += 1
        faults = self._folder / f"faults-{self._launches}"
        faults.mkdir()
        switch = {"OTTLA_FAULT": f"{death.point}={death.action}", "OTTLA_FAULT_DIR": str(faults)}
        driver = self._start(switch)
        reached = faults / f"{death.point}-{death.action}"
        try:
            self._wait_for(reached, driver)
            if death.victim == "broker":
                self._broker.kill_and_start()
                reached.unlink()
            if death.victim != "driver":
                self._goes_on(driver)
        finally:
            kill_session(driver.pid)
            driver.wait()

    def _wait_for(self, reached: Path, driver: subprocess.Popen[bytes]) -> None:
        for _ in range(int(_REACHED_S * 10)):
            if reached.exists():
                return
            with suppress(subprocess.TimeoutExpired):
                code = driver.wait(0.1)
                assert reached.exists(), f"the driver ended with {code} before {reached.name}:\n{self._said()}"
        raise AssertionError(f"{reached.name} was not reached within {_REACHED_S:.0f} s:\n{self._said()}")

    def _goes_on(self, driver: subprocess.Popen[bytes]) -> None:
        """Until the query has ended a micro-batch, or two: one might have been at its end already."""
        before = self._committed()
        for _ in range(int(_REACHED_S * 10)):
            if self._committed() > before + 1:
                return
            with suppress(subprocess.TimeoutExpired):
                code = driver.wait(0.1)
                raise AssertionError(f"the query did not go on, the driver ended with {code}:\n{self._said()}")
        raise AssertionError(f"the query did not go on within {_REACHED_S:.0f} s:\n{self._said()}")

    def _committed(self) -> int:
        return len(list((self._checkpoint / "commits").glob("[0-9]*")))

    def _start(self, switch: dict[str, str]) -> subprocess.Popen[bytes]:
        arguments = ["--bootstrap", self._broker.bootstrap, "--input", "lines", "--output", "words", *self._options]
        arguments += ["--checkpoint", str(self._checkpoint), "--max-offsets-per-trigger", str(_A_BATCH)]
        script = Path(__file__).with_name("placed_wordcount.py")
        conf = ["spark.ui.enabled=false"]
        argv, env = launch(script, [*arguments, "--available-now"], master="local[2,4]", conf=conf, environ=os.environ)
        with (self._folder / "said").open("ab") as said:
            return subprocess.Popen(argv, env=env | switch, stdout=said, stderr=said, start_new_session=True)

    def _said(self) -> str:
        return (self._folder / "said").read_text(errors="replace")[-4000:]

    def words(self) -> Counter[Word]:
        """What a reader of committed records finds."""
        rows = (json.loads(value or "") for _, value in self._topics.committed("words", PARTITIONS))
        return Counter((row["word"], row["count"], row["partition"], row["offset"]) for row in rows)

    def torn(self) -> list[int]:
        """The micro-batches of which a reader finds a part, and not the rest."""
        there = {(partition, offset) for _, _, partition, offset in self.words()}
        torn = []
        for file in sorted((self._checkpoint / "offsets").glob("[0-9]*"), key=lambda each: int(each.name)):
            batch = SourceOffset.from_json(json.loads(file.read_text().split("\n")[2]))
            lines = {(tp.partition, at) for tp, end in batch.end.items() for at in range(batch.start.get(tp, 0), end)}
            if lines & there and lines - there:
                torn.append(int(file.name))
        return torn

    def open_transactions(self) -> list[str]:
        """Transactions of the sink that nobody has ended."""
        with Admin({"bootstrap.servers": self._broker.bootstrap}) as admin:
            return [each.transactional_id for each in admin.list_transactions("__ottla/.*", ["Ongoing"])]

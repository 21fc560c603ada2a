"""A pipeline, `placed_wordcount.py`, and the deaths of its processes, each at a named step of a micro-batch.

Each launch of the pipeline has one death before it: the next micro-batch that reaches the step meets it, often a replay
of the one that the death before has cut short. The last launch has none, and finishes. Between the launches, and at the
end, a consumer that is not ours reads what is committed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from ottla import Admin, KafkaError, Producer
from ottla.spark.plan import SourceOffset
from ottla.spark.run import launch
from tests.chaos.mortal_brokers import Mortal
from tests.interop.spark_topics import Topics
from tests.spark.sessions import java_above, kill_session, signal_session

PARTITIONS = 2
#: Lines of a micro-batch: there are to be more of them than deaths.
A_BATCH = 50
_REACHED_S = 900.0
_STARVED = "Python worker failed to connect back"
_TRIES = 4
_SCRIPT = Path(__file__).with_name("placed_wordcount.py")

#: Steps that a task reaches, in their order.
TASK_POINTS = ("source.read", "sink.write-begun", "sink.mid-write", "sink.flushed")
#: Those of the driver, by the sink's `atomicity`; `sink.claimed` is before the tasks.
DRIVER_POINTS = {
    "slot": (
        "sink.claimed",
        "sink.before-decision",
        "sink.after-decision",
        "sink.between-slots",
        "sink.after-slots",
        "sink.after-done",
    ),
    "batch": ("sink.claimed", "sink.mid-copy", "sink.before-decision", "sink.after-decision"),
}

#: Word, how often, partition, offset.
Word = tuple[str, int, int, int]


class Death(NamedTuple):
    """Who dies at which step. A worker dies alone, and its task is run again; a task fails, and its worker lives on; a
    driver takes all of Spark with it."""

    victim: str
    point: str

    @property
    def action(self) -> str:
        """What the switch does: a worker kills itself, a task fails, the others are killed while the step waits."""
        return {"worker": "kill", "task": "fail"}.get(self.victim, "pause")


class StarvedError(AssertionError):
    """A driver has ended because a Python process of Spark was not there after ten seconds, which are not a setting."""


def tried(act: Callable[[], None]) -> None:
    """Do it, and again if Spark was starved by what else the machine does: to the query that is one death more."""
    for _ in range(_TRIES - 1):
        with suppress(StarvedError):
            return act()
    return act()


class Driver:
    """One launch of the query."""

    def __init__(self, process: subprocess.Popen[bytes], reached: Path | None, log: Path) -> None:
        self._process, self._reached, self._log = process, reached, log

    def wait_at_the_step(self) -> None:
        """Until the step of its switch is reached."""
        assert self._reached is not None
        for _ in range(int(_REACHED_S * 10)):
            if self._reached.exists():
                return
            code = self.ended_with()
            if code is not None and not self._reached.exists():
                self.fail(f"the driver ended with {code} before {self._reached.name}")
        raise AssertionError(f"{self._reached.name} was not reached within {_REACHED_S:.0f} s:\n{self.said()}")

    def go_on(self) -> None:
        """The step waits no longer."""
        assert self._reached is not None
        self._reached.unlink()

    def stop(self) -> None:
        """SIGSTOP to all of Spark."""
        signal_session(self._process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT: none of them knows yet what happened meanwhile."""
        signal_session(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to all of Spark, and wait until the driver is gone."""
        kill_session(self._process.pid)
        self._process.wait()

    def pid_at_the_step(self) -> int:
        """The process that waits at the step."""
        assert self._reached is not None
        return int(self._reached.read_text())

    def ended_with(self) -> int | None:
        """Its exit code; None if it still runs after a tenth of a second."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(0.1)
        return None

    def end(self) -> int:
        """Wait for its exit code."""
        try:
            return self._process.wait(_REACHED_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver has not ended within {_REACHED_S:.0f} s:\n{self.said()}") from None

    def has_said(self, *names: str) -> list[str]:
        """Those of the names that its log has."""
        log = self._log.read_text(errors="replace")
        return [name for name in names if name in log]

    def fail(self, what: str) -> NoReturn:
        """Raise AssertionError, or StarvedError if that is why."""
        raise (StarvedError if self.has_said(_STARVED) else AssertionError)(f"{what}:\n{self.said()}")

    def said(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-4000:]


class Pipeline:
    """One query over all its launches. `sink` are more of the sink's options, `conf` Spark's settings (KEY=VALUE).

    `min_records` is `minRecordsPerPartition`: how many offsets a slot has at least.
    """

    def __init__(
        self,
        broker: Mortal,
        folder: Path,
        *,
        atomicity: str,
        semantics: str = "exactly-once",
        plan: str = "placed",
        lines: int = 2_000,
        sink: Mapping[str, str] | None = None,
        master: str = "local[2,4]",
        conf: Sequence[str] = (),
        partitions: int = PARTITIONS,
        min_records: int = 1,
    ) -> None:
        self._broker, self._folder, self._master = broker, folder, master
        self._topics = Topics(broker.bootstrap)
        self.checkpoint = folder / "checkpoint"
        self._conf = ["spark.ui.enabled=false", *conf]
        self._options = ["--atomicity", atomicity, "--semantics", semantics, "--plan", plan]
        self._options += [f"--option={key}={value}" for key, value in (sink or {}).items()]
        self._options += ["--min-records", str(min_records)]
        self._topics.make("lines", "words", "witness", partitions=partitions)
        texts = [f"line {n} says {'spark' if n % 3 else 'kafka'} and {n % 7}" for n in range(lines)]
        for partition in range(partitions):
            self._topics.send_to("lines", partition, texts[partition::partitions])
        self.expected: Counter[Word] = Counter(
            (word, count, n % partitions, n // partitions)
            for n, line in enumerate(texts)
            for word, count in Counter(line.split()).items()
        )
        self._launches = 0

    def live(self, *deaths: Death) -> Iterator[Death]:
        """Launch for each death; then to the end. After each death, while nothing runs, the caller may look."""
        for death in deaths:
            tried(partial(self._meet, death))
            yield death
        tried(self.finish)

    def finish(self) -> None:
        """Launch it without a death, until everything is read."""
        driver = self.launch()
        try:
            if driver.end() != 0:
                driver.fail("the driver did not get to the end")
        finally:
            driver.kill()

    def _meet(self, death: Death) -> None:
        driver = self.launch(death)
        try:
            driver.wait_at_the_step()
            if death.victim == "broker":
                self._broker.kill_and_start()
                driver.go_on()
            if death.victim == "executor":
                os.kill(java_above(driver.pid_at_the_step()), signal.SIGKILL)
                driver.go_on()  # the worker, if it has not died with its executor: then it is a zombie
            if death.victim != "driver":
                self.goes_on(driver)
        finally:
            driver.kill()

    def goes_on(self, driver: Driver) -> None:
        """Until the query has ended a micro-batch, or two: one might have been at its end already."""
        before = self.committed()
        for _ in range(int(_REACHED_S * 10)):
            if self.committed() > before + 1:
                return
            code = driver.ended_with()
            if code is not None:
                driver.fail(f"the query did not go on, the driver ended with {code}")
        raise AssertionError(f"the query did not go on within {_REACHED_S:.0f} s:\n{driver.said()}")

    def committed(self) -> int:
        """How many micro-batches Spark has noted as done."""
        return len(list((self.checkpoint / "commits").glob("[0-9]*")))

    def launch(self, death: Death | None = None) -> Driver:
        """Start the query; with a death its step waits, or kills its process."""
        self._launches += 1
        switch: dict[str, str] = {}
        reached = None
        if death is not None:
            faults = self._folder / f"faults-{self._launches}"
            faults.mkdir()
            switch = {"OTTLA_FAULT": f"{death.point}={death.action}", "OTTLA_FAULT_DIR": str(faults)}
            reached = faults / f"{death.point}-{death.action}"
        log = self._folder / f"said-{self._launches}"
        return Driver(self._start(switch, log), reached, log)

    def _start(self, switch: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
        arguments = ["--bootstrap", self._broker.bootstrap, "--input", "lines", "--output", "words", *self._options]
        arguments += ["--checkpoint", str(self.checkpoint), "--max-offsets-per-trigger", str(A_BATCH)]
        conf = [*self._conf, *(f"spark.executorEnv.{key}={value}" for key, value in switch.items())]
        argv, env = launch(_SCRIPT, arguments, master=self._master, conf=conf, environ=os.environ)
        with log.open("wb") as said:
            return subprocess.Popen(argv, env=env | switch, stdout=said, stderr=said, start_new_session=True)

    def stay_away(self, timeout_ms: int) -> None:
        """Until every transaction with this time-out that is open now has run out of it.

        A witness with the same time-out begins now; the broker ends it behind the others.
        """
        name = f"witness-{self._launches}"
        settings = {"transactional.id": name, "transaction.timeout.ms": timeout_ms}
        producer = Producer({"bootstrap.servers": self._broker.bootstrap, **settings})
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("witness", b"").result(60)
        with Admin({"bootstrap.servers": self._broker.bootstrap}) as admin:
            while admin.list_transactions(name, ["Ongoing"]):
                pass
        with suppress(KafkaError):
            producer.close()

    def words(self) -> Counter[Word]:
        """What a reader of committed records finds."""
        rows = (json.loads(value or "") for _, value in self._topics.committed("words"))
        return Counter((row["word"], row["count"], row["partition"], row["offset"]) for row in rows)

    def torn(self) -> list[int]:
        """The micro-batches of which a reader finds a part, and not the rest."""
        there, torn = self.words(), []
        for file in sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda each: int(each.name)):
            batch = SourceOffset.from_json(json.loads(file.read_text().split("\n")[2]))
            lines = {(tp.partition, at) for tp, end in batch.end.items() for at in range(batch.start.get(tp, 0), end)}
            found = [word in there for word in self.expected if word[2:] in lines]
            if any(found) and not all(found):
                torn.append(int(file.name))
        return torn

    def open_transactions(self) -> list[str]:
        """Transactions of the sink that nobody has ended."""
        with Admin({"bootstrap.servers": self._broker.bootstrap}) as admin:
            return [each.transactional_id for each in admin.list_transactions("__ottla/.*", ["Ongoing"])]


class Cell(NamedTuple):
    """How a query writes, and whether it gives the same rows again."""

    atomicity: str
    two_phase: str
    plan: str = "placed"
    partitions: int = PARTITIONS
    min_records: int = 1

    def pipeline(self, broker: Mortal, folder: Path, *, lines: int, timeout_ms: int | None = None) -> Pipeline:
        """A query of the cell; its transactions have this time-out."""
        sink = {"two.phase.commit": self.two_phase}
        if timeout_ms is not None:
            sink["kafka.transaction.timeout.ms"] = str(timeout_ms)
        return Pipeline(
            broker,
            folder,
            atomicity=self.atomicity,
            plan=self.plan,
            lines=lines,
            sink=sink,
            partitions=self.partitions,
            min_records=self.min_records,
        )

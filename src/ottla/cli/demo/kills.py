"""When which process is killed: drawn from a seed, so that a run can be repeated.

Three kills, each in a third of the job's micro-batches of its own, in an order that the seed draws too:

    worker   a Python worker of Spark dies in the middle of a task's write (fault switch of `ottla.spark.faults`)
    driver   the whole Spark driver dies between two steps of the sink's protocol: it is stopped there by a switch, and
             everything it started is killed from outside
    broker   the broker dies while a task is writing to it, and is started again after a moment
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ottla.cli.demo.processes import BrokerProcess, ManagedProcess

#: The points at which the driver may die. At-least-once has no decision, so there it dies after its writes.
_DRIVER_POINTS = ("sink.before-decision", "sink.after-decision", "sink.between-slots", "sink.after-slots")
_PLAIN_DRIVER_POINTS = ("sink.flushed",)
_BROKER_POINTS = ("sink.write-begun", "sink.mid-write")
_POLL_S = 0.02


class Kill(NamedTuple):
    """One kill: of whom, at which point of which micro-batch; `delay_s` until a killed broker is started again."""

    victim: str
    point: str
    batch: int
    delay_s: float = 0.0

    @property
    def action(self) -> str:
        """What the fault switch does. A worker kills itself; for driver and broker the switch waits for the kill."""
        return "kill" if self.victim == "worker" else "pause"

    @property
    def switch(self) -> str:
        """The entry in OTTLA_FAULT."""
        return f"{self.point}:{self.batch}={self.action}"

    @property
    def file_name(self) -> str:
        """The file that says that the point was reached."""
        return f"{self.point}:{self.batch}-{self.action}"

    def __str__(self) -> str:
        return f"{self.victim} at {self.point} of micro-batch {self.batch}"


def plan(seed: int, batches: int, *, exactly_once: bool, with_broker: bool, slots: int) -> list[Kill]:
    """The kills of a job of `batches` micro-batches, each written by `slots` tasks."""
    draw = random.Random(seed)
    victims = ["worker", "driver", "broker"] if with_broker else ["worker", "driver"]
    draw.shuffle(victims)
    kills = []
    for third, victim in enumerate(victims):
        # Not the first batch (everything starts there) and not the last (nothing would follow).
        low, high = 1 + third * (batches - 2) // 3, (third + 1) * (batches - 2) // 3
        batch = draw.randint(low, max(low, high))
        match victim:
            case "worker":
                kills.append(Kill(victim, "sink.mid-write", batch))
            case "driver":
                points: tuple[str, ...] = _DRIVER_POINTS if exactly_once else _PLAIN_DRIVER_POINTS
                if slots == 1:
                    points = tuple(point for point in points if point != "sink.between-slots")
                kills.append(Kill(victim, draw.choice(points), batch))
            case _:
                kills.append(Kill(victim, draw.choice(_BROKER_POINTS), batch, round(draw.uniform(0.1, 1.5), 2)))
    return kills


class Executioner:
    """Watches for the points that are reached, and kills from outside what must be killed there."""

    def __init__(
        self,
        kills: list[Kill],
        directory: Path,
        driver: ManagedProcess,
        broker: BrokerProcess | None,
        say: Callable[[str], None],
    ) -> None:
        self.planned = kills
        self._directory = directory
        self._driver = driver
        self._broker = broker
        self._say = say
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ottla-demo-kills", daemon=True)
        self._fault: BaseException | None = None
        self.done: list[Kill] = []
        #: How many kills were begun. A process that ends while this does not grow was not killed by us.
        self.begun = 0

    @property
    def environment(self) -> dict[str, str]:
        """What the pipeline's processes need to know."""
        switches = ",".join(kill.switch for kill in self.planned)
        return {"OTTLA_FAULT": switches, "OTTLA_FAULT_DIR": str(self._directory)}

    def start(self) -> None:
        """Begin to watch."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching. Raises the fault if a killed broker could not be started again."""
        self._stop.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def _watch(self) -> None:
        waiting = list(self.planned)
        carried_out: list[Kill] = []
        while not self._stop.wait(_POLL_S):
            for kill in carried_out:
                self._release(kill)  # tasks of other slots reach the same point
            for kill in [each for each in waiting if (self._directory / each.file_name).exists()]:
                waiting.remove(kill)
                self.begun += 1
                try:
                    self._carry_out(kill)
                except Exception as fault:  # noqa: BLE001  # told to the main thread by stop()
                    self._fault = fault
                    return
                carried_out.append(kill)
                self.done.append(kill)

    def _carry_out(self, kill: Kill) -> None:
        self._say(f"kill -9: {kill}")
        if kill.victim == "driver":
            self._driver.kill9()
        elif kill.victim == "broker" and self._broker is not None:
            self._broker.kill9()
            self._release(kill)  # the task goes on while the broker is gone
            self._stop.wait(kill.delay_s)
            self._broker.start_and_wait(self._stop.is_set)

    def _release(self, kill: Kill) -> None:
        """Let the tasks go on that wait for the kill of the broker. The driver is killed only once: its file stays."""
        if kill.victim == "broker":
            (self._directory / kill.file_name).unlink(missing_ok=True)

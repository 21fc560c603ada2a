"""A model of Spark around the sink: drivers, tasks, the checkpoint, and everything that can happen to them.

A driver is a generator over its batches; so is each attempt of a task. `World.act` lets exactly one thing happen:
a process makes one request, is killed (its last request may still be on its way), becomes a zombie beside a new driver,
a task gets a second attempt, a transaction times out, markers are written.
"""

import inspect
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.base.errors import ConfigError
from ottla.spark.aborting import abort_unfinished
from ottla.spark.errors import PipelineError
from ottla.spark.ids import slot_id
from ottla.spark.ledger import BatchKey, Handle, Plan, SlotMarker
from ottla.spark.protocol import (
    Claim,
    SlotReport,
    SlotTask,
    abort_batch,
    check_same,
    claim_sink,
    commit_batch,
    slot_task,
)
from ottla.spark.requests import InitProducer, ReadLedger
from ottla.spark.staged import Staged, StagedBatch
from tests.spark import former_sink
from tests.spark.kafka_model import Busy, ModelKafka, Produce

SINK, QUERY, GROUP, TOPIC = "s", "q", "g", "t"
SLOTS = 3


class TaskFailedError(Exception):
    """The task was fenced while it wrote."""


class WaitForTasks:
    """A driver's pseudo-request: answered when every slot has reported."""

    def __init__(self, claim: Claim, key: BatchKey, variant: int, more: int) -> None:
        self.claim, self.key, self.variant, self.more = claim, key, variant, more


@dataclass(eq=False)
class Checkpoint:
    """What outlives the drivers of one query."""

    #: The batches in Spark's commit log.
    commits: set[int] = field(default_factory=set)
    #: The offset log: for each batch that was ever planned, how much more there was to read than at first.
    offsets: dict[int, int] = field(default_factory=dict)


@dataclass(eq=False)
class Process:
    """A running generator and the request it waits for."""

    steps: Generator[Any, Any, Any]
    owner: "Process | None" = None
    slot: int = -1
    attempt: int = 0
    request: Any = None
    alive: bool = True
    reports: dict[int, SlotReport] = field(default_factory=dict)
    failed: Exception | None = None
    #: Whether its query is stopped.
    stopped: bool = False
    #: Whether it is of the version whose transactional ids have no prefix; a task as its driver.
    former: bool = False

    @property
    def request_is_possible(self) -> bool:
        """Whether it does not wait for its tasks."""
        return not isinstance(self.request, WaitForTasks) or len(self.reports) == SLOTS


def rows_of(batch: int, slot: int, variant: int, more: int = 0, query: str = QUERY) -> list[str]:
    """The rows of a slot. Batch 1 has an empty slot; with variant 1 a row moves from slot 0 to slot 1.

    `more` rows have come in when the batch was planned anew.
    """
    rows = [f"{query}.{batch}.{slot}.{row}" for row in range(2 + more)]
    if batch == 1 and slot == 2:
        return []
    if variant and slot == 0:
        return rows[:1]
    if variant and slot == 1:
        return [*rows, f"{query}.{batch}.0.1"]
    return rows


class World:
    """Kafka, the checkpoint, and all processes."""

    def __init__(
        self,
        batches: int,
        *,
        second_protocol: bool,
        variants: Iterator[int],
        speculation: bool = False,
        former: bool = False,
        compacting: bool = False,
        whole: bool = False,
    ) -> None:
        """With `speculation`, as Spark's setting of that name, every attempt has a transactional id of its own.

        With `former`, drivers and tasks are those of the former version until `upgrade`. With `compacting` the ledger
        is compacted whenever it can be. With `whole` tasks stage their rows (`atomicity=batch`).
        """
        self.whole = whole
        self.speculation = speculation
        self.former = former
        self.kafka = ModelKafka(SINK, second_protocol=second_protocol, compacting=compacting)
        self.batches = batches
        self.variants = variants
        self.query = QUERY
        self.checkpoints = {QUERY: Checkpoint()}
        self.more = 0
        self.drivers: list[Process] = []
        self.tasks: list[Process] = []
        self.on_the_wire: list[Any] = []
        self.start_driver()

    @property
    def commits(self) -> set[int]:
        """The commit log of the query that is started now."""
        return self.checkpoints[self.query].commits

    @property
    def offsets(self) -> dict[int, int]:
        """The offset log of the query that is started now."""
        return self.checkpoints[self.query].offsets

    # what can happen

    def switch(self, query: str) -> None:
        """From now on drivers are started for `query`, through the same sink. What runs goes on as a zombie."""
        self.query = query
        self.checkpoints.setdefault(query, Checkpoint())

    def start_driver(self) -> None:
        """A new driver on the same checkpoint; one that is still there goes on as a zombie."""
        first = next(b for b in range(self.batches + 1) if b not in self.commits)
        driver = Process(self._driver(self.query, self.checkpoints[self.query], first), former=self.former)
        self.drivers.append(driver)
        self._advance(driver, None)

    def upgrade(self) -> None:
        """Drivers that start from now on are of this version. The former ones go on as zombies.

        One that has written nothing to the ledger yet cannot be found: it is stopped.
        """
        self.former = False
        for process in self.drivers + self.tasks:
            process.alive &= bool(self.kafka.ledger)
        self.start_driver()

    def act(self, choice: int) -> None:
        """Let something happen: the last two digits choose the kind, the others among what is possible of that kind.

        Things go on in most cases, or no query would get far enough to be torn.
        """
        kind, which = choice % 100, choice // 100
        alive = self._runnable()
        tasks = [p for p in alive if p.owner is not None]
        if kind < 60:
            self._one_of(which, self.step, [p for p in alive if p.request_is_possible])
        elif kind < 78:
            self._one_of(which, self.kafka.write_markers, self.kafka.prepared())
        elif kind < 82:
            self._one_of(which, self.kafka.abort_for_good, self.kafka.ongoing())
        elif kind < 84:
            self._one_of(which, self.kill, alive)
        elif kind < 85:
            self._one_of(which, self.stop, [p for p in alive if isinstance(p.request, WaitForTasks)])
        elif kind < 88:
            self._one_of(which, self.kill_with_request_on_the_wire, alive)
        elif kind < 92:
            self._one_of(which, self.speculate, tasks if len(self.tasks) < 60 else [])
        elif kind < 95:
            self._one_of(which, self.deliver, self.on_the_wire)
        elif len(self.drivers) < 12 and (kind < 98 or not any(d.alive for d in self.drivers)):
            self.start_driver()

    def walk(self, rounds: int, but: Sequence[Process] = ()) -> None:
        """In each round the markers are written, and every process but those makes one step."""
        for _ in range(rounds):
            for name in self.kafka.prepared():
                self.kafka.write_markers(name)
            for process in [p for p in self._runnable() if p not in but]:
                self.step(process)

    @staticmethod
    def _one_of(which: int, act: Callable[[Any], object], among: Sequence[Any]) -> None:
        if among:
            act(among[which % len(among)])

    def step(self, process: Process) -> bool:
        """Carry out the request of `process` and let it run to its next one; False when it has to wait."""
        if isinstance(process.request, WaitForTasks):
            if len(process.reports) == SLOTS:
                self._advance(process, [process.reports[slot] for slot in range(SLOTS)])
                return True
            return False
        try:
            answer = self.kafka.answer(process.request)
        except Busy:
            return False
        self._advance(process, answer)
        return True

    def stop(self, driver: Process) -> None:
        """The query is stopped while its tasks are at work. They may go on, and their reports come to nobody."""
        driver.stopped = True
        reports = [driver.reports.get(slot) for slot in range(SLOTS)]
        self._advance(driver, reports)

    def kill(self, process: Process) -> None:
        """SIGKILL between two requests. A task that is killed is tried again."""
        process.alive = False
        if process.owner is not None:
            self._retry(process)

    def kill_with_request_on_the_wire(self, process: Process) -> None:
        """SIGKILL just after a request was sent: Kafka may get it at any later time."""
        if not isinstance(process.request, WaitForTasks):
            self.on_the_wire.append(process.request)
        self.kill(process)

    def lose_the_last_batch(self) -> None:
        """The query is stopped and its checkpoint edited: its last batch is planned anew, with more to read."""
        for process in self.drivers + self.tasks:
            process.alive = False
        if self.offsets:
            last = max(self.offsets)
            del self.offsets[last]
            self.commits.discard(last)
        self.more += 1

    def deliver(self, request: Any) -> None:
        """A late request arrives; nobody waits for the answer."""
        self.on_the_wire.remove(request)
        try:
            self.kafka.answer(request)
        except Busy:
            self.on_the_wire.append(request)

    def speculate(self, task: Process) -> None:
        """A second attempt beside a running one."""
        assert task.owner is not None
        if task.owner.alive and isinstance(task.owner.request, WaitForTasks):
            self._launch(task.owner, task.owner.request, task.slot)

    def calm_down(self) -> Process:
        """Nothing bad happens any more: the last driver runs alone until its query ends."""
        for process in self.drivers + self.tasks:
            process.alive = False
        self.start_driver()
        driver = self.drivers[-1]
        while driver.alive:
            # markers are as late as can be: written when nobody can go on without them
            moved = [self.step(process) for process in self._runnable()]
            if not any(moved):
                for name in self.kafka.prepared():
                    self.kafka.write_markers(name)
        for name in self.kafka.prepared():
            self.kafka.write_markers(name)
        return driver

    # processes

    def _runnable(self) -> list[Process]:
        return [p for p in self.drivers + self.tasks if p.alive]

    def _advance(self, process: Process, answer: Any) -> None:
        try:
            process.request = process.steps.send(answer)
        except StopIteration:
            process.alive = False
        except (PipelineError, TaskFailedError, ConfigError) as error:
            process.alive = False
            process.failed = error
            if process.owner is not None and isinstance(error, TaskFailedError):
                self._retry(process)
            elif process.owner is not None:
                process.owner.alive = False
                process.owner.failed = error
        if isinstance(process.request, WaitForTasks) and process.alive and not process.reports:
            for slot in range(SLOTS):
                self._launch(process, process.request, slot)

    def _retry(self, task: Process) -> None:
        owner = task.owner
        if owner is not None and owner.alive and isinstance(owner.request, WaitForTasks) and len(self.tasks) < 60:
            self._launch(owner, owner.request, task.slot)

    def _launch(self, driver: Process, job: WaitForTasks, slot: int) -> None:
        earlier = [task for task in self.tasks if task.owner is driver and task.slot == slot]
        attempt = len(earlier) if self.speculation else 0
        task = Process(self._task(driver, job, slot, attempt), driver, slot, attempt, former=driver.former)
        self.tasks.append(task)
        self._advance(task, None)

    def _driver(self, query: str, checkpoint: Checkpoint, first: int) -> Generator[Any, Any, None]:
        claim_it = former_sink.claim_sink if self.former else claim_sink
        for batch in range(first, self.batches):
            more = checkpoint.offsets.setdefault(batch, self.more)
            claim = yield from claim_it(SINK)
            process = next(p for p in self.drivers if inspect.getgeneratorstate(p.steps) == inspect.GEN_RUNNING)
            process.reports = {}
            reports = yield WaitForTasks(claim, BatchKey(query, batch), next(self.variants), more)
            if process.stopped:
                missing = {slot for slot, report in enumerate(reports) if report is None}
                yield from abort_unfinished(SINK, claim.driver, missing) if missing else abort_batch(reports)
                return
            try:
                plan = Plan(f"offsets {batch} with {more} more", TOPIC)
                yield from commit_batch(reports, {GROUP: {"in": {0: (batch + 1) * 10}}}, plan)
            except PipelineError:
                yield from abort_batch(reports)
                raise
            if batch in checkpoint.commits:
                return  # Spark: another query has written this batch to the commit log
            checkpoint.commits.add(batch)

    def _task(self, driver: Process, job: WaitForTasks, slot: int, attempt: int) -> Generator[Any, Any, None]:
        key = job.key
        rows = rows_of(key.batch, slot, job.variant, job.more, key.query)
        digest = ",".join(sorted(rows))
        what, marker = slot_task(job.claim, key, slot, TOPIC)
        handle: Handle | None = None
        staged: Staged | None = None
        if what is SlotTask.VERIFY:
            assert marker is not None
            check_same(job.claim, marker, len(rows), digest)
        elif what is SlotTask.WRITE and rows and self.whole:
            yield ReadLedger()  # it can be killed, or be slow
            staged = Staged(tuple(StagedBatch("t", 0, 1, row.encode()) for row in rows))
        elif what is SlotTask.WRITE and rows:
            name = (former_sink.slot_id if driver.former else slot_id)(SINK, slot, attempt)
            handle = yield InitProducer(name)
            assert handle is not None
            last = SlotMarker(key, slot, len(rows), digest)
            for request in (Produce(handle, rows[:1]), Produce(handle, rows[1:], last)):
                written = yield request
                if not written:
                    raise TaskFailedError
        if driver.request is job:
            report = SlotReport(job.claim, key, slot, what, len(rows), digest, handle, self.speculation, staged)
            driver.reports.setdefault(slot, report)

"""The steps of the main job, in order."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.common import PATIENCE_MS, admin_config, client_config
from ottla.cli.demo.access import Access, Names, acls, secure
from ottla.cli.demo.check import parse, read_output, reader
from ottla.cli.demo.expected import Expectation, Tally, places_of
from ottla.cli.demo.kills import Executioner, plan
from ottla.cli.demo.processes import (
    BrokerProcess,
    ManagedProcess,
    ProcessError,
    broker_command,
    ottla_command,
)
from ottla.cli.demo.progress import Progress, Steps
from ottla.cli.demo.report import Outcome
from ottla.cli.demo.transactions import Transactions, count_recovered, count_transactions, streamed_lines
from ottla.testing.ports import free_port

if TYPE_CHECKING:
    from ottla import Producer

#: Longer than Spark's start and every repeated request take on a busy machine.
_STANDSTILL_S = 400.0

#: Spark gives a new Python process of the driver ten seconds, and has no setting for it. Then the query ends, which may
#: be started again: that is no fault of it, but of a machine that does much else. So often it is believed.
_STARVED, _MOST_STARVED = "Python worker failed to connect back", 3

#: The system allows 107 bytes for a socket's path, and Spark's file name takes 42 of them.
_SOCKET_PATH_BYTES = 60


class Options(NamedTuple):
    """What the user has asked for."""

    seed: int
    semantics: str
    lines: list[str]
    partitions: int
    batches: int
    bootstrap: str | None
    broker_command: str | None
    port: int | None
    script: Path
    workdir: Path
    kill: bool
    keep: bool
    #: Whether the broker that is started asks who one is, over TLS, and gives each part just the rights that it needs.
    secure: bool = False
    #: How all parts reach a running broker.
    access: Access = Access()


class Demo:
    """One run. `workdir` holds the broker's data, the checkpoint and every process's output."""

    def __init__(self, options: Options, steps: Steps) -> None:
        self._options = options
        self._steps = steps
        self._data_dir = options.workdir / "data"
        self._checkpoint = options.workdir / "checkpoint"
        self._source, self._target = f"text-{options.seed}", f"words-{options.seed}"
        self._pipeline_log = options.workdir / "pipeline.log"
        self._kept_broker: BrokerProcess | None = None
        self._access = options.access

    def run(self) -> Outcome:
        """All steps. CommandError when a step cannot be done. The outcome says whether the output is right."""
        start = time.monotonic()
        options = self._options
        lines = options.lines
        with self._broker() as (bootstrap, broker):
            self._create_topics(bootstrap)
            places, produced_s = self._produce(bootstrap, lines)
            streamed_s, restarts, kills = self._stream(bootstrap, broker, len(lines))
            tally, aborted_records, checked_s = self._check(bootstrap, Expectation(places))
        ended = self._transactions()
        return Outcome(
            lines=len(lines),
            tally=tally,
            aborted_records=aborted_records,
            committed=ended.committed if ended else None,
            aborted=ended.aborted if ended else None,
            recovered=count_recovered(self._pipeline_log.read_text(errors="replace").splitlines()),
            micro_batches=streamed_lines(self._checkpoint)[0],
            kills=kills,
            restarts=restarts,
            produce_s=produced_s,
            stream_s=streamed_s,
            check_s=checked_s,
            total_s=time.monotonic() - start,
            reader=reader(self._access),
        )

    @contextmanager
    def _broker(self) -> Iterator[tuple[str, BrokerProcess | None]]:
        """Step 1: start a broker, unless the user has named one."""
        options = self._options
        if options.bootstrap is not None:
            yield options.bootstrap, None
            return
        port = options.port or free_port()
        if options.secure:
            self._access = secure(options.workdir / "secure", port)
        command = broker_command(options.broker_command, sys.executable, port, self._data_dir, self._access.broker)
        broker = BrokerProcess(command, port, options.workdir / "broker.log", self._access.tls())
        broker.start_and_wait()
        self._steps.say(f"broker on {broker.bootstrap}, process {broker.pid}")
        try:
            yield broker.bootstrap, broker
        except BaseException:
            broker.stop()
            raise
        if options.keep:
            self._kept_broker = broker
        else:
            broker.stop()

    def say_what_is_kept(self) -> None:
        """Say where broker and files are, and which commands show them."""
        self._steps.say(f"kept: {self._options.workdir}")
        if self._kept_broker is None:
            return
        address, ottla = self._kept_broker.bootstrap, ottla_command()
        if self._access.look is not None:
            ottla += f" --config {shlex.quote(str(self._access.look))}"
        self._steps.say(f"the broker stays on {address}; `kill {self._kept_broker.pid}` ends it; for a look round:")
        for command in (
            f"topics describe {self._source} {self._target}",
            f"consume {self._target} --until-end --max 5",
            f"groups describe {self._target}-wordcount",
            "transactions list",
        ):
            self._steps.say(f"  {ottla} {command} --bootstrap {address}")

    def _create_topics(self, bootstrap: str) -> None:
        from ottla import Admin
        from ottla.client.admin.types import NewTopic

        wanted = [NewTopic(name, self._options.partitions) for name in (self._source, self._target)]
        with Admin({**admin_config(bootstrap), **self._access.admin}) as admin:
            admin.create_topics(wanted)
            if self._options.secure:
                sink = f"{self._target}-wordcount"
                names = Names(self._source, self._target, group=sink, sink=sink)
                rights = acls(names, exactly_once=self._options.semantics == "exactly-once")
                admin.create_acls(rights)
                self._steps.say("all connections are TLS with SCRAM-SHA-512; this, and nothing else, is allowed:")
                for each in rights:
                    self._steps.say(f"  {each}")

    def _produce(self, bootstrap: str, lines: list[str]) -> tuple[dict[int, dict[int, str]], float]:
        """Step 2: every line, with an idempotent producer. Returns where each line went, and seconds."""
        from ottla import Producer

        start = time.monotonic()
        settings = client_config(
            bootstrap, max_block_ms=PATIENCE_MS, linger_ms=5, batch_size=65_536, enable_idempotence=True
        )
        with (
            Producer({**settings, **self._access.writer}) as producer,
            self._steps.bar("produce", len(lines)) as advance,
        ):
            positions = list(_send_all(producer, self._source, lines, advance))
        return places_of(lines, positions), time.monotonic() - start

    def _stream(self, bootstrap: str, broker: BrokerProcess | None, lines: int) -> tuple[float, int, int]:
        """Steps 3 and 4: the pipeline, the kills, and every restart. Returns seconds, restarts, kills carried out."""
        options = self._options
        exactly_once = options.semantics == "exactly-once"
        planned = plan(
            options.seed,
            options.batches,
            exactly_once=exactly_once,
            with_broker=broker is not None,
            slots=options.partitions,
        )
        pipeline = ManagedProcess("pipeline", self._pipeline_command(bootstrap, lines), self._pipeline_log)
        kills = Executioner(
            planned if options.kill else [], options.workdir / "faults", pipeline, broker, self._steps.say
        )
        start = time.monotonic()
        with ExitStack() as at_the_end:  # every callback runs, even if a second Ctrl-C interrupts the one before
            at_the_end.callback(kills.stop)
            at_the_end.callback(pipeline.stop)
            kills.start()
            with self._steps.bar("stream", lines) as advance:
                restarts = self._run_pipeline(pipeline, kills, advance)
                advance(lines)
        missed = [str(kill) for kill in kills.planned if kill not in kills.done]
        if missed:
            raise ProcessError(f"not every planned kill happened: {'; '.join(missed)}; see {options.workdir}")
        return time.monotonic() - start, restarts, len(kills.done)

    def _run_pipeline(self, pipeline: ManagedProcess, kills: Executioner, advance: Progress) -> int:
        """Run the pipeline to its end. Returns how often it was started again: after our kills, or as Spark starved."""
        starved = 0
        for restarts in count():
            begun, said_bytes = kills.begun, pipeline.said_bytes
            pipeline.start(kills.environment)
            ended = self._follow(pipeline, advance)
            if ended == 0:
                return restarts
            is_starved = pipeline.has_said(_STARVED, said_bytes)
            starved += is_starved
            if kills.begun == begun and not (is_starved and starved <= _MOST_STARVED):
                raise ProcessError(
                    f"the pipeline ended with {_ending(ended)}, and nobody had killed it:\n{pipeline.tail()}\n"
                    f"All that it said is in {self._pipeline_log}"
                )
            self._steps.say(f"the pipeline has ended ({_ending(ended)}); it is started again")
        raise AssertionError("count() has no end")

    def _pipeline_command(self, bootstrap: str, lines: int) -> list[str]:
        options = self._options
        per_batch = max(1, lines // options.batches)
        return [
            *(
                sys.executable,
                "-m",
                "ottla",
                "run",
                "--master",
                "local[2,4]",
                *self._temporary_files(),
                str(options.script),
            ),
            *("--bootstrap", bootstrap, "--input", self._source, "--output", self._target),
            *("--checkpoint", str(self._checkpoint), "--semantics", options.semantics),
            *("--max-offsets-per-trigger", str(per_batch), "--available-now"),
            *(("--config", str(self._access.pipeline)) if self._access.pipeline is not None else ()),
        ]

    def _temporary_files(self) -> list[str]:
        """Settings that keep in the demo's own directory what a killed driver leaves behind."""
        place = self._options.workdir / "spark"
        place.mkdir(exist_ok=True)
        settings = {"spark.local.dir": place, "spark.driver.extraJavaOptions": f'-Djava.io.tmpdir="{place}"'}
        if len(os.fsencode(place)) > _SOCKET_PATH_BYTES:
            settings["spark.python.unix.domain.socket.dir"] = tempfile.gettempdir()
        return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]

    def _follow(self, pipeline: ManagedProcess, advance: Progress) -> int:
        """Show the pipeline's progress until it ends. Returns its exit code. CommandError when it stands still."""
        reached, since = -1, time.monotonic()
        while (ended := pipeline.wait(0.2)) is None:
            lines = streamed_lines(self._checkpoint)[1]
            advance(lines)
            if lines > reached:
                reached, since = lines, time.monotonic()
            elif time.monotonic() - since > _STANDSTILL_S:
                raise ProcessError(f"the pipeline did nothing for {_STANDSTILL_S:.0f} s:\n{pipeline.tail()}")
        return ended

    def _check(self, bootstrap: str, expectation: Expectation) -> tuple[Tally, int, float]:
        """Step 5: the foreign consumer reads the output twice: committed records, then all, to count the aborted."""
        start = time.monotonic()
        if self._access.is_foreign and reader(self._access) == "ottla":
            self._steps.say(
                "confluent-kafka is not there, so Ottla's own consumer reads the output; "
                "`pip install 'ottla[demo]'` adds the foreign one"
            )
        with self._steps.bar("check", expectation.expected) as advance:
            total = 0

            def progress(count: int) -> None:
                nonlocal total
                total += count
                advance(total)

            committed = read_output(
                bootstrap,
                self._target,
                self._access,
                committed_only=True,
                take=lambda value: expectation.take(parse(value)),
                progress=progress,
            )
        seconds = time.monotonic() - start
        every = read_output(
            bootstrap,
            self._target,
            self._access,
            committed_only=False,
            take=lambda _value: None,
            progress=lambda _count: None,
        )
        return expectation.tally(), every.records - committed.records, seconds

    def _transactions(self) -> Transactions | None:
        """Transactions, counted in the broker's files; None if the broker is not ours to look into."""
        return count_transactions(self._data_dir, self._target) if self._data_dir.is_dir() else None


def _send_all(producer: Producer, topic: str, lines: list[str], advance: Progress) -> Iterator[tuple[int, int]]:
    """Send every line; then (partition, offset) of each as the broker acknowledged it."""
    sent = []
    for n, line in enumerate(lines, 1):
        sent.append(producer.send(topic, line.encode()))
        if n % 1000 == 0:
            advance(n)
    producer.flush()
    advance(len(lines))
    for delivery in sent:
        metadata = delivery.result()
        yield metadata.partition, metadata.offset


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"

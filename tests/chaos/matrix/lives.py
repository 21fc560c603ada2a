"""The programs of the crash matrix, and their lives: of ours, of confluent-kafka, and Apache Kafka's own tools."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.matrix.programs import CRASHED, GROUP, SINK, SOURCE
from tests.interop.apache import start_tool

_WAIT_S = 60.0


class Lives:
    """A program, and all its lives."""

    def __init__(self, program: str, bootstrap: str, name: str, folder: Path) -> None:
        self.name = name
        self._program, self._bootstrap = program, bootstrap
        self.journal = folder / f"{name}.journal"
        self.journal.touch()
        self.lives = 0
        self.start()

    def start(self) -> None:
        """The next life."""
        self.lives += 1
        self._process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        program = [sys.executable, "-X", "faulthandler", "-m", "tests.chaos.matrix.programs", self._program]
        command = [*program, self._bootstrap, self.name, str(self.lives), str(self.journal)]
        return subprocess.Popen(command, text=True)

    def kill(self) -> None:
        """kill -9, and a new life."""
        self._process.kill()
        self._process.wait()
        self.start()

    def go_on(self) -> None:
        """A new life if this one has crashed. Any other end of it is a fault."""
        code = self._process.poll()
        if code is not None:
            assert code == CRASHED, f"{self.name}, life {self.lives}, ended with exit code {code}"
            self.start()

    def finish(self) -> None:
        """Let it end by itself; after a crash the next life shall."""
        self._process.send_signal(signal.SIGTERM)
        while self._ended() == CRASHED:
            self.start()
            self._process.send_signal(signal.SIGTERM)
        assert self._process.returncode in (0, -signal.SIGTERM), f"{self.name}: {self._process.returncode}"

    def _ended(self) -> int:
        try:
            return self._process.wait(_WAIT_S)
        except subprocess.TimeoutExpired:
            self.say_where()
            return self._process.returncode

    def say_where(self) -> None:
        """It prints where each of its threads stands, and ends."""
        self._process.send_signal(signal.SIGABRT)
        self._process.wait()

    def end(self) -> None:
        """It is gone, whatever it was doing."""
        self._process.kill()
        self._process.wait()

    def told(self) -> list[tuple[str, str]]:
        """What the program was told, as (what, of what)."""
        lines = self.journal.read_text().splitlines()
        return [(what, of_what) for what, _, of_what in (line.partition(" ") for line in lines)]


class JavaLives(Lives):
    """A tool of Apache Kafka's. What it prints is its journal."""

    def _started(self) -> subprocess.Popen[str]:
        process = start_tool(self._program, *self._arguments())
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _arguments(self) -> Sequence[str]:
        raise NotImplementedError

    def _note(self, event: dict[str, object]) -> str | None:
        raise NotImplementedError

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with self.journal.open("a", buffering=1) as journal:
            for line in process.stdout:
                if line.startswith("{") and line.endswith("}\n") and (noted := self._note(json.loads(line))):
                    journal.write(f"{noted}\n")

    def go_on(self) -> None:
        """A new life if it has ended: the copier ends at the end of what was there when it started."""
        if self._process.poll() is not None:
            self.start()

    def finish(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_WAIT_S)


class VerifiableProducer(JavaLives):
    """An idempotent producer; its values are `LIFE.NUMBER`."""

    def _arguments(self) -> Sequence[str]:
        where = ("--bootstrap-server", self._bootstrap, "--topic", SINK)
        return (*where, "--acks", "-1", "--throughput", "5000", "--value-prefix", str(self.lives))

    def _note(self, event: dict[str, object]) -> str | None:
        return f"acked {event['value']}" if event["name"] == "producer_send_success" else None


class TransactionalMessageCopier(JavaLives):
    """Copies one partition in transactions. Its name is `java-PARTITION`."""

    def _arguments(self) -> Sequence[str]:
        where = ("--broker-list", self._bootstrap, "--input-topic", SOURCE, "--output-topic", SINK)
        ids = ("--transactional-id", self.name, "--consumer-group", GROUP)
        how = ("--transaction-size", "100", "--enable-random-aborts", "--use-group-metadata")
        return (*where, "--input-partition", self.name.rpartition("-")[2], *ids, *how)

    def _note(self, event: dict[str, object]) -> str | None:
        return f"copied {event['consumed']}" if "consumed" in event else None

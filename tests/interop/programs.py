"""Apache Kafka's large programs in JVMs that a test kills: Kafka Streams, Kafka Connect, MirrorMaker 2.

with Program(tmp_path / "worker.log", "org.apache.kafka.connect.cli.ConnectDistributed", properties) as worker:
    worker.await_line("Kafka Connect started")
    worker.kill()
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.interop import apache

#: It ends a hang: several JVMs that start at once on a busy machine need a minute.
_WAIT_S = 240.0


class Program:
    """A JVM with the jars of these programs, and the lines that it prints; `log` keeps them, behind those before it."""

    def __init__(self, log: Path, main_class: str, *arguments: str, classes: Path | None = None) -> None:
        flags = ["-Xmx320M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        path = f"{apache.program_jars()}/*" + (f":{classes}" if classes else "")
        command = [apache.java(), *flags, "-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-cp", path, main_class]
        self._process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._log = log
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._has_ended = False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._log.open("a") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                with self._changed:
                    self._lines.append(line.rstrip())
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def await_line(self, text: str) -> str:
        """Wait for a line that has the text in it, if none has been there yet. Returns the first of them."""

        def found() -> str | None:
            return next((line for line in self._lines if text in line), None)

        with self._changed:
            self._changed.wait_for(lambda: found() or self._has_ended, _WAIT_S)
            line = found()
            assert line is not None, f"{text!r} was not said:\n" + "\n".join(self._lines[-30:])
            return line

    def lines(self) -> list[str]:
        """All that it has said."""
        with self._changed:
            return list(self._lines)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Ask until it is so, ten times a second, while the program runs."""
        deadline = time.monotonic() + _WAIT_S
        while time.monotonic() < deadline:
            if is_so():
                return
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
                raise AssertionError("it has ended:\n" + "\n".join(self.lines()[-30:]))
        raise AssertionError("it did not come to that:\n" + "\n".join(self.lines()[-30:]))

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._join()

    def close(self) -> None:
        """SIGTERM, as an operator would; wait until it is gone."""
        self._process.terminate()
        self._join()

    def _join(self) -> None:
        try:
            self._process.wait(_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(_WAIT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def committed(bootstrap: str, topic: str, partitions: int, *, least: int) -> list[Message]:
    """What is committed in a topic, once it is `least` records, up to the end that it has then."""
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[Message] = []
    at_end: set[int] = set()
    while len(found) < least or len(at_end) < partitions:
        message = consumer.poll(_WAIT_S)
        assert message is not None, f"{topic} has {len(found)} records, not {least}"
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
        else:
            at_end.discard(message.partition())
            found.append(message)
    consumer.close()
    return found

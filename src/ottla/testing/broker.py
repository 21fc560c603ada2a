"""A real broker for a test, in a process of its own. It starts in a fraction of a second and leaves nothing behind."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

from ottla.base.errors import OttlaError
from ottla.client.admin.types import GroupDescription
from ottla.client.blocking.loop_thread import LoopThread
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.testing import handy
from ottla.testing.arguments import seconds, whole
from ottla.testing.clock import DONE, BrokerClock
from ottla.testing.ports import free_port
from ottla.testing.slow_disk import checked_s

if TYPE_CHECKING:
    from ottla.testing.faults import Faults

T = TypeVar("T")

#: Settings that suit tests. The argument `config` overrides each.
TEST_DEFAULTS: Final[Mapping[str, str]] = {
    # A group in a test has all its members at once.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    # Members of consumer groups hear of a change twice a second, and each change is acted upon at once.
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    # 50 partitions each would be a hundred directories that no test needs.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # A test's records may have any timestamp. Retention must not delete records of 1970 in the middle of a test.
    "log.retention.hours": "-1",
}
_MOST_PORT: Final = 65_535
_READY: Final = "ottla ready "


class BrokerError(OttlaError):
    """The broker did not start, or has died. The message holds the broker's output."""


class Broker:
    """A broker in a subprocess: `with Broker() as broker: ... broker.bootstrap_servers`.

    `config` are Kafka's broker keys. `data_dir` is kept when given, else a temporary directory is made and removed.
    `port` 0 means any free one; a restart keeps the port. `kill` is kill -9; `restart` starts again on the same data.
    With `faults` clients reach it through them (`ottla.testing.Faults`). They belong to this broker until `close`.
    With `listeners` in `config` it listens there, and not on `port`; `bootstrap_servers` is the first of them, and
    `faults` cannot stand before them. TypeError and ValueError for a port, or a time, that cannot be.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        start_timeout_s: float = 30.0,
        faults: "Faults | None" = None,
    ) -> None:
        if whole("port", port, 0, "is 0 for any free one, or its number") > _MOST_PORT:
            raise ValueError(f"port is at most {_MOST_PORT}; it cannot be {port}")
        seconds("start_timeout_s", start_timeout_s)
        self._config = {**TEST_DEFAULTS, **{key: str(value) for key, value in (config or {}).items()}}
        self._temporary = tempfile.TemporaryDirectory(prefix="ottla-") if data_dir is None else None
        self.data_dir = Path(self._temporary.name if self._temporary is not None else data_dir or "")
        self.host = "127.0.0.1"
        self.port = port
        #: Where the process listens: `port` itself, unless faults stand before it.
        self._own_port = port
        self._bound: dict[str, str] = {}
        self.faults = faults
        self._start_timeout_s = start_timeout_s
        self._is_behind_faults = False
        self._skipped_ms, self._delay_s = 0, 0.0
        #: Its time: `broker.clock.advance(60_000)`.
        self.clock = BrokerClock(self._advance)
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to: `127.0.0.1:port`."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The broker's process id while it runs."""
        return None if self._process is None else self._process.pid

    def listener(self, name: str) -> str:
        """Where the listener of this name listens, `127.0.0.1:port`, when `config` has several. KeyError for others.

        A port 0 in `listeners` is another one after each start.
        """
        return self._bound[name]

    def start(self) -> "Broker":
        """Start; returns when the broker answers. BrokerError when it does not."""
        if self._process is not None:
            raise BrokerError("the broker runs already")
        if self.faults is not None and "listeners" in self._config:
            raise BrokerError("faults stand before one port of plain text: leave listeners out of the configuration")
        command = [*self._program(), "--data-dir", str(self.data_dir)]
        told = self._told_to_clients()
        if "listeners" not in self._config:
            # The broker's own choice would be a port that somebody's connection may take while it is down.
            command += ["--host", self.host, "--port", str(self._own_port or free_port())]
        for key, value in {**self._config, **told}.items():
            command += ["-o", f"{key}={value}"]
        self._stderr = _log_file()  # read and closed in `_read_stderr`
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, env=environment
        )
        line = self._first_line(self._process)
        if not line.startswith(_READY):
            self.kill()
            raise BrokerError(f"the broker did not start: {self._said or line or 'it said nothing'}")
        first, *named = line.removeprefix(_READY).split()
        self._own_port = int(first.rpartition(":")[2])
        self._bound = dict(each.split("://", 1) for each in named)
        if self.faults is None:
            self.port = self._own_port
        else:
            self.faults.connect(self.host, self._own_port)
        return self

    def _program(self) -> Sequence[str]:
        """The command, without the options of `ottla serve`."""
        return (sys.executable, "-m", "ottla.testing.process", str(self._skipped_ms), str(self._delay_s))

    def _told_to_clients(self) -> dict[str, str]:
        """Where clients shall connect, if that is not where the process listens."""
        if self.faults is None:
            return {}
        if not self._is_behind_faults:
            self.port, self._own_port = self.faults.listen(self.host, self.port or free_port()), 0
            self._is_behind_faults = True
        return {"advertised.listeners": f"PLAINTEXT://{self.host}:{self.port}"}

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop in order (SIGTERM), as an operator would; no-op when it does not run."""
        self._end(signal.SIGTERM, seconds("timeout_s", timeout_s))

    def kill(self) -> None:
        """Stop at once (SIGKILL), as a crash would; no-op when it does not run."""
        self._end(signal.SIGKILL, 30.0)

    def restart(self) -> "Broker":
        """Start again on the same data and port, after `kill` or `stop` if it still runs."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Kill the broker and remove its directory, if it is a temporary one."""
        try:
            if self._temporary is not None:
                self.kill()
                self._temporary.cleanup()
            else:
                self.stop()
        finally:
            if self.faults is not None:
                self.faults.close()
                self._is_behind_faults = False

    def create_topics(self, *names: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make topics, with these topic configs. TopicAlreadyExistsError, and other errors of `Admin.create_topics`."""
        self._ask(handy.create_topics(self.bootstrap_servers, names, partitions, config))

    def records(self, topic: str, *, read_committed: bool = False, timeout_s: float = 30.0) -> list[ConsumerRecord]:
        """Everything that the topic holds now, by partition and offset, as bytes; see `isolation.level`.

        Raises UnknownTopicOrPartitionError; TimeoutError when it was not read to its end in time.
        """
        asked = handy.records(self.bootstrap_servers, topic, read_committed=read_committed, timeout_s=timeout_s)
        return self._ask(asked)

    def wait_for_group(self, group_id: str, *, members: int | None = None, timeout_s: float = 30.0) -> GroupDescription:
        """Wait until the group is stable, with so many members if that is said. TimeoutError says how it is instead."""
        return self._ask(handy.stable_group(self.bootstrap_servers, group_id, members, timeout_s))

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        if self._process is None:
            question.close()
            raise BrokerError("the broker does not run: start it, and ask it then")
        thread = LoopThread("ottla-testing")
        try:
            return thread.run(question)
        finally:
            thread.stop()

    def slow_disk(self, delay_s: float) -> None:
        """From now on each write to a log, and each sync of it, takes `delay_s` seconds longer; 0: as long as it takes.

        A restart does not change it. ValueError for a number that cannot be; BrokerError when the broker does not run.
        """
        self._govern(f"slow {checked_s(delay_s)}")
        self._delay_s = delay_s

    def _advance(self, delta_ms: int) -> None:
        self._govern(f"advance {delta_ms}")
        self._skipped_ms += delta_ms

    def _govern(self, order: str) -> None:
        if self._process is None or self._process.stdin is None:
            raise BrokerError("the broker does not run: neither its time nor its disk can be changed")
        try:
            self._process.stdin.write(f"{order}\n".encode())
            self._process.stdin.flush()
            answer = self._first_line(self._process)
        except BrokenPipeError:
            answer = ""
        if answer != DONE:
            self.kill()
            raise BrokerError(f"the broker has died: {self._said or answer or 'it said nothing'}")

    def __enter__(self) -> "Broker":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _first_line(self, process: subprocess.Popen[bytes]) -> str:
        """The first line of the process's output, or less when it ended or the time was over before."""
        assert process.stdout is not None
        descriptor, deadline, said = process.stdout.fileno(), time.monotonic() + self._start_timeout_s, b""
        while b"\n" not in said:
            ready, _, _ = select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))
            chunk = os.read(descriptor, 4096) if ready else b""
            if not chunk:
                break
            said += chunk
        return said.decode(errors="replace").strip()

    def _end(self, number: signal.Signals, timeout_s: float) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process = None
        self._said = self._read_stderr()

    _said = ""

    def _read_stderr(self) -> str:
        if self._stderr is None:
            return ""
        self._stderr.seek(0)
        said = self._stderr.read().decode(errors="replace").strip()
        self._stderr.close()
        self._stderr = None
        return said


def _log_file() -> IO[bytes]:
    """Where a broker writes its log: a file that is gone with it, or one that stays in `$OTTLA_BROKER_LOGS`."""
    kept = os.environ.get("OTTLA_BROKER_LOGS")
    if kept is None:
        return tempfile.TemporaryFile()
    return tempfile.NamedTemporaryFile(prefix="broker-", suffix=".log", dir=kept, delete=False)

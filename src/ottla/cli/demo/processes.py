"""The broker and the pipeline as processes of their own, which can be killed with SIGKILL and started again."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from ottla.cli.common import CommandError
from ottla.cli.signals import interrupts

#: It ends a hang: Apache Kafka takes ten seconds, and several times as long beside a Spark that starts.
_READY_TIMEOUT_S = 240.0
#: Between two looks whether it is ready: a start takes 150 ms.
_LOOK_S = 0.01
_STOP_TIMEOUT_S = 20.0
#: ApiVersions v0: any Kafka broker answers it on a fresh connection.
_PROBE = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class ProcessError(CommandError):
    """A process of the demo failed. Its log says more, so the log is kept."""


class ManagedProcess:
    """A command with its output in a file, in a session of its own so that one signal reaches all its children."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._command = list(command)
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id. CommandError when it was not started."""
        if self._process is None:
            raise CommandError(f"the {self.name} is not running")
        return self._process.pid

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Start the command; `environment` is added for this run alone."""
        # A signal between the start and the assignment would leave a process that nobody ends.
        with interrupts.held(), self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self._environment, **(environment or {})},
                start_new_session=True,
            )

    def wait(self, timeout_s: float) -> int | None:
        """The exit code (negative: the signal that ended it), or None when it still runs after `timeout_s`."""
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def kill9(self) -> None:
        """SIGKILL to the process and all its children; returns when it is gone."""
        process = self._process  # another thread may start the next process as soon as this one is gone
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> None:
        """Ask the process to end, and kill it if it does not. No-op when it does not run."""
        if self._process is None:
            return
        try:
            if self._process.poll() is None:
                self._process.terminate()
                self.wait(_STOP_TIMEOUT_S)
        finally:  # also when a second Ctrl-C ends the wait
            self.kill9()  # and with it what is left of its children

    @property
    def said_bytes(self) -> int:
        """How long its output is by now, that of earlier runs included."""
        return self._log.stat().st_size if self._log.exists() else 0

    def has_said(self, text: str, since: int) -> bool:
        """Whether its output has the text, behind the first `since` bytes."""
        return self._log.exists() and text.encode() in self._log.read_bytes()[since:]

    def tail(self, lines: int = 25) -> str:
        """The last lines of its output."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


class BrokerProcess(ManagedProcess):
    """A broker on a fixed port of 127.0.0.1: ours, or any other that a command line starts."""

    def __init__(self, command: Sequence[str], port: int, log: Path, tls: ssl.SSLContext | None = None) -> None:
        super().__init__("broker", command, log)
        self.port = port
        self._tls = tls

    @property
    def bootstrap(self) -> str:
        """`host:port` for `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def start_and_wait(self, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Start, and return when it answers ApiVersions, or when the wait is `cancelled`.

        CommandError when its port is taken, ProcessError with its output when it does not answer.
        """
        if answers(self.port, self._tls):
            raise CommandError(f"port {self.port} is in use by another broker; choose another with --port")
        self.start()
        try:
            self._wait_until_ready(cancelled)
        except BaseException:  # Ctrl-C, too
            self.stop()
            raise

    def _wait_until_ready(self, cancelled: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not answers(self.port, self._tls):
            ended = self.wait(_LOOK_S)
            if ended is not None:
                raise ProcessError(f"the broker ended with {ended} before it was ready:\n{self.tail()}")
            if cancelled():
                return
            if time.monotonic() > deadline:
                raise ProcessError(f"the broker was not ready after {_READY_TIMEOUT_S:.0f} s:\n{self.tail()}")
        ended = self.wait(0)
        if ended is not None:
            raise ProcessError(f"the broker ended with {ended}; another one answers on its port:\n{self.tail()}")


def broker_command(
    template: str | None, python: str, port: int, data_dir: Path, options: Sequence[str] = ()
) -> list[str]:
    """The command line of the broker: `template` with {port} and {data_dir} filled in, or our own `ottla serve`.

    `options` of our own say where it listens; without any it is `port`.
    """
    if template is None:
        where = options or ("--port", str(port))
        return [python, "-m", "ottla", "serve", *where, "--data-dir", str(data_dir)]
    try:
        return [word.format(port=port, data_dir=data_dir) for word in shlex.split(template)]
    except (ValueError, KeyError, IndexError) as fault:
        raise CommandError(f"--broker-command: {fault}; known places are {{port}} and {{data_dir}}") from None


def ottla_command() -> str:
    """How a person types `ottla` here: the command if it is on the PATH, else this Python with `-m ottla`."""
    found = shutil.which("ottla")
    ours = found is not None and Path(found).parent == Path(sys.executable).parent
    return "ottla" if ours else f"{shlex.quote(sys.executable)} -m ottla"


def answers(port: int, tls: ssl.SSLContext | None = None) -> bool:
    """Whether a broker on 127.0.0.1:`port` answers ApiVersions: in plain text, or inside TLS."""
    try:
        with ExitStack() as connections:
            connection = connections.enter_context(socket.create_connection(("127.0.0.1", port), timeout=1.0))
            if tls is not None:
                connection = connections.enter_context(tls.wrap_socket(connection, server_hostname="127.0.0.1"))
            connection.sendall(_PROBE)
            return len(connection.recv(4)) > 0
    except OSError:
        return False

"""A standalone Spark cluster of a test's own: a master and two workers from PySpark's jars, all on this machine.

The workers have addresses of their own, as Spark puts no second attempt at a task on the host of the first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pyspark

from ottla.testing.ports import free_port
from tests.spark.sessions import kill_session

_READY_S = 120.0
_HOSTS = ("127.0.0.2", "127.0.0.3")
_CLASSES = "org.apache.spark.deploy"
#: They live for minutes, on a machine with two cores.
_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.master.rest.enabled=false"


class SparkCluster:
    """Started by `with`; one executor with one core on each worker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def master(self) -> str:
        """What `ottla run --master` takes."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> SparkCluster:
        self._folder.mkdir()
        try:
            self._start_all()
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill_all()

    def _start_all(self) -> None:
        arguments = ("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0")
        self._start("master", f"{_CLASSES}.master.Master", *arguments)
        self._wait_for("master", "I have been elected leader")
        for host in _HOSTS:
            self._start_worker(host)
        for host in _HOSTS:
            self._wait_for_worker(host)

    def _kill_all(self) -> None:
        for name in list(self._processes):
            self._kill(name)

    def start_worker(self, host: str) -> None:
        """Start the worker of this host again; returns when the master knows it."""
        self._start_worker(host)
        self._wait_for_worker(host)

    def _start_worker(self, host: str) -> None:
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / host))
        self._start(host, f"{_CLASSES}.worker.Worker", "--host", host, "--webui-port", "0", *size, self.master)

    def _wait_for_worker(self, host: str) -> None:
        self._wait_for(host, "Successfully registered with master")

    def kill_worker(self, host: str) -> None:
        """SIGKILL to the worker of this host, its executors and their Python workers: the machine is gone."""
        self._kill(host)

    def host_of(self, pid: int) -> str:
        """The host of a process that a worker has started."""
        session = os.getsid(pid)
        return next(host for host, process in self._processes.items() if process.pid == session)

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        kill_session(process.pid)
        process.wait()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _start(self, name: str, main_class: str, *arguments: str) -> None:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        env = {**os.environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _FLAGS}
        env |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1" if name == "master" else name}
        with self._log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [program, main_class, *arguments], env=env, stdout=log, stderr=log, start_new_session=True
            )

    def _wait_for(self, name: str, text: str) -> None:
        for _ in range(int(_READY_S * 10)):
            log = self._log(name).read_text(errors="replace")
            if text in log:
                return
            with suppress(subprocess.TimeoutExpired):
                code = self._processes[name].wait(0.1)
                raise AssertionError(f"{name} ended with {code}:\n{log[-3000:]}")
        raise AssertionError(f"{name} has not said {text!r} within {_READY_S:.0f} s:\n{log[-3000:]}")

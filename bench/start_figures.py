"""How long a person waits: for a command's help, its first byte, the import of the client, and a broker's first answer.

The peer of the commands is Apache Kafka's own (`kafka-topics`), that of the client is confluent-kafka. Each is a new
process; the system has its files in memory. A figure is the best of several.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.figure import MILLISECONDS, Measure, Unit, Values
from bench.peers import OttlaPeer
from tests.interop.apache import ApacheKafka, start_tool

NOTE = (
    "The best of several starts, in milliseconds. Aims: help 200, a command's first byte 300, import 30, the broker "
    "ready 150. The broker begins on a directory that it has made before, and is ready when it answers ApiVersions."
)
_TIMES, _STARTS = 7, 3
_TOPICS = "org.apache.kafka.tools.TopicCommand"
_IMPORT = "import time; begin = time.perf_counter(); import {}; print((time.perf_counter() - begin) * 1e3)"


def _best(measure: Callable[[], float], times: int = _TIMES) -> float:
    return min(measure() for _ in range(times))


def _until(process: subprocess.Popen[str], *, first_byte: bool) -> float:
    """Milliseconds from now until the process has said something, or all."""
    begin = time.perf_counter()
    with process:
        assert process.stdout is not None
        said = process.stdout.read(1)
        at_first = time.perf_counter()
        said += process.stdout.read()
    if not said:
        raise RuntimeError(f"{process.args!r} has said nothing")
    return ((at_first if first_byte else time.perf_counter()) - begin) * 1e3


def _ottla(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ottla", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _imported(module: str) -> float:
    command: Sequence[str] = [sys.executable, "-c", _IMPORT.format(module)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _ready(peer: OttlaPeer | ApacheKafka) -> float:
    peer.kill9()
    begin = time.perf_counter()
    peer.restart()
    return (time.perf_counter() - begin) * 1e3


def ottla(_bootstrap: str, _scale: float) -> Values:
    """Ours."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        broker = OttlaPeer(Path(directory) / "ottla", {})
        broker.start_and_wait()
        try:
            address = ("--bootstrap-server", broker.bootstrap)
            found = {
                "help": _best(lambda: _until(_ottla("--help"), first_byte=False)),
                "help of a command": _best(lambda: _until(_ottla("topics", "--help"), first_byte=False)),
                "a command's first byte": _best(lambda: _until(_ottla("topics", "list", *address), first_byte=True)),
                "import of the client": _best(lambda: _imported("ottla")),
            }
            return found | {"broker ready after kill -9": _best(lambda: _ready(broker), _STARTS)}
        finally:
            broker.stop()


def apache(_bootstrap: str, _scale: float) -> Values:
    """Apache Kafka's commands and broker, and confluent-kafka's import."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory, ApacheKafka(Path(directory)) as broker:
        asked = ("--bootstrap-server", broker.bootstrap, "--list")
        found = {
            "help of a command": _best(lambda: _until(start_tool(_TOPICS, "--help"), first_byte=False)),
            "a command's first byte": _best(lambda: _until(start_tool(_TOPICS, *asked), first_byte=True)),
            "import of the client": _best(lambda: _imported("confluent_kafka")),
        }
        return found | {"broker ready after kill -9": _best(lambda: _ready(broker), _STARTS)}


FIGURES: dict[str, Measure] = {"ottla": ottla, "Apache Kafka": apache}


def unit_of(_name: str) -> Unit:
    """The unit of a value of this module."""
    return MILLISECONDS

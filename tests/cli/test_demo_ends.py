"""However the demo ends, nothing of it is left: no process, and no directory but one that somebody wants to look at."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.testing import Broker
from tests.cli.processes import Notes, line_with, ottla_process
from tests.interop.apache import in_ci

#: What stands in for a broker: says who it is, and that it was asked to end, which it does not do.
_STUBBORN = """
import os, signal, sys
def say(text):
    with open(sys.argv[1], "w") as notes:
        notes.write(text)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
say(str(os.getpid()))
while True:
    signal.sigwait({signal.SIGTERM})
    say("asked")
"""
#: What stands in for a pipeline: says who it is, and waits.
_PIPELINE = """
import os, signal
with open({notes!r}, "w") as notes:
    notes.write(str(os.getpid()))
signal.pause()
"""

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None and not in_ci(), reason="the demo needs Java 17 or newer: `java` is not on the PATH"
)


def _demo(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "demo", "--lines", "1000", *arguments]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def _left(tmp_path: Path) -> list[str]:
    return sorted(each.name for each in tmp_path.glob("ottla-demo-*"))


def _runs(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Notes]:
    """What the processes that stand in for the demo's say."""
    notes = Notes(tmp_path / "notes")
    yield notes
    notes.close()


@pytest.fixture
def stubborn(tmp_path: Path, notes: Notes) -> str:
    """The command line of a broker that never answers."""
    script = tmp_path / "stubborn.py"
    script.write_text(_STUBBORN)
    return f"{sys.executable} {script} {notes.path}"


@pytest.fixture
def waiting(tmp_path: Path, notes: Notes) -> str:
    """A pipeline that only waits."""
    script = tmp_path / "waiting.py"
    script.write_text(_PIPELINE.format(notes=str(notes.path)))
    return str(script)


def test_java_is_that_of_java_home_as_for_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    assert main(["demo", "--input", ""]) == 1
    assert "Spark needs Java 17 or newer" in capfd.readouterr().err
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert main(["demo", "--input", ""]) == 1
    assert "--input is empty" in capfd.readouterr().err
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "other"))
    assert main(["demo", "--input", ""]) == 1
    assert f"JAVA_HOME={tmp_path / 'other'} has no bin/java" in capfd.readouterr().err


@pytest.mark.parametrize("port", ["99999", "0", "-1"])
def test_a_port_that_is_none_is_a_wrong_command_line(tmp_path: Path, port: str) -> None:
    done = _demo(tmp_path, "--port", port)
    assert (done.returncode, "--port" in done.stderr) == (2, True)
    assert _left(tmp_path) == []


def test_a_script_that_is_not_there_is_told_before_anything_is_started(tmp_path: Path) -> None:
    done = _demo(tmp_path, "--script", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"ottla: {tmp_path} is not a file; name a Python file, for example examples/wordcount.py\n"
    assert _left(tmp_path) == []


def test_a_port_that_another_broker_has_is_named(tmp_path: Path, ottla_broker: Broker) -> None:
    done = _demo(tmp_path, "--port", str(ottla_broker.port))
    assert done.returncode == 1
    assert f"port {ottla_broker.port} is in use by another broker; choose another with --port" in done.stderr
    assert _left(tmp_path) == []


def test_a_port_that_somebody_else_has_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = _demo(tmp_path, "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "Address already in use" in done.stderr or "address already in use" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_the_brokers_start_leaves_nothing(
    tmp_path: Path, stubborn: str, notes: Notes, number: signal.Signals
) -> None:
    with ottla_process("demo", "--broker-command", stubborn, environment={"TMPDIR": str(tmp_path)}) as demo:
        broker = notes.next()
        demo.send_signal(number)
        assert notes.next() == "asked"
        demo.send_signal(number)  # again: it is not to be waited for
        out, err = demo.communicate(timeout=60)
    assert (demo.returncode, out) == (128 + number, "")
    assert "Traceback" not in err
    assert not _runs(broker)
    assert _left(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_pipeline_runs_leaves_nothing(
    tmp_path: Path, waiting: str, notes: Notes, number: signal.Signals
) -> None:
    with ottla_process("demo", "--script", waiting, "--lines", "1000", environment={"TMPDIR": str(tmp_path)}) as demo:
        broker = line_with(demo.stderr, "broker on").rpartition(" ")[2]
        pipeline = notes.next()
        demo.send_signal(number)
        _out, err = demo.communicate(timeout=60)
    assert demo.returncode == 128 + number
    assert "Traceback" not in err
    assert (_runs(pipeline), _runs(broker)) == (False, False)
    assert _left(tmp_path) == []


def test_keep_keeps_the_files_of_a_demo_that_was_interrupted_twice(tmp_path: Path, stubborn: str, notes: Notes) -> None:
    with ottla_process("demo", "--keep", "--broker-command", stubborn, environment={"TMPDIR": str(tmp_path)}) as demo:
        broker = notes.next()
        demo.send_signal(signal.SIGINT)
        assert notes.next() == "asked"
        demo.send_signal(signal.SIGINT)
        _out, err = demo.communicate(timeout=60)
    (directory,) = _left(tmp_path)
    assert directory in err.splitlines()[-1]
    assert not _runs(broker)


def test_a_pipeline_that_cannot_start_is_started_once_and_its_error_shown(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit('no such column: wrod')\n")
    done = _demo(tmp_path, "--script", str(script))
    assert done.returncode == 1
    assert "exit code 1, and nobody had killed it:\nno such column: wrod\n" in done.stderr
    assert "started again" not in done.stderr
    (directory,) = _left(tmp_path)
    log = tmp_path / directory / "pipeline.log"
    assert f"All that it said is in {log}" in done.stderr
    assert log.read_text().count("no such column") == 1


_STARVED = """
import pathlib, sys
begun = pathlib.Path({begun!r})
begun.write_text(begun.read_text() + "x" if begun.exists() else "x")
sys.exit("Python worker failed to connect back" if len(begun.read_text()) <= {times} else "no such column: wrod")
"""


@pytest.mark.parametrize(("times", "starts"), [(1, 2), (99, 4)])
def test_a_pipeline_whose_spark_was_starved_is_started_again_a_few_times(
    tmp_path: Path, times: int, starts: int
) -> None:
    """Spark gives a new Python process ten seconds. What such a pipeline does next shows whether it is at fault."""
    script, begun = tmp_path / "starved.py", tmp_path / "begun"
    script.write_text(_STARVED.format(begun=str(begun), times=times))
    done = _demo(tmp_path, "--script", str(script))
    assert done.returncode == 1
    assert "exit code 1, and nobody had killed it:\n" in done.stderr
    assert len(begun.read_text()) == starts
    assert done.stderr.count("the pipeline has ended (exit code 1); it is started again") == starts - 1


def test_bench_leaves_nothing_when_it_is_ended(tmp_path: Path) -> None:
    arguments = ("bench", "--records", "50000000")
    with ottla_process(*arguments, environment={"TMPDIR": str(tmp_path)}) as bench:
        line_with(bench.stderr, "through the broker on")
        bench.terminate()
        _out, err = bench.communicate(timeout=60)
    assert bench.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []

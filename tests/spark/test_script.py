"""How `ottla run` runs a script on a local master, and what it tells beside it (SPEC S4).

PySpark's place is taken by a module of a few lines: a JVM that ends, and a master, are all that counts of it.
"""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.signals import as_at_a_terminal

_PYSPARK = """
import subprocess
class SparkContext:
    _gateway = _active_spark_context = None
class Gateway:
    def __init__(self, *argv):
        self.proc = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
"""


def _run(
    folder: Path,
    script: str,
    *arguments: str,
    module: str = "ottla.spark.script",
    terminated_after: str | None = None,
    by: signal.Signals = signal.SIGTERM,
) -> tuple[int, str, str]:
    """The exit code and both outputs of a script that has such a PySpark beside it.

    `terminated_after`: the signal is sent when it has written this line.
    """
    made = folder / "pyspark" / "core"
    made.mkdir(parents=True)
    (made / "context.py").write_text(_PYSPARK)
    sql = folder / "pyspark" / "sql"
    sql.mkdir()
    (sql / "session.py").touch()
    for each in (made, made.parent, sql):
        (each / "__init__.py").touch()
    (folder / "script.py").write_text(script)
    command = [sys.executable, "-P", "-m", module, str(folder / "script.py"), *arguments]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=as_at_a_terminal)
    assert process.stdout is not None
    first = ""
    if terminated_after is not None:
        first = process.stdout.readline()
        assert first == f"{terminated_after}\n"
        process.send_signal(by)
    out, said = process.communicate()
    return process.returncode, first + out, said


@pytest.mark.parametrize("module", ["ottla.spark.script", "ottla.spark.live"])
def test_s4_a_script_that_fails_shows_its_own_lines_and_no_others(tmp_path: Path, module: str) -> None:
    code, _, said = _run(tmp_path, "def f():\n    raise ValueError('no')\n\nf()\n", module=module)
    assert code == 1
    assert re.findall(r'File "(.*)", line (\d+)', said) == [(str(tmp_path / "script.py"), at) for at in ("4", "2")]
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.endswith("ValueError: no\n")


def test_s4_a_script_that_is_no_python_shows_the_line(tmp_path: Path) -> None:
    code, _, said = _run(tmp_path, "x = 1\ny = (\n")
    assert code == 1
    assert said.startswith(f'  File "{tmp_path / "script.py"}", line 2\n')


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, signal.SIGTERM])
def test_s4_a_jvm_that_a_signal_has_ended_is_named_and_gives_the_exit_code(
    tmp_path: Path, number: signal.Signals
) -> None:
    script = (
        "import sys\nfrom pyspark.core.context import Gateway, SparkContext\n"
        "SparkContext._gateway = Gateway('cat')\n"
        "SparkContext._gateway.proc.send_signal(int(sys.argv[1]))\n"
        "try:\n    raise ConnectionRefusedError('gone')\nexcept OSError as error:\n    raise ValueError from error\n"
    )
    code, _, said = _run(tmp_path, script, str(int(number)))
    assert code == 128 + number
    assert "ConnectionRefusedError: gone" in said
    assert re.search(rf"\nottla run: Spark's JVM \(process \d+\) was ended by {number.name}(\n|\. \w)", said)


@pytest.mark.parametrize(("ended", "code"), [("sys.exit(143)", 143), ("sys.exit(52)", 1), ("", 1)])
def test_s4_a_jvm_that_has_ended_otherwise(tmp_path: Path, ended: str, code: int) -> None:
    """Java hears SIGTERM, ends in order, and gives the exit code that a shell has for it."""
    script = (
        "import sys\nfrom pyspark.core.context import Gateway, SparkContext\n"
        f"SparkContext._gateway = Gateway(sys.executable, '-c', 'import sys; {ended}')\n"
        "SparkContext._gateway.proc.wait()\n"
        "raise ConnectionResetError\n"
    )
    found, _, said = _run(tmp_path, script)
    assert found == code
    told = {"sys.exit(143)": "was ended by SIGTERM", "sys.exit(52)": "has ended with exit code 52"}
    assert told.get(ended, "has ended with exit code 0") in said


def test_s4_of_a_jvm_that_lives_nothing_is_said(tmp_path: Path) -> None:
    script = (
        "from pyspark.core.context import Gateway, SparkContext\n"
        "SparkContext._gateway = Gateway('cat')\nraise ValueError('no')\n"
    )
    code, _, said = _run(tmp_path, script)
    assert (code, said.splitlines()[-1]) == (1, "ValueError: no")


@pytest.mark.parametrize("module", ["ottla.spark.script", "ottla.spark.live"])
@pytest.mark.parametrize(("master", "told"), [("spark://host:7077", True), ("local[2]", False)])
def test_s4_a_script_that_chooses_a_cluster_is_told_how_to_start_it(
    tmp_path: Path, module: str, master: str, told: bool
) -> None:
    script = (
        "from types import SimpleNamespace\nfrom pyspark.core.context import SparkContext\n"
        f"SparkContext._active_spark_context = SimpleNamespace(master={master!r})\n"
    )
    code, _, said = _run(tmp_path, script, module=module)
    assert code == 0
    assert said.count(f"`ottla run --master {master}`") == told
    assert bool(said) == told


_QUERIES = """
from types import SimpleNamespace
from pyspark.core.context import Gateway, SparkContext
import pyspark.sql.session as session
SparkContext._gateway = Gateway('cat')
class Query:
    def __init__(self, name): self.name = name
    def stop(self):
        print('stopped', self.name, settings, flush=True)
        if self.name == 'bad': raise ValueError
settings = {'spark.sql.streaming.stopTimeout': '0'}
conf = SimpleNamespace(get=settings.get, set=settings.__setitem__)
streams = SimpleNamespace(active=[Query('bad'), Query('good')])
session.SparkSession = SimpleNamespace(_instantiatedSession=SimpleNamespace(streams=streams, conf=conf))
import threading
threading.Thread(target=lambda: print('its own thread', flush=True)).start()
"""


#: The second of the two statements that Spark knows ends when it is looked at for the third time.
_WRITES = """
class Statement:
    def __init__(self, looks): self.left = looks
    def completionTime(self):
        self.left -= 1
        return SimpleNamespace(isEmpty=lambda: self.left > 0)
found = [Statement(0), Statement(3)]
class Store:
    def executionsCount(self): return 52
    def executionsList(self, offset, length):
        print('looks', offset, length, flush=True)
        return SimpleNamespace(size=lambda: len(found), apply=found.__getitem__)
its = session.SparkSession._instantiatedSession
its.sparkContext = SimpleNamespace(cancelAllJobs=lambda: print('cancelled', flush=True))
its._jsparkSession = SimpleNamespace(sharedState=lambda: SimpleNamespace(statusStore=Store))
"""


@pytest.mark.parametrize(
    ("end", "looks"), [("", 0), ("raise ValueError", 0), ("raise KeyboardInterrupt", 3), ("import sys; sys.exit(4)", 3)]
)
def test_s4_a_write_that_is_cut_off_has_time_to_abort_what_it_has_open(tmp_path: Path, end: str, looks: int) -> None:
    _, out, _ = _run(tmp_path, _QUERIES + _WRITES + end)
    assert out.splitlines()[3:] == ["cancelled", *["looks 32 20"] * looks][: looks and looks + 1]


@pytest.mark.parametrize(
    ("end", "code"), [("", 0), ("raise ValueError", 1), ("raise KeyboardInterrupt", -2), ("import sys; sys.exit(4)", 4)]
)
def test_s4_queries_that_still_run_when_the_script_ends_are_stopped(tmp_path: Path, end: str, code: int) -> None:
    """Else the transactions of tasks that have ended stay open, and hold back readers."""
    found, out, _ = _run(tmp_path, _QUERIES + end)
    assert found == code
    within = {"spark.sql.streaming.stopTimeout": "20s"}
    assert out.splitlines() == ["its own thread", f"stopped bad {within}", f"stopped good {within}"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_s4_queries_are_stopped_behind_a_signal_that_ends_the_script(tmp_path: Path, number: signal.Signals) -> None:
    """As a service manager sends it, or a terminal that is closed; the script's own clean-up runs, too."""
    waits = (
        "import signal\ntry:\n    print('waits', flush=True)\n    signal.pause()\n"
        "finally:\n    print('cleaned up', flush=True)\n"
    )
    found, out, _ = _run(tmp_path, _QUERIES.split("import threading")[0] + waits, terminated_after="waits", by=number)
    assert found == 128 + number
    told = [line.split(" {")[0] for line in out.splitlines()]
    assert told == ["waits", "cleaned up", "stopped bad", "stopped good"]


def test_s4_a_script_that_hears_sigterm_itself_is_left_to_do_so(tmp_path: Path) -> None:
    hears = (
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('hears', flush=True)\nsignal.pause()\n"
    )
    assert _run(tmp_path, hears, terminated_after="hears")[0] == 7


def test_s4_the_second_sighup_of_a_terminal_that_is_closed_is_not_heard(tmp_path: Path) -> None:
    script = "import os, signal\ntry:\n    print('waits', flush=True)\n    signal.pause()\nfinally:\n    "
    script += "os.kill(os.getpid(), signal.SIGHUP)\n    print('cleaned up')\n"
    found, out, _ = _run(tmp_path, script, terminated_after="waits", by=signal.SIGHUP)
    assert (found, out) == (128 + signal.SIGHUP, "waits\ncleaned up\n")


#: What PySpark does to start its JVM, and another process that is none.
_LAUNCHES = """
import subprocess, sys
def launch_gateway():
    says = "import os; print(os.getpgrp() == os.getpid(), flush=True)"
    subprocess.run([sys.executable, "-c", says], preexec_fn=lambda: None, check=True)
launch_gateway()
__name__ = "pyspark.java_gateway"
launch_gateway()
"""


def test_s4_the_jvm_has_a_process_group_of_its_own_and_nothing_else_has(tmp_path: Path) -> None:
    """So a signal to the group of `ottla run` comes to the script, and Spark can still stop what runs."""
    assert _run(tmp_path, _LAUNCHES)[1].splitlines() == ["False", "True"]


def test_s4_sigterm_that_whoever_starts_it_has_ignored_stays_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import signal\nprint(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN)\n")
    command = [sys.executable, "-P", "-m", "ottla.spark.script", str(script)]
    done = subprocess.run(["sh", "-c", "trap '' TERM; exec \"$@\"", "sh", *command], capture_output=True, check=True)
    assert done.stdout == b"True\n"

"""The fault switches: once over all processes, killed or held."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.base.errors import ConfigError
from ottla.spark.faults import Fault, parse

CODE = (
    "from ottla.spark import faults\nfor batch in range(3):\n    faults.reach('sink.mid-write', batch)\nprint('alive')"
)


def run(directory: Path, fault: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OTTLA_FAULT": fault, "OTTLA_FAULT_DIR": str(directory)}
    return subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=False)


def test_faults_are_parsed() -> None:
    assert parse("sink.after-decision:3=pause, sink.mid-write") == (
        Fault("sink.after-decision", 3, "pause"),
        Fault("sink.mid-write", None, "kill"),
    )


@pytest.mark.parametrize("text", ["sink.nowhere", "sink.mid-write:x", "sink.mid-write=sleep"])
def test_an_unknown_fault_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected POINT"):
        parse(text)


@pytest.mark.parametrize("fault", ["sink.mid-write:1=kill", "sink.mid-write"])
def test_a_process_is_killed_once(tmp_path: Path, fault: str) -> None:
    assert run(tmp_path, fault).returncode == -signal.SIGKILL
    (left,) = [file for file in tmp_path.iterdir() if not file.name.startswith(".")]
    assert left.name == parse(fault)[0].file_name
    left.unlink()  # who has seen it may remove it: it has happened all the same
    assert run(tmp_path, fault).stdout == "alive\n"


def test_a_call_fails_once(tmp_path: Path) -> None:
    failed = run(tmp_path, "sink.mid-write:1=fail")
    assert failed.returncode == 1
    assert "InjectedError: sink.mid-write: OTTLA_FAULT is to fail here" in failed.stderr
    assert (tmp_path / "sink.mid-write:1-fail").exists()
    assert run(tmp_path, "sink.mid-write:1=fail").stdout == "alive\n"


def test_another_point_or_batch_is_left_alone(tmp_path: Path) -> None:
    assert run(tmp_path, "sink.mid-write:9,sink.flushed").stdout == "alive\n"


def test_a_paused_process_goes_on_when_its_file_is_removed(tmp_path: Path) -> None:
    env = {**os.environ, "OTTLA_FAULT": "sink.mid-write:2=pause", "OTTLA_FAULT_DIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", CODE], env=env, stdout=subprocess.PIPE, text=True) as process:
        file = tmp_path / "sink.mid-write:2-pause"
        while not file.exists():
            with contextlib.suppress(subprocess.TimeoutExpired):
                pytest.fail(f"the process ended with {process.wait(0.05)}")
        assert int(file.read_text()) == process.pid
        file.unlink()
        assert process.communicate()[0] == "alive\n"

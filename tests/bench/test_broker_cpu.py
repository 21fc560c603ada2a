"""The CPU of a process, by the kernel's own clock of it."""

import os
import subprocess
import sys
import time

import pytest

from bench.broker_cpu import counted, cpu_s
from bench.figure import Values
from bench.worker import BROKER_PID


def test_the_cpu_of_a_process_is_what_it_says_of_itself() -> None:
    before = time.process_time()
    told = cpu_s(os.getpid())
    assert before <= told <= time.process_time()


def test_a_process_that_has_ended_has_none() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    with pytest.raises(ProcessLookupError):
        cpu_s(process.pid)


def test_a_broker_that_is_told_is_counted_and_a_warm_up_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Values = {}
    monkeypatch.delenv(BROKER_PID, raising=False)
    with counted(found, "in"):
        pass
    assert not found
    monkeypatch.setenv(BROKER_PID, str(os.getpid()))
    before = time.process_time()
    with counted(found, "in"):
        sum(range(10_000))
    most = time.process_time() - before
    assert 0 < found["in: CPU"] <= most
    before = time.process_time()
    with counted(found, "in", 1_000):
        sum(range(10_000))
    assert 0 < found["in: CPU"] <= (time.process_time() - before) * 1_000

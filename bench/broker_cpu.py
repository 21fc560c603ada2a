"""The CPU that a broker's process takes: exact, whoever else has the machine."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.figure import Values
from bench.worker import BROKER_PID


def cpu_s(pid: int) -> float:
    """User and system time that a process has used, with all its threads, in seconds (clock_getcpuclockid(3)).

    It is the kernel's own count in nanoseconds; /proc/PID/stat has the same in ticks of 10 ms. ProcessLookupError.
    """
    clock = ctypes.c_int()
    if ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise ProcessLookupError(f"no process {pid}")
    return time.clock_gettime(clock.value)


@contextmanager
def counted(found: Values, name: str, records: int | None = None) -> Iterator[None]:
    """Put the broker's CPU for what happens inside into `found`, as `name: CPU`: seconds for a million `records`.

    Without `records` it is seconds. Nothing is put where the broker's process is not told, as in a warm-up.
    """
    told = os.environ.get(BROKER_PID)
    before = cpu_s(int(told)) if told else 0.0
    yield
    if told:
        used = cpu_s(int(told)) - before
        found[f"{name}: CPU"] = used if records is None else used / records * 1e6

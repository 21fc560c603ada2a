"""Spark's processes, as a test that kills them sees them."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path


def _session(leader: int) -> Iterator[int]:
    """The driver and everything it has started: Spark puts its workers into process groups of their own."""
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(int(each.name)) == leader:
                yield int(each.name)


def signal_session(leader: int, number: signal.Signals) -> None:
    """A signal to each process of the session."""
    for pid in _session(leader):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_session(leader: int) -> None:
    """SIGKILL to each process of the session."""
    signal_session(leader, signal.SIGKILL)


def java_above(pid: int) -> int:
    """The JVM that has started this Python worker, through the daemon that forks it."""
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        status = Path(f"/proc/{pid}/stat").read_text()
        pid = int(status.rpartition(")")[2].split()[1])
    return pid

"""Spark's processes, as a test that kills them sees them."""

import contextlib
import os
import signal
from pathlib import Path


def kill_session(leader: int) -> None:
    """SIGKILL to the driver and everything it has started: Spark puts its workers into process groups of their own."""
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(int(each.name)) == leader:
                os.kill(int(each.name), signal.SIGKILL)

"""The end of a run with foreign clients: the process ends without Python's own end.

A thread of a foreign client's library may still run then, and call into an interpreter that is gone. Once that was a
segmentation fault behind 499 passed tests (in `PyThreadState_New`, of a thread that Python did not know). What is
registered with `atexit` runs as ever.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Final

import pytest

_FOREIGN: Final = "confluent_kafka"
_session = pytest.StashKey[pytest.Session]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note whose exit status counts."""
    session.config.stash[_session] = session


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """All is said and tidied up: end, if there has been a foreign client in this process."""
    session = config.stash.get(_session, None)
    if session is None or hasattr(config, "workerinput") or _FOREIGN not in sys.modules:
        return
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(session.exitstatus))

"""`ottla demo` as a process, with what it found out as data."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.interop.conftest import apache_jars as apache_jars
from tests.spark.conftest import java as java
from tests.spark.conftest import need_java

_TIMEOUT_S = 1_500.0


class DemoRun(NamedTuple):
    """Exit code, the outcome as data, and what it said on the way."""

    code: int
    outcome: dict[str, Any]
    said: str

    @property
    def counts(self) -> tuple[int, int, int]:
        """Lost, duplicated, unexplained."""
        tally = self.outcome["tally"]
        return tally["lost"], tally["duplicated"], tally["foreign"]


RunDemo = Callable[..., DemoRun]


@pytest.fixture
def run_demo() -> RunDemo:
    """Runs `ottla demo --json ARGUMENTS…` to its end."""
    need_java()

    def run(*arguments: str) -> DemoRun:
        command = [sys.executable, "-m", "ottla", "demo", "--json", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        assert done.stdout, done.stderr[-4000:]
        return DemoRun(done.returncode, json.loads(done.stdout), done.stderr)

    return run

"""Tests that `make test` leaves out find their fixtures: else CI says so an hour later, behind all the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_each_test_of_interop_and_chaos_finds_its_fixtures() -> None:
    command = [sys.executable, "-m", "pytest", "--setup-plan", "-q", "-p", "no:cacheprovider", "-p", "no:warnings"]
    planned = subprocess.run(
        [*command, "-m", "interop or chaos", "tests"], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert planned.returncode == 0, planned.stdout[-4000:] + planned.stderr[-4000:]

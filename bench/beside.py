"""A program of the bench that runs beside what is measured, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def beside(module: str, *arguments: str, wait_s: float, late: str) -> Iterator[list[Any]]:
    """Have `python -m module` run while the body does, from when it has said its first line. Then its input ends, and
    the list gets what it says as JSON. TimeoutError, which says `late`, where it is not done after `wait_s`."""
    said: list[Any] = []
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield said
            told, _ = process.communicate(timeout=wait_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{late} within {wait_s:.0f} s") from None
        finally:
            process.kill()
    said += json.loads(told)

"""Time-outs of the Spark room run on the monotonic clock: a clock that is set changes no waiting time."""

import ast
from collections.abc import Iterator

import pytest

from tests.house.tree import name_of, python_files

#: Where the wall clock is read, and what for.
_ALLOWED = {"src/ottla/spark/ledger_io.py": ["time.time_ns"]}  # the timestamp of the ledger's records


def wall_clock(source: str) -> Iterator[str]:
    """The functions of the standard library that tell the time of day, wherever `source` names one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            named = f"{node.value.id}.{node.attr}"
            if named in ("time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "date.today"):
                yield named
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (f"time.{each.name}" for each in node.names if each.name in ("time", "time_ns"))


def test_no_waiting_time_is_taken_from_the_wall_clock() -> None:
    rooms = [path for path in python_files() if name_of(path).startswith("src/ottla/spark/")]
    found = {name_of(path): read for path in rooms if (read := list(wall_clock(path.read_text())))}
    assert rooms and found == _ALLOWED


@pytest.mark.parametrize("line", ["time.time() + 5", "t = datetime.now()", "from time import time_ns", "f(time.time)"])
def test_a_reading_of_the_wall_clock_is_seen(line: str) -> None:
    assert len(list(wall_clock(line))) == 1


@pytest.mark.parametrize("line", ["time.monotonic()", "loop.time()", "time.perf_counter()"])
def test_other_clocks_are_no_wall_clocks(line: str) -> None:
    assert not list(wall_clock(line))

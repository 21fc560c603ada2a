"""The client waits on a clock that never goes back: the time of day may be set, and nothing is late or early for it.

Suspicion 4 of issue 8, on the client's side: it does not hold. The time of day is read for what it is alone: the
timestamp of a record, and the day from which `auto.offset.reset=by_duration` counts.
"""

import ast
from pathlib import Path

import ottla.client

#: What reads the time of day.
_WALL_CLOCK = {"time", "time_ns", "now", "utcnow", "today"}
#: Where it is what is wanted: records' timestamps, and `by_duration`.
_ALLOWED = {"producer/producer.py": 2, "producer/intake.py": 1, "consumer/consumer.py": 1}


def readings(path: Path) -> int:
    """How often the file reads the time of day. `loop.time()` is asyncio's own clock, which is monotonic."""
    found = 0
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Name(id="time_ns", ctx=ast.Load()):
                found += 1
            case ast.Call(func=ast.Attribute(attr="now_ms")):  # of a Clock
                found += 1
            case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id="time" | "datetime" | "date"))):
                found += name in _WALL_CLOCK
    return found


def test_the_time_of_day_is_read_for_records_and_for_resets_alone() -> None:
    root = Path(ottla.client.__file__).parent
    found = {str(path.relative_to(root)): readings(path) for path in sorted(root.rglob("*.py"))}
    assert {name: count for name, count in found.items() if count} == _ALLOWED

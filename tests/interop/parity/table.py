"""The table of outcomes as a page of `docs/`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark-parity.md"
_SAME = "the same"
_HEAD = """# Spark's own Kafka connector and ours, case by case

What {total} cases gave that were run with `format("kafka")` and with `format("ottla")` on one broker: {same} the same,
and {others} not, each with the reason. `tests/interop/test_spark_parity.py` runs them again, and fails if an outcome
is another one than here. How ours is used: [spark.md](spark.md).

`a/0 3–9` are the offsets 3 to 9 of partition 0 of the topic *a*, each read once. *a* has ten records in partition 0,
five in partition 1, none in partition 2; *b* has four. A bar stands between micro-batches. *refused* is an error: the
query does not start, or it stops.
"""


class Line(NamedTuple):
    """A case's row."""

    group: str
    name: str
    sparks: str
    ours: str
    why: str

    @property
    def verdict(self) -> str:
        """The last column."""
        return _SAME if self.sparks == self.ours else self.why


def page(lines: Sequence[Line]) -> str:
    """The whole page."""
    same = sum(line.sparks == line.ours for line in lines)
    parts = [_HEAD.format(total=len(lines), same=same, others=len(lines) - same)]
    for group in dict.fromkeys(line.group for line in lines):
        parts.append(f"\n## {group[0].upper()}{group[1:]}\n| case | Spark's own | ours | |\n|---|---|---|---|\n")
        parts += [_row(line) for line in lines if line.group == group]
    return "".join(parts)


def _row(line: Line) -> str:
    cells = (line.name, *(each.strip().replace("|", "\\|") for each in (line.sparks, line.ours, line.verdict)))
    return f"| {' | '.join(cells)} |\n"


def rows_of(text: str) -> dict[tuple[str, str], str]:
    """(group, case) → its row, of a page."""
    found, group = {}, ""
    for line in text.splitlines():
        if line.startswith("## "):
            group = line[3:]
        elif line.startswith("| ") and not line.startswith("| case |"):
            found[group, line.split(" | ", 1)[0]] = line
    return found

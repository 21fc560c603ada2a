"""Ratios of alternating runs: a table on the terminal, and RESULTS.md."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench.figure import Unit, Values


class Comparison:
    """Values of several peers over several rounds. The ratio of a figure is the median of the rounds' ratios."""

    def __init__(self, title: str, peers: tuple[str, ...], unit_of: Callable[[str], Unit], note: str = "") -> None:
        self.title, self.peers, self.unit_of, self.note = title, peers, unit_of, note
        self._values: dict[str, dict[str, list[float]]] = {}
        self.faults: list[str] = []

    def add(self, peer: str, values: Values) -> None:
        """One round's values of a peer."""
        for name, value in values.items():
            self._values.setdefault(name, {}).setdefault(peer, []).append(value)

    def rows(self) -> list[list[str]]:
        """Figure, each peer's median, then the first peer's ratio to each other one; above 1 the first is better."""
        return [self._row(name, values) for name, values in self._values.items()]

    def _row(self, name: str, values: dict[str, list[float]]) -> list[str]:
        unit = self.unit_of(name)
        medians = [f"{statistics.median(values[peer]):,.4g}" if peer in values else "–" for peer in self.peers]
        mine = values.get(self.peers[0], [])
        ratios = [_ratio(mine, values.get(peer, []), unit) for peer in self.peers[1:]]
        return [f"{name} ({unit.name})", *medians, *ratios]

    def header(self) -> list[str]:
        """The columns of `rows`."""
        return ["figure", *self.peers, *(f"× {peer}" for peer in self.peers[1:])]

    def markdown(self) -> str:
        """A section of RESULTS.md."""
        lines = [f"## {self.title}", ""]
        lines += [self.note, ""] if self.note else []
        if self._values:
            header = self.header()
            lines += [" | ".join(["", *header, ""]).strip(), "|" + "---|" + "---:|" * (len(header) - 1)]
            lines += [" | ".join(["", *row, ""]).strip() for row in self.rows()]
            lines.append("")
        lines += [f"Not measured: {fault}\n" for fault in dict.fromkeys(self.faults)]
        return "\n".join(lines)


def _ratio(mine: list[float], other: list[float], unit: Unit) -> str:
    if mine and other and len(mine) != len(other):  # one has failed in a round, nobody knows in which
        mine, other = [statistics.median(mine)], [statistics.median(other)]
    pairs = [(a, b) for a, b in zip(mine, other, strict=True) if a > 0 and b > 0] if mine and other else []
    if not pairs:
        return "–"
    return f"{statistics.median(a / b if unit.higher_is_better else b / a for a, b in pairs):.2f}"


def show(comparison: Comparison) -> None:
    """The table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=comparison.title, title_justify="left")
    for n, column in enumerate(comparison.header()):
        table.add_column(column, justify="right" if n else "left")
    for row in comparison.rows():
        table.add_row(*row)
    console = Console()
    console.print(table)
    for fault in dict.fromkeys(comparison.faults):
        console.print(f"not measured: {fault}", markup=False)


def write(path: Path, comparisons: list[Comparison], rounds: int, scale: float) -> None:
    """RESULTS.md: the machine, the day, the tables."""
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    machine = f"{os.cpu_count()} cores shared by broker and client, {platform.system()} {platform.machine()}, "
    head = [
        "# Results of `make bench`",
        "",
        f"{when}; {machine}Python {platform.python_version()}; {rounds} rounds, peers alternating, scale {scale:g}.",
        "Medians; a ratio is the median of the rounds' ratios and is above 1 where the first peer is better. Absolute",
        "figures are this machine's on that day and mean nothing elsewhere.",
        "",
    ]
    path.write_text("\n".join(head) + "\n" + "\n".join(each.markdown() for each in comparisons))

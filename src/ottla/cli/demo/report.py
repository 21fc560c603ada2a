"""The table at the end, and the verdict."""

from __future__ import annotations

from typing import NamedTuple

from ottla.cli.demo.expected import Tally


class Outcome(NamedTuple):
    """Everything that the demo has found out. Times are in seconds; None is what could not be counted."""

    lines: int
    tally: Tally
    aborted_records: int
    committed: int | None
    aborted: int | None
    recovered: int | None
    micro_batches: int
    kills: int
    restarts: int
    produce_s: float
    stream_s: float
    check_s: float
    total_s: float
    reader: str

    @property
    def exact(self) -> bool:
        """0 lost, 0 duplicated, nothing strange."""
        return self.tally.exact

    def rows(self) -> list[tuple[str, str]]:
        """What the table shows."""
        tally = self.tally
        return [
            ("lines written", f"{self.lines:,}"),
            ("words expected", f"{tally.expected:,}"),
            ("words read (read_committed)", f"{tally.read:,}"),
            ("lost", f"{tally.lost:,}"),
            ("duplicated", f"{tally.duplicated:,}"),
            ("unexplained", f"{tally.foreign:,}"),
            ("aborted records skipped", f"{self.aborted_records:,}"),
            ("transactions committed", _count(self.committed)),
            ("transactions aborted", _count(self.aborted)),
            ("transactions recovered", _count(self.recovered)),
            ("micro-batches", f"{self.micro_batches:,}"),
            ("read by", self.reader),
            ("kills (SIGKILL)", f"{self.kills:,}"),
            ("pipeline restarts", f"{self.restarts:,}"),
            ("lines produced a second", f"{_rate(self.lines, self.produce_s):,}"),
            ("lines streamed a second, kills included", f"{_rate(self.lines, self.stream_s):,}"),
            ("words checked a second", f"{_rate(tally.read, self.check_s):,}"),
            ("seconds in all", f"{self.total_s:.0f}"),
        ]

    def as_json(self) -> dict[str, object]:
        """The same for programs."""
        return {**self._asdict(), "tally": self.tally._asdict(), "exact": self.exact}


def _count(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def _rate(count: int, seconds: float) -> int:
    return round(count / seconds) if seconds > 0 else 0


def verdict(outcome: Outcome) -> str:
    """One sentence."""
    if outcome.exact:
        return f"Exactly once: every word arrived once, across {outcome.kills} kills."
    tally = outcome.tally
    return f"NOT exactly once: {tally.lost:,} lost, {tally.duplicated:,} duplicated, {tally.foreign:,} unexplained."

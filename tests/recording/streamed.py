"""A history of several processes: each writes its events into a file as they happen, and so they outlive it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ottla.testing.history import Event, Fact, History
from ottla.testing.history.lines import decode, encode


class StreamedHistory(History):
    """A history that is also a file. Its times are those of the machine's monotonic clock, which processes share."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("ab", buffering=0)

    def add(self, who: str, fact: Fact, at_s: float | None = None) -> None:
        with self._lock:
            event = Event(self._clock() if at_s is None else at_s, who, fact)
            self._events.append(event)
            _, line = encode([event])
            self._file.write(f"{line}\n".encode())


def merged(history: History, paths: Iterable[Path]) -> History:
    """All events in the order of their times. A line that a killed process has not ended is left out."""
    events = list(history.events)
    (header,) = encode([])
    for path in paths:
        whole = path.read_text(encoding="utf-8").split("\n")[:-1]
        events += decode([header, *whole])
    return History(events=sorted(events, key=lambda event: event.at_s))

"""What a member in a process of its own says on standard output, one line each; `java/Member.java` says the same.

    READY                    before it joins; it waits for a line on standard input
    NOTE {...}               an event of its history
    HAS topic:partition ...  whenever that changes
    POLLED                   after every poll

It leaves the group when one more line, or the end, comes on standard input. Times are those of the machine's monotonic
clock, which all processes share.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ottla import TopicPartition
from ottla.testing.history import Event, Fact, History
from ottla.testing.history.lines import decode, first_line, last_line, line_of


class SpokenHistory(History):
    """A history that is said aloud as it happens, so that it outlives its process."""

    def __init__(self) -> None:
        super().__init__()
        self._voice = threading.Lock()

    def add(self, who: str, fact: Fact, at_s: float | None = None) -> None:
        with self._voice:  # in the order of their times
            event = Event(self._clock() if at_s is None else at_s, who, fact)
            print(f"NOTE {line_of(event)}", flush=True)


def event_of(line: str) -> Event:
    """The event that a line beginning with NOTE tells."""
    (event,) = decode([first_line(), line.removeprefix("NOTE "), last_line(1)])
    return event


def has_line(partitions: Iterable[TopicPartition]) -> str:
    """The line that says which partitions a member has."""
    return " ".join(["HAS", *(f"{tp.topic}:{tp.partition}" for tp in sorted(partitions))])


def partitions_of(line: str) -> frozenset[TopicPartition]:
    """The partitions that a line beginning with HAS tells."""
    pairs = (each.rpartition(":") for each in line.split()[1:])
    return frozenset(TopicPartition(topic, int(number)) for topic, _, number in pairs)

"""What happened in a world, in order. People read it as a table; checkers read its data.

The data are the facts of `ottla.testing.history`, and those below, which only the simulator can know.
"""

import hashlib
import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.base.types import TopicPartition
from ottla.wire.batch import parse_header
from ottla.wire.records import decode_batch
from sim.loop import START_S, SimLoop


class Decided(NamedTuple):
    """A coordinator took an EndTxn, and decided what becomes of the transaction that was open then."""

    transactional_id: str
    epoch: int
    commit: bool


class Marked(NamedTuple):
    """A marker that a coordinator had sent is in the log of a partition."""

    transactional_id: str
    epoch: int
    commit: bool


class Outdated(NamedTuple):
    """A coordinator that was deposed, and did not know it, told a client older offsets than were committed by then."""

    who: str
    tp: TopicPartition
    told: int
    committed: int


class IsMember(NamedTuple):
    """A consumer is a member of its group under this id from now on."""

    member_id: str


class Answered(NamedTuple):
    """A broker has a result for one partition of a Produce request. Perhaps nobody gets the answer."""

    tp: TopicPartition
    payload: bytes
    error: str
    offset: int

    @property
    def producer(self) -> tuple[int, int]:
        """Producer id and epoch that the batch was sent with."""
        header = parse_header(self.payload)
        return header.producer_id, header.producer_epoch

    def uids(self) -> list[str]:
        """The uids of its records."""
        return [bytes(record.value or b"").rstrip(b".").decode() for record in decode_batch(self.payload)]

    def __str__(self) -> str:
        header = parse_header(self.payload)
        sent_as = f"{header.producer_id}/{header.producer_epoch} sequence {header.base_sequence}"
        end = f"at {self.offset}" if self.error == "NONE" else self.error
        return f"{self.tp}: producer {sent_as}, {' '.join(self.uids())}: {end}"


class Event(NamedTuple):
    """Who did what, when. `data` is for checkers, `text` for people."""

    at_s: float
    who: str
    what: str
    text: str
    data: Any = None


class History:
    """The events of one world."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.events: list[Event] = []
        self._closed = False

    def close(self) -> None:
        """The world is over: note no more events."""
        self._closed = True

    @property
    def digest(self) -> str:
        """Equal for equal histories, to the last digit of the time."""
        found = hashlib.sha256()
        for event in self.events:
            found.update(f"{event.at_s!r} {event.who} {event.what} {event.text} {event.data}\n".encode())
        return found.hexdigest()

    def add(self, who: str, what: str, text: str = "", data: Any = None) -> None:
        """Note an event now."""
        if self._closed:
            return
        self.events.append(Event(self._loop.time() - START_S, who, what, text, data))


#: Their events are in every table: they show the faults and the state of the cluster.
SURROUNDINGS = ("cluster", "nemesis", "world")


def table(events: Sequence[Event], *, around: Sequence[str] | None = None, most: int | None = None) -> str:
    """The events as lines. With `around`, it leaves out events of users that do not mention one of these texts.

    `most`: so many events at most. Those that are nearest to an event that names a record or a transaction of `around`
    stay, or the last ones if none does; a line says how many were left out between two.
    """
    wanted = around or ()
    lines = []
    for event in events:
        text = event.text or str(event.data if isinstance(event.data, Answered) else "")
        shown = around is None or event.who in SURROUNDINGS
        if shown or any(_mentions(text, each) or each == event.who for each in wanted):
            lines.append((f"{event.at_s:9.3f}  {event.who:<16} {event.what:<18} {text}", text))
    if most is not None and len(lines) > most:
        names = set(wanted) - {event.who for event in events}
        named = [at for at, (_, text) in enumerate(lines) if any(_mentions(text, each) for each in names)]
        kept = _nearest(named or [len(lines) - 1], len(lines), most)
    else:
        kept = list(range(len(lines)))
    rows, before = [f"{'time':>9}  {'who':<16} {'what':<18} details"], -1
    for at in [*kept, len(lines)]:
        if at > before + 1:
            rows.append(f"... {at - before - 1} more")
        if at < len(lines):
            rows.append(lines[at][0])
        before = at
    return "\n".join(rows)


def _nearest(named: Sequence[int], count: int, most: int) -> list[int]:
    """Of the numbers below `count`, the `most` that are nearest to one of `named`, which is in order."""

    def distance(at: int) -> int:
        right = bisect_left(named, at)
        return min(abs(at - each) for each in named[max(right - 1, 0) : right + 1])

    return sorted(sorted(range(count), key=distance)[:most])


def _mentions(text: str, wanted: str) -> bool:
    """Whether `wanted` stands in `text` as a whole word."""
    return wanted in text and re.search(rf"(?<![\w.-]){re.escape(wanted)}(?![\w.-])", text) is not None

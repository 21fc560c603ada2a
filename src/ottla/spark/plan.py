"""What a query reads next: offsets, limits, tasks, and whether anything was lost. Pure.

A source offset, as Spark keeps it in the checkpoint, holds where its micro-batch begins *and* ends:

    {"from": {"topic": {"0": 5}}, "group": "g", "to": {"topic": {"0": 9}}, "v": 1}

because Spark does not persist the initial offset of a Python source: a replay of the first batch would begin wherever
`latest` is by then. Spark compares offsets as JSON text, so keys are sorted and an offset that did not move is given
back as it is. Spark does not check that offsets move forward either: every target is clamped here.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from ottla.base.types import TopicPartition
from ottla.spark.errors import DataLossError

Offsets = dict[TopicPartition, int]
OFFSET_VERSION = 1
#: In JSON offsets: the partition's first, and its end.
EARLIEST, LATEST = -2, -1


class Latest(NamedTuple):
    """The end of every partition."""


class Specific(NamedTuple):
    """An offset for the partitions named; -2 is the earliest and -1 the latest. Others begin at their earliest."""

    offsets: Offsets


class AtTimestamps(NamedTuple):
    """The first record at or after a time (milliseconds): one for all partitions, or one for each."""

    by_partition: Offsets
    every_ms: int | None


Bound = Latest | Specific | AtTimestamps


def specific(offsets: Offsets) -> Specific:
    """A bound by offsets."""
    return Specific(offsets)


def at_timestamps(by_partition: Offsets, every_ms: int | None) -> AtTimestamps:
    """A bound by timestamps."""
    return AtTimestamps(by_partition, every_ms)


class Range(NamedTuple):
    """Offsets `start` to `end`, the end not included, of one partition: what one task reads."""

    tp: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets (records, control records and gaps)."""
        return self.end - self.start


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """`{"topic":{"0":5}}` in a fixed order."""
    answer: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        answer.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return answer


def offsets_from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The reverse. Raises ValueError, TypeError or AttributeError."""
    return {TopicPartition(topic, int(p)): int(offset) for topic, ps in value.items() for p, offset in ps.items()}


class SourceOffset(NamedTuple):
    """A micro-batch: where it begins and ends, and the group whose offsets it moves."""

    start: Offsets
    end: Offsets
    group: str | None = None

    def to_json(self) -> dict[str, Any]:
        """What Spark keeps in the checkpoint."""
        value: dict[str, Any] = {"from": offsets_to_json(self.start)}
        if self.group is not None:
            value["group"] = self.group
        value["to"] = offsets_to_json(self.end)
        value["v"] = OFFSET_VERSION
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SourceOffset":
        """Read what `to_json` made. Raises ValueError for another version."""
        if value.get("v") != OFFSET_VERSION:
            raise ValueError(f"the checkpoint's offset is not one of this source: {dict(value)}")
        return cls(offsets_from_json(value["from"]), offsets_from_json(value["to"]), value.get("group"))


def check_no_loss(read_to: Offsets, earliest: Offsets, latest: Offsets) -> list[str]:
    """Sentences for what is lost of what was still to be read. `read_to` is the next offset of every partition."""
    losses = []
    for tp, offset in sorted(read_to.items()):
        if tp not in latest:
            losses.append(f"partition {tp} is gone; offset {offset} was to be read next")
        elif latest[tp] < offset:
            losses.append(f"partition {tp} ends at {latest[tp]} but was read up to {offset}: it was made anew")
        elif earliest.get(tp, 0) > offset:
            losses.append(f"partition {tp} begins at {earliest[tp]} now; offset {offset} was to be read next")
    return losses


def report_loss(losses: list[str]) -> str:
    """One message, or DataLossError's."""
    return "; ".join(losses) + ". Set failOnDataLoss to false to go on with what is there"


def next_target(read_to: Offsets, earliest: Offsets, latest: Offsets) -> tuple[Offsets, Offsets]:
    """Where the next batch begins and could end, for the partitions that exist.

    A partition that was not there before begins at its earliest offset. None moves back: what Spark has planned once
    must not be read again.
    """
    start = {tp: max(read_to.get(tp, earliest.get(tp, 0)), earliest.get(tp, 0)) for tp in latest}
    for tp, offset in read_to.items():
        if tp in latest and latest[tp] < offset:  # made anew, and failOnDataLoss is off
            start[tp] = earliest.get(tp, 0)
    return start, {tp: max(start[tp], latest[tp]) for tp in latest}


def limited(start: Offsets, end: Offsets, most: int | None) -> Offsets:
    """`end` cut so that at most about `most` offsets are read, each partition in proportion to its backlog.

    Every partition with a backlog moves by at least one offset, so a small limit cannot starve any.
    """
    total = sum(end[tp] - start[tp] for tp in end)
    if most is None or total <= most:
        return end
    cut: Offsets = {}
    for tp in end:
        backlog = end[tp] - start[tp]
        cut[tp] = start[tp] + (min(backlog, max(1, backlog * most // total)) if backlog else 0)
    return cut


def backlog(start: Offsets, end: Offsets) -> int:
    """Offsets between the two, over all partitions."""
    return sum(max(0, end[tp] - start.get(tp, end[tp])) for tp in end)


def ranges(start: Offsets, end: Offsets) -> list[Range]:
    """The non-empty ranges, ordered by topic and partition."""
    return [Range(tp, start[tp], end[tp]) for tp in sorted(end) if tp in start and end[tp] > start[tp]]


def split(found: Iterable[Range], min_partitions: int | None, max_records: int | None) -> list[Range]:
    """Cut ranges so that there are about `min_partitions`, none above `max_records` offsets; the order stays."""
    whole = list(found)
    if max_records is not None:
        whole = [piece for r in whole for piece in _pieces(r, -(-r.size // max_records))]
    if min_partitions is None or len(whole) >= min_partitions or not whole:
        return whole
    total = sum(r.size for r in whole)
    return [piece for r in whole for piece in _pieces(r, max(1, round(r.size * min_partitions / total)))]


def _pieces(whole: Range, count: int) -> list[Range]:
    count = max(1, min(count, whole.size))
    cuts = [whole.start + whole.size * i // count for i in range(count + 1)]
    return [Range(whole.tp, a, b) for a, b in pairwise(cuts)]


def require_no_loss(losses: list[str]) -> None:
    """Raise DataLossError if there are losses."""
    if losses:
        raise DataLossError(report_loss(losses))

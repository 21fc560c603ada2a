"""What a query reads next: offsets, limits, tasks, and whether anything was lost. Pure.

A source offset, as Spark keeps it in the checkpoint, holds where its micro-batch begins *and* ends:

    {"epochs": {"topic": {"0": 3}}, "from": {"topic": {"0": 5}}, "group": "g", "ids": {"topic": "1fOW..."},
     "tasks": {"minRecordsPerPartition": 100}, "to": {"topic": {"0": 9}}, "v": 1}

It holds the beginning because Spark does not store the initial offset of a Python source: a replay of the first batch
would begin where `latest` is at that time. It says how the batch is cut into tasks: a replay has the same tasks, and a
sink the same slots, although the options are others by then. Spark compares offsets as JSON text, so keys are sorted,
and an offset that did not move is given back unchanged. The topics' ids show when a topic was deleted and made again
(KIP-516), and the leader epochs when a log has lost its end and grown since (KIP-320). Spark does not check that
offsets move forward, so `next_target` makes sure of it. Only where a log lost its end do they move back, to where it
was cut as far as that is known: what comes later has those offsets.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from operator import index
from typing import Any, NamedTuple

from ottla.base.digits import natural
from ottla.base.types import TopicPartition
from ottla.spark.errors import DataLossError

Offsets = dict[TopicPartition, int]
OFFSET_VERSION = 1
#: What an offset may take of which nothing is known, and what a fetch asks for beyond what it seems to need.
_UNKNOWN_BYTES, _SOME_BYTES = 1_024, 65_536


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
    """The reverse of `offsets_to_json`. Raises ValueError, TypeError or AttributeError."""
    return {
        TopicPartition(topic, _partition(p)): whole(offset) for topic, ps in value.items() for p, offset in ps.items()
    }


def whole(value: object) -> int:
    """A whole number of JSON, where Python takes `true` for one, too. Raises TypeError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is no whole number")


def _partition(text: str) -> int:
    """A partition's number as JSON has it, a name in quotes: `int` also takes spaces and underscores."""
    number = natural(text.removeprefix("-"))
    if number is None:
        raise ValueError(f"{text!r} is no partition")
    return -number if text.startswith("-") else number


class Cut(NamedTuple):
    """How a micro-batch is cut into tasks: the options of these names in Spark's spelling."""

    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    min_records_per_partition: int = 1

    def to_json(self) -> dict[str, int]:
        """What is set, by option."""
        return {option: value for option, value in zip(_CUT_OPTIONS, self, strict=True) if value is not None}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Cut":
        """The reverse. Raises TypeError or AttributeError."""
        tasks, most, least = (value.get(option) for option in _CUT_OPTIONS)
        return cls(tasks and index(tasks), most and index(most), index(least or 1))


_CUT_OPTIONS = ("minPartitions", "maxRecordsPerPartition", "minRecordsPerPartition")


class SourceOffset(NamedTuple):
    """A micro-batch: where it begins and ends, the group whose offsets it moves, its topics' ids, and its tasks.

    `epochs` are those of the leaders that were asked for its end: all that lies before it is of these epochs or earlier
    ones. The ids are as Kafka prints them; brokers before 2.8 have none. One that Spark's own connector has planned,
    `{"topic":{"0":20}}`, is `adopted`: it says nothing but where the batch ends.
    """

    start: Offsets
    end: Offsets
    group: str | None = None
    ids: Mapping[str, str] = {}
    adopted: bool = False
    #: None in an offset from before it was kept.
    cut: Cut | None = None
    epochs: Mapping[TopicPartition, int] = {}

    def to_json(self) -> dict[str, Any]:
        """What Spark keeps in the checkpoint."""
        value: dict[str, Any] = {"epochs": offsets_to_json(self.epochs)} if self.epochs else {}
        value["from"] = offsets_to_json(self.start)
        if self.group is not None:
            value["group"] = self.group
        if self.ids:
            value["ids"] = dict(sorted(self.ids.items()))
        if self.cut is not None:
            value["tasks"] = self.cut.to_json()
        value["to"] = offsets_to_json(self.end)
        value["v"] = OFFSET_VERSION
        return value

    @classmethod
    def from_json(cls, value: Any) -> "SourceOffset":
        """Read what `to_json` made, or Spark's own connector. Raises ValueError for anything else."""
        try:
            if value.get("v") != OFFSET_VERSION:
                return cls({}, offsets_from_json(value), adopted=True)
            start, end = offsets_from_json(value["from"]), offsets_from_json(value["to"])
            cut = Cut.from_json(value["tasks"]) if "tasks" in value else None
            epochs = offsets_from_json(value.get("epochs", {}))
            return cls(start, end, value.get("group"), dict(value.get("ids", {})), cut=cut, epochs=epochs)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"the checkpoint's offset is not one of this source: {value!r}") from None


class Logs(NamedTuple):
    """The partitions that exist now: the earliest offset and the end of each, and their topics' ids.

    `latest` is the end of what the query may read. Where an open transaction may hold back readers of committed records
    before what was read already, `ends` has the end of the log itself. `epochs` are those of the leaders that said so.
    `cuts` is where logs have lost what was read, though they may be longer now.
    """

    earliest: Offsets
    latest: Offsets
    ids: Mapping[str, str] = {}
    ends: Mapping[TopicPartition, int] = {}
    epochs: Mapping[TopicPartition, int] = {}
    cuts: Mapping[TopicPartition, int] = {}

    def end(self, tp: TopicPartition) -> int:
        """Where the log of a partition that exists ends, as far as that was asked."""
        return self.ends.get(tp, self.latest[tp])


def made_anew(read: SourceOffset, logs: Logs) -> set[TopicPartition]:
    """Partitions whose log is another one than the query has read. The topic's id shows it; without ids, a log that
    ends before what was read."""
    anew = set()
    for tp, offset in read.end.items():
        before, now = read.ids.get(tp.topic), logs.ids.get(tp.topic)
        ended_before = tp in logs.latest and logs.end(tp) < offset
        if tp in logs.latest and (before != now if before is not None and now is not None else ended_before):
            anew.add(tp)
    return anew


def check_no_loss(
    read: SourceOffset, logs: Logs, asked: Callable[[TopicPartition], bool] = lambda _: True
) -> list[str]:
    """A sentence for each loss of records that the query had still to read. `read.end` has the next offsets to read.

    Of a partition that is new since then the query reads all. A log that does not begin at 0 has lost some of it.
    `asked` says whether the query's options name a partition: those of a query that was started again may be others.
    """
    anew = made_anew(read, logs)
    losses = []
    for tp, offset in sorted(read.end.items()):
        if tp not in logs.latest and not asked(tp):
            losses.append(f"partition {tp} was read up to {offset}, and the query's options do not name it any more")
        elif tp not in logs.latest:
            losses.append(f"partition {tp} is gone; offset {offset} was to be read next")
        elif tp in anew:
            losses.append(f"partition {tp} was read up to {offset}, then made anew; it ends at {logs.end(tp)} now")
        elif tp in logs.cuts:
            told = f"was read up to {offset}, then cut at {logs.cuts[tp]}"
            losses.append(f"partition {tp} {told}; it ends at {logs.end(tp)} now, with other records in between")
        elif logs.end(tp) < offset:
            losses.append(f"partition {tp} ends at {logs.end(tp)} but was read up to {offset}: it was cut")
        elif logs.earliest.get(tp, 0) > offset:
            losses.append(f"partition {tp} begins at {logs.earliest[tp]} now; offset {offset} was to be read next")
    new = {tp: logs.earliest.get(tp, 0) for tp in sorted(logs.latest.keys() - read.end.keys())}
    losses += [f"partition {tp} is new to the query, and begins at {at} instead of 0" for tp, at in new.items() if at]
    return losses


def held_back(read: SourceOffset, logs: Logs) -> Offsets:
    """What was read up to an offset that is in the log, behind the end of what the query may read: a transaction is
    open."""
    same = logs.latest.keys() - made_anew(read, logs) - logs.cuts.keys()
    return {tp: at for tp, at in read.end.items() if tp in same and logs.latest[tp] < at <= logs.end(tp)}


def of_an_earlier_epoch(read: SourceOffset, logs: Logs) -> dict[TopicPartition, int]:
    """Partitions that have had another leader since they were read, and the epoch then: the new one may lack something.

    A leader of an earlier epoch was deposed, and what it says of a later one is nothing.
    """
    same = read.end.keys() & read.epochs.keys() & logs.latest.keys() - made_anew(read, logs)
    return {tp: read.epochs[tp] for tp in sorted(same) if logs.epochs.get(tp, -1) > read.epochs[tp]}


def doubtful(offsets: Offsets, ids: Mapping[str, str], logs: Logs) -> set[TopicPartition]:
    """Partitions of which a broker that is out of date could say what `logs` says: they are gone, they are others, or
    they end before these offsets. That a log begins later is none of it: it stays so."""
    read = SourceOffset({}, offsets, None, ids)
    ended = {tp for tp, offset in offsets.items() if logs.latest.get(tp, -1) < offset}
    return ended | made_anew(read, logs)


def next_target(read: SourceOffset, logs: Logs) -> tuple[Offsets, Offsets]:
    """Where the next batch begins and could end, for the partitions that exist.

    A partition that is new, or was deleted and made again, begins at its earliest offset. One that lost its end goes
    back to where it was cut, or where that is not known to where its log ends now, as in Spark's connector: the next
    records get the offsets that were read already.
    Every other partition only moves forward: what Spark has planned once must not be read again.
    """
    anew = made_anew(read, logs)
    start = {}
    for tp in logs.latest:
        earliest = logs.earliest.get(tp, 0)
        there = min(logs.end(tp), logs.cuts.get(tp, logs.end(tp)))
        start[tp] = earliest if tp in anew else max(min(read.end.get(tp, earliest), there), earliest)
    return start, {tp: max(start[tp], logs.latest[tp]) for tp in logs.latest}


def moves_back(read: SourceOffset, start: Offsets) -> bool:
    """Whether the next batch begins somewhere before what was read.

    Such a batch is planned at once, also without a row: only the checkpoint knows later where a log was cut, for it
    grows beyond what was read.
    """
    return any(at < read.end.get(tp, at) for tp, at in start.items())


def stopped_at(stop: Offsets, start: Offsets, end: Offsets) -> Offsets:
    """`end`, but not beyond `stop`. A partition that is not in `stop` does not move."""
    return {tp: max(start[tp], min(end[tp], stop.get(tp, start[tp]))) for tp in end}


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
    """Cut ranges into about `min_partitions` pieces, none with more than `max_records` offsets. Their order stays."""
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


def tasks(start: Offsets, end: Offsets, cut: Cut) -> list[list[Range]]:
    """The ranges of each task."""
    pieces = split(ranges(start, end), cut.min_partitions, cut.max_records_per_partition)
    return shared(pieces, cut.min_records_per_partition, cut.max_records_per_partition)


def shared(pieces: Iterable[Range], least: int, most: int | None) -> list[list[Range]]:
    """Tasks for the ranges, in their order: a task takes further ones until it has `least` offsets.

    None gets more than `most` offsets by that.
    """
    found: list[list[Range]] = []
    size = least
    for piece in pieces:
        if size < least and (most is None or size + piece.size <= most):
            found[-1].append(piece)
            size += piece.size
        else:
            found.append([piece])
            size = piece.size
    return found


def fetch_bytes(offsets: int, bytes_an_offset: float | None, most: int) -> int:
    """What a fetch that wants so many offsets asks for, if an offset took about `bytes_an_offset` lately.

    A little more than that, for a fetch more costs more than some bytes do. None if nothing is known yet.
    """
    guess = offsets * _UNKNOWN_BYTES if bytes_an_offset is None else int(offsets * bytes_an_offset * 1.25)
    return min(most, guess + _SOME_BYTES)


def require_no_loss(losses: list[str]) -> None:
    """Raise DataLossError if there are losses."""
    if losses:
        raise DataLossError("; ".join(losses) + ". Set failOnDataLoss to false to go on with what is there")

"""A history in the shape that checkers need: who sent what, what became of it, and what each log holds."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.base.types import TopicPartition
from ottla.testing.history.facts import (
    Acknowledged,
    Assigned,
    Deleted,
    Deleting,
    Drained,
    Ended,
    Event,
    Failed,
    GroupBegan,
    Killed,
    Log,
    LogRecord,
    Polled,
    Positions,
    Sent,
    TransactionOutcome,
)

#: Where in the history; of what never happened.
NEVER: Final = 1 << 62
#: More than any generation: what lies between the generations of a group before it was deleted and those after it.
LIFE_OF_A_GROUP: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Sending:
    """One send of a record: its place in the history, by whom, and in which transaction."""

    index: int
    who: str
    fact: Sent


@dataclass(slots=True)
class PartitionLog:
    """A partition's records by offset: those that were read back, or else those that clients were told of."""

    tp: TopicPartition
    #: What was read back; None if the test has not done so.
    fact: Log | None
    records: Sequence[LogRecord]
    offsets: Sequence[int] = field(init=False)
    by_offset: Mapping[int, LogRecord] = field(init=False)

    def __post_init__(self) -> None:
        self.offsets = [record.offset for record in self.records]
        self.by_offset = {record.offset: record for record in reversed(self.records)}

    def between(self, after: int, before: int, *, committed_only: bool) -> list[LogRecord]:
        """Records above offset `after` and below `before`; with `committed_only`, those that are visible."""
        found = self.records[bisect_right(self.offsets, after) : bisect_left(self.offsets, before)]
        return [record for record in found if record.visible or not committed_only]


class Evidence:
    """See the module. Built once, in time linear in the events (and a sort of each log)."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events: Final = tuple(events)
        #: Every send of a record, by uid.
        self.sends: Final[defaultdict[str, list[Sending]]] = defaultdict(list)
        self.acknowledged: Final[list[tuple[Event, Acknowledged]]] = []
        #: How often a record has certainly failed.
        self.failed: Final[defaultdict[str, int]] = defaultdict(int)
        #: The records that were sent in each transaction.
        self.records_of: Final[defaultdict[str, list[str]]] = defaultdict(list)
        self.outcomes: Final[dict[str, TransactionOutcome]] = {}
        self.polls: Final[list[tuple[Event, Polled]]] = []
        #: Where each client was killed.
        self.killed: Final[dict[str, int]] = {}
        self.positions: Final[dict[str, Positions]] = {}
        self.drained: Final[list[Drained]] = []
        #: Groups with members that subscribe, and whose clients tell the generation.
        self.with_generations: Final[set[str]] = set()
        #: The group of each consumer that has one.
        self.group_of: Final[dict[str, str]] = {}
        #: Where in the history a group began again with its first generation.
        self.began_again: Final[defaultdict[str, list[int]]] = defaultdict(list)
        #: Where in the history its committed offsets went with it for the last time.
        self.forgotten: Final[dict[str, int]] = {}
        self.logs: Final[dict[TopicPartition, PartitionLog]] = {}
        #: Where in the history the records below which offset may go; each is higher than the one before.
        self._deleting: Final[defaultdict[TopicPartition, list[tuple[int, int]]]] = defaultdict(list)
        self._read()
        self._told_logs()

    def _read(self) -> None:
        for index, event in enumerate(self.events):
            match event.fact:
                case Sent() as sent:
                    self.sends[sent.uid].append(Sending(index, event.who, sent))
                    if sent.txn is not None:
                        self.records_of[sent.txn].append(sent.uid)
                case Acknowledged() as told:
                    self.acknowledged.append((event, told))
                case Failed(uid=uid):
                    self.failed[uid] += 1
                case Ended(txn=txn, outcome=outcome):
                    self.outcomes[txn] = outcome
                case Polled() as polled:
                    self.polls.append((event, polled))
                    if polled.group is not None:
                        self.group_of[event.who] = polled.group
                case Assigned(group=group, generation=generation):
                    if generation >= 0:
                        self.with_generations.add(group)
                    self.group_of[event.who] = group
                case GroupBegan(group=group) as began:
                    self.began_again[group].append(index)
                    if not began.keeps_offsets:
                        self.forgotten[group] = index
                case Killed():
                    self.killed[event.who] = index
                case Positions() as positions:
                    self.positions[positions.group] = positions
                case Drained() as drained:
                    self.drained.append(drained)
                case Deleting(tp=tp, offset=offset) | Deleted(tp=tp, offset=offset):
                    if tp not in self._deleting or offset > self.deleting(tp):
                        self._deleting[tp].append((index, offset))
                case Log() as log:
                    self.logs[log.tp] = PartitionLog(log.tp, log, sorted(log.records))
                case _:
                    pass

    def deleting(self, tp: TopicPartition, index: int = NEVER) -> int:
        """The offset below which records may have been deleted at this moment of the history.

        Where nobody has told of a deletion, what is below the log's start may have gone at any time.
        """
        if tp not in self._deleting:
            log = self.logs.get(tp)
            return 0 if log is None or log.fact is None else log.fact.start_offset
        asked = self._deleting[tp]
        at = bisect_left(asked, (index, 0))
        return asked[at - 1][1] if at else 0

    def may_be_gone(self, log: Log, offset: int) -> bool:
        """Whether what was at an offset need not be in the log: it may have been deleted or compacted."""
        return log.compacted or offset < self.deleting(log.tp)

    def before_generation_0(self, group: str, index: int) -> int:
        """What to add to a generation that a group had at this moment, so that all of its generations are in order."""
        return bisect_right(self.began_again.get(group, ()), index) * LIFE_OF_A_GROUP

    def _told_logs(self) -> None:
        """The logs of partitions that nobody has read back: what producers and consumers were told of them."""
        told: defaultdict[TopicPartition, dict[int, LogRecord]] = defaultdict(dict)
        for _, polled in self.polls:
            for tp, offset, uid in polled.records:
                if tp not in self.logs:
                    visible = polled.read_committed or self.must_be_visible(uid)
                    there = told[tp].get(offset)
                    if there is None or (visible and not there.visible and there.uid == uid):
                        told[tp][offset] = LogRecord(offset, uid, visible)
        for _, record in self.acknowledged:
            if record.offset >= 0 and record.tp not in self.logs:
                told[record.tp].setdefault(
                    record.offset, LogRecord(record.offset, record.uid, self.must_be_visible(record.uid))
                )
        for tp, records in told.items():
            self.logs[tp] = PartitionLog(tp, None, sorted(records.values()))

    @property
    def known_logs(self) -> Iterator[PartitionLog]:
        """The logs that were read back."""
        return (log for log in self.logs.values() if log.fact is not None)

    @property
    def has_every_log(self) -> bool:
        """Whether each partition of the history was read back whole: what is in none of them is nowhere."""
        whole = (
            log.fact is not None and not log.fact.compacted and log.fact.start_offset == 0 for log in self.logs.values()
        )
        named = (told.tp in self.logs for _, told in self.acknowledged)  # one may be named only without an offset
        return bool(self.logs) and all(whole) and all(named)

    def outcome_of(self, send: Sending) -> TransactionOutcome:
        """What became of the transaction of a send; a record without one counts as committed."""
        return "committed" if send.fact.txn is None else self.outcomes.get(send.fact.txn, "unknown")

    def must_be_visible(self, uid: str) -> bool:
        """Whether a written record has to be there for read_committed consumers."""
        return any(self.outcome_of(send) == "committed" for send in self.sends.get(uid, ()))

    def must_not_be_visible(self, uid: str) -> bool:
        """Whether the user was told of each send of the record that it is aborted."""
        sends = self.sends.get(uid)
        return bool(sends) and all(self.outcome_of(send) == "aborted" for send in sends or ())

    def has_failed(self, uid: str) -> bool:
        """Whether each send of the record has certainly failed."""
        return 0 < len(self.sends.get(uid, ())) <= self.failed.get(uid, 0)

    def senders(self, uid: str) -> tuple[str, ...]:
        """Who sent the record, and in which transactions: for `Anomaly.about`."""
        sends = self.sends.get(uid, ())
        txns = (send.fact.txn for send in sends if send.fact.txn is not None)
        return tuple(dict.fromkeys((*(send.who for send in sends), *txns)))

"""What damaged files have cost a world's partitions, as the broker has told: who checks the history expects no more.

Batches that are gone take their records with them. A marker that is gone leaves its transaction without an end there,
whatever its user was told. Their offsets may be used again, and a reader may have been behind them already.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from ottla.base.types import TopicPartition
from ottla.log.damage import OffsetRange
from ottla.testing.history.check import anomalies_of
from ottla.testing.history.facts import (
    Acknowledged,
    Assigned,
    Drained,
    Log,
    Polled,
    Read,
    Revoked,
    Sent,
    Sought,
    Unknown,
)
from sim.check import Anomaly, LogRecord, Told, records_of
from sim.cluster.log import Entry

#: Records with their places.
Places: TypeAlias = frozenset[tuple[TopicPartition, int, str]]
#: Batches of one producer beside another one, at most (`max.in.flight.requests.per.connection`).
_ON_THEIR_WAY: Final = 4
#: What is judged without the readers.
_OF_WRITERS: Final = (
    "lost-write",
    "refused-write",
    "duplicate",
    "nonmonotonic-send",
    "unknown-record",
    "inconsistent-offsets",
    "torn-transaction",
    "stuck-lso",
    "unprocessed",
    "never-settled",
)


class Losses:
    """Of one world; `add` for each start that found less than there was before."""

    def __init__(self) -> None:
        #: Values of records that are gone, and of those whose transaction has lost its marker.
        self.uids: set[str] = set()
        self.unsettled: set[str] = set()
        #: Offsets of all batches that are gone, or that the broker refuses to read.
        self.offsets: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        #: Which batches of idempotent producers are gone: the producer's id and epoch, and where it was.
        self._gone: defaultdict[TopicPartition, list[tuple[int, int, int]]] = defaultdict(list)
        #: Transactions whose markers the last start has lost, by producer id and where they begin: nobody will end them
        #: there. -1: at a batch that is gone, too.
        self._hanging: defaultdict[TopicPartition, set[tuple[int, int]]] = defaultdict(set)
        #: Offsets that nobody has used again: those that the last start has lost, or refuses.
        self._gaps: defaultdict[TopicPartition, set[int]] = defaultdict(set)

    def add(self, tp: TopicPartition, before: Sequence[Entry], gone: Sequence[Entry]) -> None:
        """Some batches of `before` are `gone`."""
        offsets = {entry.base_offset for entry in gone}
        self._hanging[tp] -= {each for each in self._hanging[tp] if each[1] in offsets}
        for entry in gone:
            self.offsets[tp].update(range(entry.base_offset, entry.last_offset + 1))
            self._gaps[tp].update(range(entry.base_offset, entry.last_offset + 1))
            if not entry.header.is_control:
                self.uids.update(record.uid for record in records_of([entry]))
                self._gone[tp].append((entry.header.producer_id, entry.header.producer_epoch, entry.base_offset))
        for marker, batches in ended(before):
            if marker.base_offset in offsets:
                self.unsettled.update(record.uid for batch in batches for record in records_of([batch]))
                starts = [batch.base_offset for batch in batches if batch.base_offset not in offsets]
                self._hanging[tp].add((marker.header.producer_id, min(starts, default=-1)))

    def begin(self) -> None:
        """Another start: offsets that were lost before may have been used again."""
        self._gaps.clear()
        for known in self._hanging.values():
            known -= {each for each in known if each[1] < 0}

    def is_hanging(self, tp: TopicPartition, producer_id: int, start_offset: int) -> bool:
        """Whether the last start has lost the marker of a producer's transaction that begins there."""
        known = self._hanging.get(tp, set())
        began_in_gap = (producer_id, -1) in known and start_offset in self._gaps.get(tp, ())
        return start_offset >= 0 and ((producer_id, start_offset) in known or began_in_gap)

    def refuse(self, tp: TopicPartition, ranges: Iterable[OffsetRange]) -> None:
        """The broker has told that it refuses to read these offsets. Some of their batches may be sound."""
        for first, end in ranges:
            self.offsets[tp].update(range(first, end))
            self._gaps[tp].update(range(first, end))

    def but_sent_again(self, tp: TopicPartition, entries: Sequence[Entry]) -> list[Entry]:
        """The batches without those that were on their way with one that is gone, and are there again.

        Nobody had been told that they were written. The broker has forgotten the one that is gone, with the snapshot
        that knew it, and takes it for the next one no more; so the client sends all of them in its next epoch.
        """
        left = list(entries)
        for producer_id, epoch, gone_offset in self._gone.get(tp, ()):
            behind = [
                each
                for each in entries
                if each.header.producer_id == producer_id
                and each.base_offset > gone_offset
                and not each.header.is_transactional
            ]
            again = {record.uid for record in records_of([e for e in behind if e.header.producer_epoch > epoch])}
            beside = [each for each in behind if each.header.producer_epoch == epoch][:_ON_THEIR_WAY]
            for each in beside:
                if again.issuperset(record.uid for record in records_of([each])) and each in left:
                    left.remove(each)
                    self.offsets[tp].update(range(each.base_offset, each.last_offset + 1))
        return left

    def judge(self, facts: Sequence[Told]) -> list[Anomaly]:
        """All anomalies. The readers are judged apart from the writers once something is gone."""
        if not self.offsets:
            return anomalies_of(facts)
        return anomalies_of(self._of_writers(facts)) + anomalies_of(self._of_readers(facts), ignore=_OF_WRITERS)

    def _of_writers(self, facts: Sequence[Told]) -> Iterator[Told]:
        """What is gone has no place, and a transaction that lost something no end."""
        there, hurt = _places(facts), self._hurt(facts)
        for told in facts:
            match told.fact:
                case Polled() | Drained() | Sought() | Assigned() | Revoked():
                    pass
                case Acknowledged(uid=uid, tp=tp, offset=offset) if uid in self.uids and (tp, offset, uid) not in there:
                    yield replace(told, fact=Unknown(uid, "lost with a damaged file"))
                case Sent(txn=str(txn)) as sent if txn in hurt:
                    yield replace(told, fact=replace(sent, txn=None))
                case _:
                    yield told

    def _of_readers(self, facts: Sequence[Told]) -> Iterator[Told]:
        """They may have been behind what is gone, or have it, or see it in another way than those who come later."""
        there, hurt = _places(facts), self._hurt(facts)
        for told in facts:
            match told.fact:
                case Acknowledged():
                    pass
                case Log(tp=tp, records=records) as log:
                    yield replace(told, fact=replace(log, records=tuple(r for r in records if self._certain(tp, r))))
                case Polled(records=reads) as polled:
                    yield replace(told, fact=replace(polled, records=tuple(r for r in reads if self._kept(r, there))))
                case Sent(txn=str(txn)) as sent if txn in hurt:
                    yield replace(told, fact=replace(sent, txn=None))
                case _:
                    yield told

    def _hurt(self, facts: Iterable[Told]) -> frozenset[str | None]:
        """Transactions that have lost records, or a marker."""
        sent = (told.fact for told in facts if isinstance(told.fact, Sent))
        return frozenset(fact.txn for fact in sent if fact.uid in self.uids or fact.uid in self.unsettled)

    def _certain(self, tp: TopicPartition, record: LogRecord) -> bool:
        return record.offset not in self.offsets.get(tp, ()) and record.uid not in self.unsettled

    def _kept(self, read: Read, there: Places) -> bool:
        gone = read.uid in self.uids and (read.tp, read.offset, read.uid) not in there
        return not gone and read.offset not in self.offsets.get(read.tp, ()) and read.uid not in self.unsettled


def _places(facts: Iterable[Told]) -> Places:
    """Where records are in the end. One that was gone may have been sent again."""
    logs = (told.fact for told in facts if isinstance(told.fact, Log))
    return frozenset((log.tp, record.offset, record.uid) for log in logs for record in log.records)


def ended(entries: Iterable[Entry]) -> Iterator[tuple[Entry, list[Entry]]]:
    """Each marker, with the batches of its transaction."""
    open_now: defaultdict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.header.is_control:
            yield entry, open_now.pop(entry.header.producer_id, [])
        elif entry.header.is_transactional:
            open_now[entry.header.producer_id].append(entry)


def missing(before: Iterable[Entry], after: Iterable[Entry]) -> list[Entry]:
    """The batches that were there before, and are not there after."""
    left = {entry.base_offset for entry in after}
    return [entry for entry in before if entry.base_offset not in left]


def new_records(before: Sequence[Entry], after: Sequence[Entry]) -> list[LogRecord]:
    """Records that were not there before, at their offsets."""
    known: Mapping[int, str] = {record.offset: record.uid for record in records_of(list(before))}
    return [record for record in records_of(list(after)) if known.get(record.offset) != record.uid]


def taken_by_power(
    tp: TopicPartition, before: Sequence[LogRecord], after: Sequence[LogRecord], *, start: int, recovery_point: int
) -> tuple[list[LogRecord], list[Anomaly]]:
    """What a loss of power has taken of a log, but for what was deleted; and what is wrong: a record that was not there
    before, or one that is gone and was below the recovery point."""
    found = []
    there = {record.offset: record.uid for record in before}
    strange = [record for record in after if there.get(record.offset) != record.uid]
    if strange:
        text = f"{tp}@{strange[0].offset}: {strange[0].uid} was not there before the power was lost"
        found.append(Anomaly("unknown-record", text, (strange[0].uid,)))
    left = {record.offset for record in after}
    gone = [record for record in before if record.offset not in left and record.offset >= start]
    covered = [record for record in gone if record.offset < recovery_point]
    if covered:
        text = f"{tp}: the recovery point is {recovery_point}, and {covered[0].uid}@{covered[0].offset} is gone"
        found.append(Anomaly("lost-flushed", text, (covered[0].uid,)))
    return gone, found

"""Checkers of single reads: vanished-read, aborted-read, precommitted-read, intermediate-read."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.base.types import TopicPartition
from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.evidence import NEVER, Evidence
from ottla.testing.history.facts import Began, Ending, Polled, Sought


def vanished_read(evidence: Evidence) -> Iterator[Anomaly]:
    """A consumer was given a record that is not in the log.

    Excused: what was deleted or compacted since, and an aborted record if only committed ones were read back.
    """
    for event, polled in evidence.polls:
        for tp, offset, uid in polled.records:
            log = evidence.logs[tp]
            record = log.by_offset.get(offset)
            if log.fact is None or (record is not None and record.uid == uid):
                continue
            gone = evidence.may_be_gone(log.fact, offset)
            aborted = log.fact.committed_only and not polled.read_committed
            if record is not None or not (gone or aborted):
                there = "nothing" if record is None else record.uid
                text = f"{event.who} was given {uid} at {tp}@{offset}, where {there} is"
                yield Anomaly("vanished-read", text, (uid, event.who))


def aborted_read(evidence: Evidence) -> Iterator[Anomaly]:
    """A read_committed consumer was given a record that is not committed, or any consumer one that has failed (G1a).

    Without a log, and where the record has gone from it, the user's word counts: each transaction in which the record
    was sent is aborted.
    """
    for event, polled in evidence.polls:
        for tp, offset, uid in polled.records:
            record, log = evidence.logs[tp].by_offset.get(offset), evidence.logs[tp]
            about = (uid, event.who, *evidence.senders(uid))
            if evidence.has_failed(uid):
                text = f"{event.who} was given {uid} at {tp}@{offset}, although its send has failed for sure"
                yield Anomaly("aborted-read", text, about)
            elif not polled.read_committed:
                continue
            elif evidence.must_not_be_visible(uid) and (
                log.fact is None or (record is None and evidence.may_be_gone(log.fact, offset))
            ):
                text = f"{event.who} was given {uid} at {tp}@{offset}, and its transaction was aborted"
                yield Anomaly("aborted-read", text, about)
            elif log.fact is not None and record is not None and record.uid == uid and not record.visible:
                text = f"{event.who} was given {uid} at {tp}@{offset}, which is not committed"
                yield Anomaly("aborted-read", text, about)


def precommitted_read(evidence: Evidence) -> Iterator[Anomaly]:
    """A read_committed consumer was given a record before anybody asked for the commit of its transaction.

    Jepsen's case is a transaction that reads its own write. Looked for in transactions whose beginning (`Began`) or end
    (`Ending`) was noted, but not where the end was noted only afterwards (`Ended` without `Ending`); nor for a record
    that was sent twice.
    """
    asked: set[str] = set()
    ends = {event.fact.txn for event in evidence.events if isinstance(event.fact, Ending)}
    begun = {event.fact.txn for event in evidence.events if isinstance(event.fact, Began)}
    noted = ends | (begun - evidence.outcomes.keys())
    for event in evidence.events:
        match event.fact:
            case Ending(txn=ending, commit=True):
                asked.add(ending)
            case Polled(read_committed=True) as polled:
                for tp, offset, uid in polled.records:
                    sends = evidence.sends.get(uid, ())
                    txn = sends[0].fact.txn if len(sends) == 1 else None
                    if txn in noted and txn not in asked:
                        text = (
                            f"{event.who} was given {uid} at {tp}@{offset} before anybody asked for a commit of {txn}"
                        )
                        yield Anomaly("precommitted-read", text, (uid, event.who, *evidence.senders(uid)))
            case _:
                pass


def intermediate_read(evidence: Evidence) -> Iterator[Anomaly]:
    """read_committed readers were given a part of a transaction, and have read past the rest of it (G1b).

    The readers are a group, or one consumer without a group. They have read past a record if they were given one before
    it and one behind it in its partition, or have read the partition to its end. Excused: a seek forward, and what may
    have been deleted or compacted.
    """
    if not evidence.records_of:
        return
    places = _places(evidence)
    for reader, reading in _readings(evidence).items():
        for txn in reading.transactions(evidence):
            whole = [uid for uid in evidence.records_of[txn] if len(evidence.sends[uid]) == 1]
            missing = [
                uid
                for uid in whole
                if uid not in reading.uids and uid in places and reading.passed(*places[uid])
                if not _may_be_gone(evidence, *places[uid])
            ]
            if missing:
                seen = [uid for uid in whole if uid in reading.uids]
                text = f"{reader} was given {', '.join(seen[:5])} of {txn}, and has read past {', '.join(missing[:5])}"
                yield Anomaly("intermediate-read", text, (*missing[:3], *seen[:3], reader, txn))


def _may_be_gone(evidence: Evidence, tp: TopicPartition, offset: int) -> bool:
    """Whether a record may have been deleted or compacted before it was read."""
    log = evidence.logs[tp]
    compacted = log.fact is not None and log.fact.compacted and offset not in log.by_offset
    return compacted or offset < evidence.deleting(tp)


@dataclass(slots=True)
class _Reading:
    """What the read_committed readers of a group were given."""

    uids: set[str] = field(default_factory=set)
    #: Partition → lowest and highest offset that was given.
    spans: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    drained: set[TopicPartition] = field(default_factory=set)
    #: Partition → the highest offset that somebody has sought.
    sought: dict[TopicPartition, int] = field(default_factory=dict)

    def transactions(self, evidence: Evidence) -> Iterator[str]:
        """The transactions of which the readers were given something; a record that was sent twice does not count."""
        found: dict[str, None] = {}
        for uid in self.uids:
            sends = evidence.sends.get(uid, ())
            if len(sends) == 1 and sends[0].fact.txn is not None:
                found[sends[0].fact.txn] = None
        yield from sorted(found)

    def passed(self, tp: TopicPartition, offset: int) -> bool:
        """Whether they have read past this offset."""
        if tp in self.drained:
            return True
        lowest, highest = self.spans.get(tp, (NEVER, -1))
        return lowest < offset < highest and self.sought.get(tp, 0) <= offset


def _readings(evidence: Evidence) -> dict[str, _Reading]:
    found: defaultdict[str, _Reading] = defaultdict(_Reading)
    reader_of: dict[str, str] = {}
    for event, polled in evidence.polls:
        if not polled.read_committed:
            continue
        reader_of[event.who] = polled.group or event.who
        reading = found[reader_of[event.who]]
        for tp, offset, uid in polled.records:
            reading.uids.add(uid)
            lowest, highest = reading.spans.get(tp, (offset, offset))
            reading.spans[tp] = (min(lowest, offset), max(highest, offset))
    for event in evidence.events:
        if isinstance(event.fact, Sought) and event.who in reader_of:
            sought = found[reader_of[event.who]].sought
            for tp, offset in event.fact.positions.items():
                sought[tp] = max(sought.get(tp, 0), NEVER if offset < 0 else offset)
    for drained in evidence.drained:
        if drained.read_committed and drained.group in found:
            found[drained.group].drained.update(drained.partitions)
    return found


def _places(evidence: Evidence) -> dict[str, tuple[TopicPartition, int]]:
    """Where each record is, as far as it is known."""
    found = {told.uid: (told.tp, told.offset) for _, told in evidence.acknowledged if told.offset >= 0}
    for log in evidence.known_logs:
        found.update((record.uid, (log.tp, record.offset)) for record in log.records)
    return found

"""Checkers of what was written: lost-write, refused-write, duplicate, nonmonotonic-send, unknown-record."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.base.types import TopicPartition
from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.evidence import Evidence, PartitionLog
from ottla.testing.history.facts import Acknowledged, LogRecord


def lost_write(evidence: Evidence) -> Iterator[Anomaly]:
    """A record was acknowledged, and it is not where it was said to be.

    Excused: what was deleted or compacted, and an aborted record if only committed ones were read back. Nothing is
    expected of a record whose producer gave up on it. Without a log, consumers stand for it (Jepsen's rule): the
    record is lost if nobody was given it, although somebody was given an earlier one and a later one of its
    partition.
    """
    given = _given(evidence)
    without = _Without(evidence)
    for event, told in evidence.acknowledged:
        place = f"{told.tp}@{told.offset}"
        log = evidence.logs.get(told.tp)
        if log is None or log.fact is None:
            may_be_gone = told.offset < evidence.deleting(told.tp)
            if given[told.tp].passed(told) and evidence.must_be_visible(told.uid) and not may_be_gone:
                text = f"{told.uid} was acknowledged at {place}; consumers have read on, and were never given it"
                yield Anomaly("lost-write", text, (told.uid, event.who))
        elif told.offset >= 0:
            there = log.by_offset.get(told.offset)
            if there is None and not _may_lack(evidence, log, told):
                text = f"{told.uid} was acknowledged at {place}, but nothing is there"
                yield Anomaly("lost-write", text, (told.uid, event.who))
            elif there is not None and there.uid != told.uid:
                text = f"{told.uid} was acknowledged at {place}, but {there.uid} is there"
                yield Anomaly("lost-write", text, (told.uid, event.who))
        elif without.is_missing(log, told) and not _may_lack(evidence, log, told):
            text = f"{told.uid} was acknowledged in {told.tp} without an offset, and the log does not have it"
            yield Anomaly("lost-write", text, (told.uid, event.who))


class _Without:
    """Records that were acknowledged without an offset: each send of one needs a place in the log of its own."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._told = Counter((told.tp, told.uid) for _, told in evidence.acknowledged)
        self._copies: dict[TopicPartition, Counter[str]] = {}

    def is_missing(self, log: PartitionLog, told: Acknowledged) -> bool:
        """Whether the log has fewer of the record than were acknowledged. A send that was told of twice counts once."""
        if log.tp not in self._copies:
            self._copies[log.tp] = Counter(record.uid for record in log.records)
        sends = self._evidence.sends.get(told.uid, ())
        if log.fact is not None and log.fact.committed_only:
            sends = [send for send in sends if self._evidence.outcome_of(send) == "committed"]
        needed = min(self._told[log.tp, told.uid], max(1, len(sends)))
        return self._copies[log.tp][told.uid] < needed


@dataclass(slots=True)
class _Given:
    """What consumers were given of a partition."""

    uids: set[str] = field(default_factory=set)
    lowest: int = 1 << 62
    highest: int = -1

    def passed(self, told: Acknowledged) -> bool:
        """Whether they have read from before the record to behind it, without it."""
        return self.lowest < told.offset < self.highest and told.uid not in self.uids


def _given(evidence: Evidence) -> defaultdict[TopicPartition, _Given]:
    found: defaultdict[TopicPartition, _Given] = defaultdict(_Given)
    for _, polled in evidence.polls:
        for tp, offset, uid in polled.records:
            if evidence.logs[tp].fact is None:
                given = found[tp]
                given.uids.add(uid)
                given.lowest, given.highest = min(given.lowest, offset), max(given.highest, offset)
    return found


def _may_lack(evidence: Evidence, log: PartitionLog, told: Acknowledged) -> bool:
    """Whether an acknowledged record need not be in the log that was read back."""
    fact = log.fact
    assert fact is not None
    deleted = evidence.may_be_gone(fact, max(told.offset, 0))
    return fact.compacted or deleted or (fact.committed_only and not evidence.must_be_visible(told.uid))


def refused_write(evidence: Evidence) -> Iterator[Anomaly]:
    """A record is in the log although its user was told that it has certainly failed, and may have sent it again."""
    for log in evidence.known_logs:
        for record in log.records:
            if evidence.has_failed(record.uid):
                text = f"{record.uid} is at {log.tp}@{record.offset}, although its send has failed for sure"
                yield Anomaly("refused-write", text, (record.uid, *evidence.senders(record.uid)))


def duplicate(evidence: Evidence) -> Iterator[Anomaly]:
    """A record is there more often than it was sent (idempotence, KIP-98).

    A record that the user sent again may be there as often, but for the sends that have certainly failed; of its
    visible copies, as often as it was sent without an abort. `exactly_once` finds an input of a pipeline that became
    two outputs.
    """
    places: defaultdict[str, list[str]] = defaultdict(list)
    visible: defaultdict[str, int] = defaultdict(int)
    for log in evidence.logs.values():
        for record in log.records:
            places[record.uid].append(f"{log.tp}@{record.offset}")
            visible[record.uid] += record.visible
    for uid, found in places.items():
        if len(found) == 1:
            continue
        sends = evidence.sends.get(uid, ())
        failed = evidence.failed.get(uid, 0)
        most = len(sends) - failed
        most_visible = min(most, sum(evidence.outcome_of(send) != "aborted" for send in sends))
        if len(found) > max(1, most) or visible[uid] > max(1, most_visible):
            but = f", of which {failed} failed for sure" if failed else ""
            text = f"{uid} is at {' and at '.join(found)}, and was sent {_times(len(sends))}{but}"
            yield Anomaly("duplicate", text, (uid, *evidence.senders(uid)))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def nonmonotonic_send(evidence: Evidence) -> Iterator[Anomaly]:
    """A partition has records of one producer in another order than the producer's user sent them.

    Records of different producers have no order; nor has one that was sent twice. A second copy is a duplicate.
    """
    for log in evidence.logs.values():
        last: dict[tuple[str, str], tuple[int, LogRecord]] = {}
        seen: set[str] = set()
        for record in log.records:
            sends = evidence.sends.get(record.uid, ())
            if len(sends) != 1 or record.uid in seen:
                continue
            seen.add(record.uid)
            producer = (sends[0].who, sends[0].fact.producer)
            before = last.get(producer)
            if before is not None and before[0] > sends[0].index:
                first = before[1]
                places = f"{first.uid}@{first.offset} is before {record.uid}@{record.offset}"
                about = (first.uid, record.uid, *evidence.senders(record.uid))
                yield Anomaly("nonmonotonic-send", f"{log.tp}: {places}, and was sent after it", about)
            last[producer] = (sends[0].index, record)


def unknown_record(evidence: Evidence) -> Iterator[Anomaly]:
    """A log has a record, or a consumer was given one, that nobody has sent. Not looked for if no send was noted."""
    if not evidence.sends:
        return
    for log in evidence.logs.values():
        for record in log.records:
            if record.uid not in evidence.sends:
                text = f"{log.tp}@{record.offset}: nobody has sent {record.uid!r}"
                yield Anomaly("unknown-record", text, (record.uid,))

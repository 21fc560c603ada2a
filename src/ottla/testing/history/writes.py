"""Checkers of what was written: lost-write, refused-write, duplicate, nonmonotonic-send, unknown-record."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.base.types import TopicPartition
from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.evidence import Evidence, PartitionLog
from ottla.testing.history.facts import Acknowledged, Assigned, Log, LogRecord, Polled, Revoked, Sought
from ottla.testing.history.seeks import Reached


def lost_write(evidence: Evidence) -> Iterator[Anomaly]:
    """A record was acknowledged, and it is not where it was said to be; or, being of no transaction, it is hidden from
    readers of committed records below the last stable offset.

    Excused: what was deleted or compacted, and an aborted record if only committed ones were read back. Nothing is
    expected of a record whose producer gave up on it. Without a log, consumers stand for it (Jepsen's rule): the
    record is lost if nobody was given it, although somebody was given an earlier one and a later one of its
    partition, and nobody has passed it by a seek forward.
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
            elif there is not None and _is_hidden(evidence, log.fact, there):
                text = f"{told.uid} was acknowledged at {place}, and readers of committed records are not given it"
                yield Anomaly("lost-write", text, (told.uid, event.who))
        elif without.is_missing(log, told) and not _may_lack(evidence, log, told):
            text = f"{told.uid} was acknowledged in {told.tp} without an offset, and the log lacks it, or hides it"
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
            there = (record for record in log.records if not _is_hidden(self._evidence, log.fact, record))
            self._copies[log.tp] = Counter(record.uid for record in there)
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
    #: The offsets that somebody has passed by a seek.
    sought: list[range] = field(default_factory=list)

    def seek(self, passed: range) -> None:
        """Somebody has passed these offsets, if there are any."""
        if passed.start < passed.stop:
            self.sought.append(passed)

    def passed(self, told: Acknowledged) -> bool:
        """Whether they have read from before the record to behind it, without it and without a seek over it."""
        between = self.lowest < told.offset < self.highest and told.uid not in self.uids
        return between and all(told.offset not in passed for passed in self.sought)


def _given(evidence: Evidence) -> defaultdict[TopicPartition, _Given]:
    found: defaultdict[TopicPartition, _Given] = defaultdict(_Given)
    reached: defaultdict[tuple[str, TopicPartition], Reached] = defaultdict(Reached)
    for event in evidence.events:
        reader = evidence.group_of.get(event.who, event.who)
        match event.fact:
            case Polled(records=records):
                for tp, offset, uid in records:
                    if evidence.logs[tp].fact is None:
                        given = found[tp]
                        given.uids.add(uid)
                        given.lowest, given.highest = min(given.lowest, offset), max(given.highest, offset)
                        given.seek(reached[reader, tp].given(event.who, offset))
            case Sought(positions=positions):
                for tp, offset in positions.items():
                    found[tp].seek(reached[reader, tp].sought(event.who, offset))
            case Assigned(partitions=partitions) | Revoked(partitions=partitions):
                for tp in partitions:
                    reached[reader, tp].changed(event.who)
            case _:
                pass
    return found


def _is_hidden(evidence: Evidence, log: Log | None, record: LogRecord) -> bool:
    """Whether a record of no transaction is kept from readers of committed records, who may read as far as that."""
    if record.visible or log is None or log.last_stable_offset is None or record.offset >= log.last_stable_offset:
        return False
    sends = evidence.sends.get(record.uid, ())
    is_plain = bool(sends) and all(send.fact.txn is None for send in sends)
    return is_plain and not evidence.may_be_gone(log, record.offset)  # it may have gone while the log was read


def _may_lack(evidence: Evidence, log: PartitionLog, told: Acknowledged) -> bool:
    """Whether an acknowledged record need not be in the log that was read back."""
    fact = log.fact
    assert fact is not None
    gone = evidence.may_be_gone(fact, max(told.offset, 0))
    return gone or (fact.committed_only and not evidence.must_be_visible(told.uid))


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

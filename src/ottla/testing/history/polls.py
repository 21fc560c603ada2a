"""Checkers of positions: nonmonotonic-poll, poll-skip, unseen."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.evidence import Evidence
from ottla.testing.history.facts import Acknowledged, Assigned, Drained, Polled, Revoked, Sought


class _Last(NamedTuple):
    """Where a consumer is: behind this offset, because of this record or of a seek (None)."""

    offset: int
    uid: str | None


def polled_in_order(evidence: Evidence) -> Iterator[Anomaly]:
    """A consumer kept a partition, and went back (nonmonotonic-poll) or left out records (poll-skip), without a seek.

    Within one poll and between two, as Jepsen's int- and external cases. After a seek to an offset that is known,
    the next record is the first one from there on. Excused: an assignment that changed in between; gaps in the log
    (control records, compaction, what was deleted by then); what a read_committed consumer must not return.
    """
    last: dict[tuple[str, TopicPartition], _Last] = {}
    for index, event in enumerate(evidence.events):
        match event.fact:
            case Assigned(partitions=partitions) | Revoked(partitions=partitions):
                for tp in partitions:
                    last.pop((event.who, tp), None)
            case Sought(positions=positions):
                for tp, offset in positions.items():
                    last.pop((event.who, tp), None)
                    if offset >= 0:
                        last[event.who, tp] = _Last(offset - 1, None)
            case Polled() as polled:
                for tp, offset, uid in polled.records:
                    before = last.get((event.who, tp))
                    if before is not None and offset <= before.offset:
                        yield _back(event.who, tp, before, _Last(offset, uid))
                    elif before is not None and offset > before.offset + 1:
                        since = _Last(max(before.offset, evidence.deleting(tp, index) - 1), before.uid)
                        yield from _skipped(evidence, event.who, tp, since, offset, polled)
                    last[event.who, tp] = _Last(offset, uid)
            case _:
                pass


def _back(who: str, tp: TopicPartition, before: _Last, now: _Last) -> Anomaly:
    after = f"a seek to {before.offset + 1}" if before.uid is None else f"{before.offset} ({before.uid})"
    about = (str(now.uid), who) if before.uid is None else (str(now.uid), before.uid, who)
    return Anomaly("nonmonotonic-poll", f"{who}: {tp}@{now.offset} ({now.uid}) after {after}", about)


def _skipped(
    evidence: Evidence, who: str, tp: TopicPartition, before: _Last, offset: int, polled: Polled
) -> Iterator[Anomaly]:
    missed = evidence.logs[tp].between(before.offset, offset, committed_only=polled.read_committed)
    if missed:
        names = ", ".join(f"{record.uid}@{record.offset}" for record in missed[:5])
        start = f"a seek to {before.offset + 1}" if before.uid is None else f"{before.offset}"
        yield Anomaly("poll-skip", f"{who}: {tp} from {start} to {offset}, over {names}", (missed[0].uid, who))


def unseen(evidence: Evidence) -> Iterator[Anomaly]:
    """A group has read to the end (`Drained`), and no member was given a record of the log.

    Without a log: a record that was acknowledged, and is not aborted. Excused: what was deleted before it was read.
    """
    if not evidence.drained:
        return
    seen: defaultdict[str, set[tuple[TopicPartition, int]]] = defaultdict(set)
    uids: defaultdict[str, set[str]] = defaultdict(set)
    for _, polled in evidence.polls:
        if polled.group is not None:
            seen[polled.group].update((tp, offset) for tp, offset, _ in polled.records)
            uids[polled.group].update(uid for _, _, uid in polled.records)
    for drained in evidence.drained:
        for tp in drained.partitions:
            log = evidence.logs.get(tp)
            for record in () if log is None else log.records:
                wanted = record.visible or not drained.read_committed
                wanted = wanted and record.offset >= evidence.deleting(tp)
                if wanted and (tp, record.offset) not in seen[drained.group]:
                    text = f"no member of {drained.group} was given {record.uid} at {tp}@{record.offset}"
                    yield Anomaly("unseen", text, (record.uid, *evidence.senders(record.uid)))
        for who, told in _nowhere(evidence, drained):
            if told.uid not in uids[drained.group]:
                text = f"no member of {drained.group} was given {told.uid}, acknowledged in {told.tp} without an offset"
                yield Anomaly("unseen", text, (told.uid, who))


def _nowhere(evidence: Evidence, drained: Drained) -> Iterator[tuple[str, Acknowledged]]:
    """The records that were acknowledged without an offset in partitions that the group has read and no test has."""
    for event, told in evidence.acknowledged:
        if told.offset < 0 and told.tp in drained.partitions:
            log = evidence.logs.get(told.tp)
            if (log is None or log.fact is None) and evidence.must_be_visible(told.uid):
                yield event.who, told

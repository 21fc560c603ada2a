"""Checkers of consumers: which records they returned, in which order, and what they committed."""

from collections import defaultdict
from collections.abc import Callable, Iterator

from ottla.base.types import TopicPartition
from sim.check import Anomaly, Evidence
from sim.history import Assigned, Committed, Event, Polled, Sought


def check_readers(evidence: Evidence) -> list[Anomaly]:
    """All anomalies of consumers."""
    return [anomaly for checker in _CHECKERS for anomaly in checker(evidence)]


def aborted_read(evidence: Evidence) -> Iterator[Anomaly]:
    """A read_committed consumer returned a record that is not committed (G1a), or one that is not in the log."""
    where = {(tp, record.offset): record for tp, log in evidence.logs.items() for record in log}
    for event in evidence.events:
        if not isinstance(event.data, Polled):
            continue
        for tp, offset, uid in event.data.records:
            record = where.get((tp, offset))
            if record is None or record.uid != uid:
                there = "nothing" if record is None else record.uid
                text = f"{event.who} was given {uid} at {tp}@{offset}, where {there} is"
                yield Anomaly("vanished-read", text, (uid, event.who))
            elif event.data.read_committed and not record.visible:
                text = f"{event.who} was given {uid} at {tp}@{offset}, which is not committed"
                yield Anomaly("aborted-read", text, (uid, event.who))


def nonmonotonic_poll(evidence: Evidence) -> Iterator[Anomaly]:
    """A consumer kept a partition, and without a seek it went back, or left out records."""
    last: dict[tuple[str, TopicPartition], tuple[int, str]] = {}
    for event in evidence.events:
        match event.data:
            case Assigned(partitions=partitions) | Sought(partitions=partitions):
                for tp in partitions:
                    last.pop((event.who, tp), None)
            case Polled() as polled:
                for tp, offset, uid in polled.records:
                    before = last.get((event.who, tp))
                    if before is not None and offset <= before[0]:
                        text = f"{event.who}: {tp}@{offset} ({uid}) after {before[0]} ({before[1]})"
                        yield Anomaly("nonmonotonic-poll", text, (uid, before[1], event.who))
                    elif before is not None:
                        yield from _skipped(evidence, event.who, tp, (before[0], offset), polled)
                    last[event.who, tp] = (offset, uid)


def _skipped(
    evidence: Evidence, who: str, tp: TopicPartition, between: tuple[int, int], polled: Polled
) -> Iterator[Anomaly]:
    missed = [
        record
        for record in evidence.logs.get(tp, [])
        if between[0] < record.offset < between[1] and (record.visible or not polled.read_committed)
    ]
    if missed:
        names = ", ".join(f"{record.uid}@{record.offset}" for record in missed[:5])
        text = f"{who}: {tp} from {between[0]} to {between[1]}, over {names}"
        yield Anomaly("poll-skip", text, (missed[0].uid, who))


def unseen(evidence: Evidence) -> Iterator[Anomaly]:
    """A group has read to the end, and no member has returned a record of the log."""
    seen: dict[str, set[tuple[TopicPartition, int]]] = defaultdict(set)
    for event in evidence.events:
        if isinstance(event.data, Polled) and event.data.group is not None:
            seen[event.data.group].update((tp, offset) for tp, offset, _ in event.data.records)
    for group, committed_only in evidence.groups.items():
        for tp in sorted(evidence.inputs):
            for record in evidence.logs.get(tp, ()):
                if (record.visible or not committed_only) and (tp, record.offset) not in seen[group]:
                    text = f"no member of {group} was given {record.uid} at {tp}@{record.offset}"
                    yield Anomaly("unseen", text, (record.uid,))


def commit_ahead(evidence: Evidence) -> Iterator[Anomaly]:
    """A position was committed over records that nobody of the group had been given: a crash would lose them."""
    seen: dict[str, set[tuple[TopicPartition, int]]] = defaultdict(set)
    checked: dict[tuple[str, TopicPartition], int] = defaultdict(int)
    for event in evidence.events:
        match event.data:
            case Polled(group=str(group), records=records):
                seen[group].update((tp, offset) for tp, offset, _ in records)
            case Committed(group=group, offsets=offsets):
                for tp, offset in offsets.items():
                    yield from _over(evidence, event, tp, range(checked[group, tp], offset), seen[group])
                    checked[group, tp] = max(checked[group, tp], offset)


def _over(
    evidence: Evidence, event: Event, tp: TopicPartition, offsets: range, given: set[tuple[TopicPartition, int]]
) -> Iterator[Anomaly]:
    group, member_id = event.data.group, event.data.member_id
    for record in evidence.logs.get(tp, ()):
        visible = record.visible or not evidence.groups.get(group, True)
        if visible and record.offset in offsets and (tp, record.offset) not in given:
            text = f"{member_id} committed {tp}@{offsets.stop}, and nobody of {group} had been given {record.uid}"
            yield Anomaly("commit-ahead", f"{text} at {tp}@{record.offset}", (record.uid, member_id))


def two_owners(evidence: Evidence) -> Iterator[Anomaly]:
    """Two members own a partition in the same generation."""
    owner: dict[tuple[str, int, TopicPartition], str] = {}
    for event in evidence.events:
        if isinstance(event.data, Assigned) and event.data.what == "assigned":
            told = event.data
            for tp in told.partitions:
                other = owner.setdefault((told.group, told.generation, tp), event.who)
                if other.partition(".")[0] != event.who.partition(".")[0]:  # a static member comes back
                    text = f"{told.group}: {tp} belongs to {other} and to {event.who} in generation {told.generation}"
                    yield Anomaly("two-owners", text, (other, event.who))


def commit_regression(evidence: Evidence) -> Iterator[Anomaly]:
    """A coordinator accepted a commit of an older generation after one of a newer generation."""
    latest: dict[tuple[str, TopicPartition], Committed] = {}
    for event in evidence.events:
        if not isinstance(event.data, Committed):
            continue
        for tp, offset in event.data.offsets.items():
            before = latest.get((event.data.group, tp))
            if before is not None and event.data.generation < before.generation:
                text = (
                    f"{event.data.group}: {tp}@{offset} of generation {event.data.generation} "
                    f"after {before.offsets[tp]} of generation {before.generation}"
                )
                yield Anomaly("commit-regression", text, (event.data.member_id, before.member_id))
            latest[event.data.group, tp] = event.data


def unfenced_commit(evidence: Evidence) -> Iterator[Anomaly]:
    """A transaction got offsets without the member's generation, so that the coordinator could not refuse them."""
    for event in evidence.events:
        if event.what == "unfenced offsets":
            yield Anomaly("unfenced-commit", event.text)


_CHECKERS: tuple[Callable[[Evidence], Iterator[Anomaly]], ...] = (
    aborted_read,
    nonmonotonic_poll,
    unseen,
    two_owners,
    commit_regression,
    commit_ahead,
    unfenced_commit,
)

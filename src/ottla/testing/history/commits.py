"""Checkers of committed offsets: commit-ahead, commit-regression, unfenced-commit."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.evidence import LIFE_OF_A_GROUP, NEVER, Evidence
from ottla.testing.history.facts import (
    Assigned,
    Began,
    Called,
    Committed,
    Ended,
    Ending,
    OffsetsSent,
    Polled,
    Positions,
    Revoked,
    Sought,
)
from ottla.testing.history.seeks import Reached

_Place = tuple[str, TopicPartition]


def commit_ahead(evidence: Evidence) -> Iterator[Anomaly]:
    """A group's position was committed over records that none of its members had been given: a crash would lose them.

    Counted from where the group began to read: the beginning if it is `Drained`, else the lowest offset that it was
    given by then; later it may have sought to what is before that. What is committed in the end counts, too: clients
    that commit by themselves are not noted. Excused: a commit that failed, offsets of an aborted transaction, records
    that may have been deleted by then, and those that a member has passed by a seek forward.
    """
    start = {(drained.group, tp): 0 for drained in evidence.drained for tp in drained.partitions}
    given: defaultdict[str, set[tuple[TopicPartition, int]]] = defaultdict(set)
    reached: defaultdict[_Place, Reached] = defaultdict(Reached)
    checked: dict[_Place, int] = {}
    committed_only = {drained.group: drained.read_committed for drained in evidence.drained}
    for index, event in enumerate(evidence.events):
        match event.fact:
            case Polled(group=str(group), records=records):
                for tp, offset, _ in records:
                    given[group].add((tp, offset))
                    given[group].update(_records(evidence, tp, reached[group, tp].given(event.who, offset)))
                    start[group, tp] = min(offset, start.get((group, tp), offset))
                committed_only.setdefault(group, event.fact.read_committed)
                continue
            case Sought(positions=positions) if event.who in evidence.group_of:
                group = evidence.group_of[event.who]
                for tp, offset in positions.items():
                    given[group].update(_records(evidence, tp, reached[group, tp].sought(event.who, offset)))
                continue
            case Assigned(group=group, partitions=partitions) | Revoked(group=group, partitions=partitions):
                for tp in partitions:
                    reached[group, tp].changed(event.who)
                continue
            case Committed(group=group, offsets=offsets, member_id=who, outcome="committed" | "unknown"):
                pass
            case OffsetsSent(group=group, offsets=offsets, txn=who) if evidence.outcomes.get(who) != "aborted":
                pass
            case Positions(group=group, offsets=offsets):
                who = group
            case _:
                continue
        for tp, offset in offsets.items():
            since = checked.get((group, tp), start.get((group, tp), NEVER))
            if tp in evidence.logs and since < offset:
                log = evidence.logs[tp]
                given[group].update(_records(evidence, tp, reached[group, tp].committed(offset)))
                for record in log.between(since - 1, offset, committed_only=committed_only.get(group, True)):
                    is_gone = record.offset < evidence.deleting(tp, index)
                    if (tp, record.offset) not in given[group] and not is_gone:
                        text = f"{who or event.who} committed {tp}@{offset}, and nobody of {group} had been given"
                        about = (record.uid, who or event.who)
                        yield Anomaly("commit-ahead", f"{text} {record.uid} at {tp}@{record.offset}", about)
                checked[group, tp] = max(since, offset)


def _records(evidence: Evidence, tp: TopicPartition, passed: range) -> set[tuple[TopicPartition, int]]:
    """The places of the records that a seek has passed."""
    if tp not in evidence.logs or passed.start >= passed.stop:
        return set()
    between = evidence.logs[tp].between(passed.start - 1, passed.stop, committed_only=False)
    return {(tp, record.offset) for record in between}


class _Commit(NamedTuple):
    """A commit of one partition's offset: it took effect at some moment from `began` to `ended`."""

    offset: int
    generation: int
    by: str
    began: int
    ended: int
    certain: bool


@dataclass(slots=True)
class _Newest:
    """The commits with the highest generation so far, by the moment at which they were answered."""

    ended: list[int] = field(default_factory=list)
    commits: list[_Commit] = field(default_factory=list)

    def add(self, commit: _Commit) -> None:
        if not self.commits or commit.generation > self.commits[-1].generation:
            self.ended.append(commit.ended)
            self.commits.append(commit)

    def before(self, index: int) -> _Commit | None:
        """The one with the highest generation of those that were answered before this moment."""
        at = bisect_left(self.ended, index)
        return self.commits[at - 1] if at else None


def commit_regression(evidence: Evidence) -> Iterator[Anomaly]:
    """A commit of an older generation was accepted after one of a newer generation; or the committed offset in the
    end is an older one than was committed last.

    "After" means that it began when the newer one had been answered. Offsets that are sent to a transaction are taken
    or refused at once, however it ends: between its beginning and the answer. Excused: commits without a member
    (generation -1), those that failed or whose outcome is unknown, and in the end a group whose members have sought
    back, and what was committed before the group was deleted.
    """
    commits, fenced = _commits(evidence)
    for (group, tp), found in fenced.items():
        newest = _Newest()
        for commit in found:
            before = newest.before(commit.began)
            if before is not None and commit.generation < before.generation:
                text = (
                    f"{group}: {tp}@{commit.offset} of generation {commit.generation % LIFE_OF_A_GROUP} "
                    f"after {before.offset} of generation {before.generation % LIFE_OF_A_GROUP}"
                )
                yield Anomaly("commit-regression", text, (commit.by, before.by))
            newest.add(commit)
    sought = _sought(evidence)
    for (group, tp), found in commits.items():
        positions = evidence.positions.get(group)
        if positions is not None:
            since = evidence.forgotten.get(group, -1)  # what was on its way then may have gone with the group
            kept = [each._replace(certain=each.certain and each.began > since) for each in found if each.ended > since]
            yield from _last_one(group, tp, kept, positions.offsets.get(tp), sought.get(tp, ()))


def _commits(evidence: Evidence) -> tuple[Mapping[_Place, list[_Commit]], Mapping[_Place, list[_Commit]]]:
    """All commits, in the order of their answers; those of transactions, when they were asked to commit.

    And all of a member's that were certainly accepted, whatever became of the transaction of some.
    """
    found: defaultdict[_Place, list[_Commit]] = defaultdict(list)
    fenced: defaultdict[_Place, list[_Commit]] = defaultdict(list)
    began_txn: dict[str, int] = {}
    calls: dict[str, int] = {}
    in_txn: defaultdict[str, list[OffsetsSent]] = defaultdict(list)
    asked: dict[str, int] = {}
    for index, event in enumerate(evidence.events):
        match event.fact:
            case Called(call=call):
                calls[call] = index
            case Committed() as told if told.outcome != "failed":
                certain = told.outcome == "committed"
                began = index if told.call is None else calls.get(told.call, index)
                by = told.member_id or event.who
                generation = told.generation
                if generation >= 0:
                    generation += evidence.before_generation_0(told.group, index)
                for tp, offset in told.offsets.items():
                    commit = _Commit(offset, generation, by, began, index if certain else NEVER, certain)
                    found[told.group, tp].append(commit)
                    if certain and generation >= 0:
                        fenced[told.group, tp].append(commit)
            case Began(txn=txn):
                began_txn[txn] = index
            case OffsetsSent() as sent:
                in_txn[sent.txn].append(sent)
                asked.setdefault(sent.txn, index)
                began = began_txn.get(sent.txn, NEVER)
                base = evidence.before_generation_0(sent.group, index)
                if sent.generation >= 0 and began < index and base == evidence.before_generation_0(sent.group, began):
                    generation = base + sent.generation
                    for tp, offset in sent.offsets.items():
                        commit = _Commit(offset, generation, sent.txn, began, index, certain=True)
                        fenced[sent.group, tp].append(commit)
            case Ending(txn=txn, commit=True) if txn in in_txn:
                asked[txn] = index
            case Ended(txn=txn, outcome="committed"):
                for sent in in_txn.pop(txn, ()):
                    for tp, offset in sent.offsets.items():
                        found[sent.group, tp].append(_Commit(offset, -1, txn, asked[txn], index, certain=True))
            case _:
                pass
    for txn, sends in in_txn.items():
        for sent in sends if evidence.outcomes.get(txn) != "aborted" else ():
            for tp, offset in sent.offsets.items():
                found[sent.group, tp].append(_Commit(offset, -1, txn, asked[txn], NEVER, certain=False))
    return found, fenced


def _sought(evidence: Evidence) -> Mapping[TopicPartition, list[tuple[int, int]]]:
    """Where in the history somebody has sought which offset."""
    found: defaultdict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for index, event in enumerate(evidence.events):
        if isinstance(event.fact, Sought):
            for tp, offset in event.fact.positions.items():
                found[tp].append((index, offset))
    return found


def _last_one(
    group: str, tp: TopicPartition, commits: list[_Commit], now: int | None, sought: Sequence[tuple[int, int]]
) -> Iterator[Anomaly]:
    """Whether what is committed in the end is what one of the last commits has committed, or more."""
    last_began = max((commit.began for commit in commits if commit.certain), default=None)
    if last_began is None:
        return
    last = min((commit for commit in commits if commit.ended >= last_began), key=lambda commit: commit.offset)
    if any(index > last.began and offset < last.offset for index, offset in sought):
        return  # it may have committed by itself, without a note, from there on
    if now is None or now < last.offset:
        text = f"{group}: {last.by} has committed {tp}@{last.offset}, and in the end it is at"
        yield Anomaly(
            "commit-regression", f"{text} {'nothing' if now is None else now}", (last.by, f"{tp}@{last.offset}")
        )


def unfenced_commit(evidence: Evidence) -> Iterator[Anomaly]:
    """A transaction got a group's offsets without the member's generation, so that nobody can refuse a zombie
    (KIP-447).

    Excused: a group without members that subscribe; its offsets have no generation. And one of which no member has told
    its generation (`Assigned`): -1 is also what a test notes whose client does not tell it.
    """
    for event in evidence.events:
        match event.fact:
            case OffsetsSent() as sent if sent.generation < 0 and sent.group in evidence.with_generations:
                text = f"{event.who}: offsets of {sent.group} in {sent.txn} without a member's generation"
                yield Anomaly("unfenced-commit", text, (sent.txn, event.who))
            case _:
                pass

"""The checker of pipelines that consume, transform and produce: each input exactly once."""

from collections import defaultdict
from collections.abc import Iterator

from ottla.base.types import TopicPartition
from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.evidence import Evidence
from ottla.testing.history.facts import Drained, LogRecord, OffsetsSent


def exactly_once(evidence: Evidence) -> Iterator[Anomaly]:
    """Each committed input of a pipeline (`Drained.transforms`) has one committed output, and its offset is committed.

    Two outputs: duplicate. None, and the group's position is beyond it: lost-write. Otherwise: unprocessed. Without
    `Positions` only the outputs are looked at. An output is one of the pipeline whose offsets are in its transaction
    (`OffsetsSent`), or of each one where that is not noted. Excused: an input that may have been deleted before it was
    read.
    """
    pipelines = [drained for drained in evidence.drained if drained.transforms]
    if not pipelines:
        return
    made = _outputs(evidence, {drained.group for drained in pipelines})
    for drained in pipelines:
        for tp in drained.partitions:
            log = evidence.logs.get(tp)
            for record in () if log is None else log.records:
                if record.visible:
                    yield from _judged(evidence, drained, tp, record, made.get((drained.group, record.uid), []))


def _outputs(evidence: Evidence, groups: set[str]) -> dict[tuple[str, str], list[str]]:
    """The committed outputs of each input, by group and input."""
    groups_of: defaultdict[str | None, set[str]] = defaultdict(set)
    for event in evidence.events:
        if isinstance(event.fact, OffsetsSent) and event.fact.group in groups:
            groups_of[event.fact.txn].add(event.fact.group)
    made: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for log in evidence.logs.values():
        for record in log.records:
            sends = evidence.sends.get(record.uid, ()) if record.visible else ()
            by = {group for send in sends for group in groups_of.get(send.fact.txn, ())} or groups
            for source in {send.fact.source for send in sends if send.fact.source is not None}:
                for group in by:
                    made[group, source].append(record.uid)
    return made


def _judged(
    evidence: Evidence, drained: Drained, tp: TopicPartition, record: LogRecord, outputs: list[str]
) -> Iterator[Anomaly]:
    told = evidence.positions.get(drained.group)
    position = None if told is None else told.offsets.get(tp, 0)
    if len(outputs) == 1 and (position is None or record.offset < position):
        return
    if not outputs and record.offset < evidence.deleting(tp):
        return
    passed = position is not None and record.offset < position
    name = "duplicate" if len(outputs) > 1 else "lost-write" if passed else "unprocessed"
    text = f"{record.uid} at {tp}@{record.offset} became {', '.join(outputs) or 'nothing'}; "
    where = "nowhere that was noted" if position is None else position
    yield Anomaly(name, f"{text}{drained.group} is at {where}", (record.uid, f"{tp}@{record.offset}", *outputs))

"""The checker of pipelines that consume, transform and produce: each input exactly once."""

from collections import defaultdict
from collections.abc import Iterator

from ottla.base.types import TopicPartition
from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.evidence import Evidence
from ottla.testing.history.facts import Drained, LogRecord


def exactly_once(evidence: Evidence) -> Iterator[Anomaly]:
    """Each committed input of a pipeline (`Drained.transforms`) has one committed output, and its offset is committed.

    Two outputs: duplicate. None, and the group's position is beyond it: lost-write. Otherwise: unprocessed. Without
    `Positions` only the outputs are looked at. Excused: an input that may have been deleted before it was read.
    """
    pipelines = [drained for drained in evidence.drained if drained.transforms]
    if not pipelines:
        return
    made: defaultdict[str, list[str]] = defaultdict(list)
    for each in evidence.logs.values():
        for record in each.records:
            if record.visible:
                sends = evidence.sends.get(record.uid, ())
                for source in {send.fact.source for send in sends if send.fact.source is not None}:
                    made[source].append(record.uid)
    for drained in pipelines:
        for tp in drained.partitions:
            log = evidence.logs.get(tp)
            for record in () if log is None else log.records:
                if record.visible:
                    yield from _judged(evidence, drained, tp, record, made.get(record.uid, []))


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

"""The checker of offsets: inconsistent-offsets."""

from collections.abc import Iterator

from ottla.base.types import TopicPartition
from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.evidence import Evidence


def inconsistent_offsets(evidence: Evidence) -> Iterator[Anomaly]:
    """Two clients were told of different records at one offset; or the log has two there.

    Nothing is excused: an offset, once told, is that record's for ever. Where a client and the log disagree,
    the name is lost-write or vanished-read.
    """
    told: dict[tuple[TopicPartition, int], str] = {}
    for _, record in evidence.acknowledged:
        if record.offset >= 0:
            yield from _compared(told, record.tp, record.offset, record.uid)
    for _, polled in evidence.polls:
        for tp, offset, uid in polled.records:
            yield from _compared(told, tp, offset, uid)
    for log in evidence.known_logs:
        for one, other in zip(log.records, log.records[1:], strict=False):
            if one.offset == other.offset:
                text = f"the log of {log.tp} has {one.uid} and {other.uid} at {one.offset}"
                yield Anomaly("inconsistent-offsets", text, (one.uid, other.uid, f"{log.tp}@{one.offset}"))


def _compared(
    told: dict[tuple[TopicPartition, int], str], tp: TopicPartition, offset: int, uid: str
) -> Iterator[Anomaly]:
    there = told.setdefault((tp, offset), uid)
    if there != uid:
        text = f"one client was told of {there} at {tp}@{offset}, another one of {uid}"
        yield Anomaly("inconsistent-offsets", text, (there, uid, f"{tp}@{offset}"))

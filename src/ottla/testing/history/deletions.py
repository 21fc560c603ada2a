"""The checker of deleted records: deleted-read."""

from collections import defaultdict
from collections.abc import Iterator

from ottla.base.types import TopicPartition
from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.evidence import Evidence
from ottla.testing.history.facts import Assigned, Deleted, Polled, Sought


def deleted_read(evidence: Evidence) -> Iterator[Anomaly]:
    """A consumer began to read after DeleteRecords was answered (KIP-107), and was given a record that it deleted.

    A consumer begins when it is given the partition, and with each seek. Excused: who has begun before. It may have
    fetched the record when that was still there. Nor does a position without an offset begin anew: that is how a reset
    by `auto.offset.reset` is told, with a later poll, when records from the new position may be fetched already.
    """
    deleted: defaultdict[TopicPartition, int] = defaultdict(int)
    #: By consumer: what was deleted when it began.
    before: dict[tuple[str, TopicPartition], int] = {}
    for event in evidence.events:
        match event.fact:
            case Deleted(tp=tp, offset=offset):
                deleted[tp] = max(deleted[tp], offset)
            case Assigned(partitions=begun):
                before.update(((event.who, tp), deleted[tp]) for tp in begun)
            case Sought(positions=positions):
                before.update(((event.who, tp), deleted[tp]) for tp, offset in positions.items() if offset >= 0)
            case Polled(records=records):
                for tp, offset, uid in records:
                    end = before.get((event.who, tp), 0)
                    if offset < end:
                        text = f"{event.who} was given {uid} at {tp}@{offset}, and had begun when all below {end}"
                        yield Anomaly("deleted-read", f"{text} was deleted", (uid, event.who))
            case _:
                pass

"""Leader epochs of the real broker: no two records ever have one offset and one epoch (KIP-101).

A client that has read a record knows these two of it. If another record has both, nobody can tell the client.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from ottla.base.types import TopicPartition
from sim.check import Anomaly, records_of
from sim.cluster.log import Entry


class Epochs:
    """What was ever in the logs of a world."""

    def __init__(self) -> None:
        self._known: defaultdict[TopicPartition, dict[tuple[int, int], str]] = defaultdict(dict)

    def look(
        self, tps: Iterable[TopicPartition], entries: Callable[[TopicPartition], list[Entry]]
    ) -> Iterator[Anomaly]:
        """Before a process dies, and behind a start. Not where files are damaged: they may say any epoch."""
        for tp in tps:
            known = self._known[tp]
            for entry in entries(tp):
                for record in () if entry.header.is_control else records_of([entry]):
                    before = known.setdefault((record.offset, entry.epoch), record.uid)
                    if before != record.uid:
                        both = f"{before} and {record.uid} were both at {tp}@{record.offset}"
                        yield Anomaly("one-epoch-twice", f"{both} in leader epoch {entry.epoch}", (before, record.uid))

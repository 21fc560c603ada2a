"""What fetches have brought beyond the ranges of their tasks.

A broker sends whole record batches. Of a batch of thousands of records a small micro-batch takes a hundred, and the
next one had the same batch sent again. So a worker keeps the rest for the next range of the partition, as the consumer
in Spark's connector does.

A fetch of committed records, or up to the high watermark, has what the log has for good, unless the log loses its end:

* By an unclean election, or another topic of the same name, a plan has another leader epoch or topic id (KIP-320,
  KIP-516), and what is kept under the former one is not taken.
* Behind kill -9, and a loss of power, so does it, too: each start then begins a leader epoch. But a data directory that
  was put back from a copy of a stop in order may have a shorter log and the same epoch, with Apache Kafka as well: two
  starts on one copy begin the same. The broker was started again, however. So a plan names the connections that its
  offsets came by, and what is kept is taken only while none of them was lost.
"""

from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.spark.columns import Chunk

#: Most bytes that a worker process keeps.
KEPT_BYTES = 16_777_216


class Origin(NamedTuple):
    """Which log was fetched, and how: the rest of it is that of no other."""

    topic_id: str
    #: Of the leader that planned the range, and of the one that was asked.
    planned_epoch: int
    asked_epoch: int
    committed: bool
    #: See `KafkaLink.unbroken`: the planner's.
    unbroken: str


class KeptChunks:
    """At most one of a partition. The oldest go when there are more than `most_bytes`."""

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: dict[TopicPartition, tuple[Origin, int, Chunk]] = {}
        #: Of all that is kept.
        self.size_bytes = 0

    def keep(self, tp: TopicPartition, origin: Origin, offset: int, chunk: Chunk) -> None:
        """What `chunk` has from `offset` on, if it has anything there."""
        rest = chunk.rest(offset, self._most_bytes)
        if rest is None:
            return
        self._drop(tp)
        self._kept[tp] = origin, offset, rest
        self.size_bytes += rest.size_bytes
        while self.size_bytes > self._most_bytes:
            self._drop(next(iter(self._kept)))

    def take(self, tp: TopicPartition, origin: Origin, offset: int) -> Chunk | None:
        """What is kept from `offset` on, or from before it: another worker may have read what lies between. It is kept
        no more, whatever it is."""
        kept = self._drop(tp)
        if kept is None:
            return None
        kept_origin, kept_offset, chunk = kept
        return chunk if kept_origin == origin and kept_offset <= offset < (chunk.next_offset or 0) else None

    def _drop(self, tp: TopicPartition) -> tuple[Origin, int, Chunk] | None:
        kept = self._kept.pop(tp, None)
        if kept is not None:
            self.size_bytes -= kept[2].size_bytes
        return kept

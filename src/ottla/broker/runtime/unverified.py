"""The partitions of a produce in which its transaction is not open yet: the coordinator is asked first (KIP-890)."""

from ottla.base.types import TopicPartition
from ottla.broker.metadata.names import INTERNAL_TOPICS
from ottla.broker.runtime.partition import Partition
from ottla.log.storage import Buffer
from ottla.wire.batch import HEADER_BYTES, is_transactional, producer_of


class Unverified:
    """See the module."""

    def __init__(self, *, adds_partitions: bool) -> None:
        """`adds_partitions`: the coordinator adds them to the transaction (KIP-890's protocol)."""
        self._adds_partitions = adds_partitions
        #: Ids and epochs of all transactional batches, in their order.
        self._producers: dict[tuple[int, int], None] = {}
        #: What the append to each of the partitions must bring; to others NO_GUARD.
        self.guards: dict[TopicPartition, int] = {}

    def add(self, partition: Partition, records: Buffer | None, now_ms: int, *, verifies: bool) -> None:
        """A batch for a partition. One that is no batch, or not of a transaction, is left to the log.

        Without `verifies` the coordinator is not asked.
        """
        if records is None or len(records) < HEADER_BYTES or not is_transactional(records):
            return
        if partition.tp.topic in INTERNAL_TOPICS:
            return
        producer_id, epoch, sequence = producer_of(records)
        self._producers[producer_id, epoch] = None
        if verifies:
            verification = partition.log.producers.begin_verification(
                producer_id, sequence, epoch, supports_epoch_bump=self._adds_partitions, now_ms=now_ms
            )
            if verification.needed:
                self.guards[partition.tp] = verification.guard

    @property
    def has_several_producers(self) -> bool:
        """Whether batches are of several transactions: the coordinator would be asked about one of them only."""
        return len(self._producers) > 1

    @property
    def partitions(self) -> list[TopicPartition]:
        """For which partitions the coordinator has to be asked."""
        return list(self.guards)

    @property
    def producer(self) -> tuple[int, int]:
        """Id and epoch of the producer; where there is a transactional batch, and not of several."""
        return next(iter(self._producers))

"""Each partition whose log may have lost its end gets its leader anew, in the next leader epoch (KIP-101, KIP-320).

A broker that was killed, or lost power, may come back with logs that end before what clients have read. When a log has
grown again, its offsets alone tell nobody: the records there are others. The leader epoch does. So no two records with
one offset ever have the same epoch: behind an end that was not in order, nothing is appended before the metadata log
says, on the device, that the leader leads in an epoch of which no record is. Apache Kafka elects each leader anew then,
and so do we, with the same record (docs/adr/0023).

A stop in order has left all logs on the device, and its mark says so: the leaders stay.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from ottla.base.errors import StorageError
from ottla.broker.metadata.cluster import Change, ClusterMetadata
from ottla.broker.metadata.records import MetadataRecord, PartitionChangeRecord
from ottla.broker.runtime.changes import Changes
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.partitions import Partitions

_log = logging.getLogger(__name__)

#: How long it waits until it asks a disk again that has refused.
_RETRY_S: Final = 0.5


class Elections:
    """The elections of one start: all of them are one batch of the metadata log.

    A disk that is full, or refuses, must not keep a broker from starting: topics are to be deleted then. Until it takes
    the elections (`make_up`), what is there can be read, in the old epochs, and nothing is appended.
    """

    def __init__(self, metadata: ClusterMetadata, partitions: Partitions, node_id: int) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._node_id = node_id
        #: Whose leaders are still to be elected.
        self._open: list[Partition] = []
        #: Their elections, if they are in the log, and not on the device.
        self._appended: Change | None = None

    @property
    def are_owed(self) -> bool:
        """Whether some are not on the device yet. Then the next start has to hold them: no stop is in order."""
        return bool(self._open)

    def hold(self) -> None:
        """Elect all that a start has to, while nobody is served. Those that the disk refuses are owed."""
        self._open = list(self._partitions.doubtful())
        if not self._open:
            return
        for partition in self._open:
            partition.log.epochs.lead(None)
        change = self._change()
        deque(change.encode(), 0)
        try:
            change.append()
            self._metadata.flush()
        except StorageError as fault:
            self._appended = change if change.is_appended else None
            self._tell(fault)
        else:
            change.apply()
            self._lead()

    async def make_up(
        self, in_turn: Callable[[], Awaitable[None]], pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Hold what is owed, as soon as the disk takes it. `in_turn` calls `attempt` while no topic is changed, and
        `pause` waits for so many seconds."""
        while self._open:
            await in_turn()
            if self._open:
                await pause(_RETRY_S)

    async def attempt(self, changes: Changes) -> None:
        """Try once. No topic may come or go meanwhile."""
        change, self._appended = self._appended or self._change(), None
        try:
            await changes.write(change, change.applying())
        except StorageError:
            return  # nothing was appended
        self._lead()
        _log.warning("the leaders' next epochs are on the device: partitions take records again")

    def _change(self) -> Change:
        return self._metadata.change(self._records())

    def _records(self) -> Iterator[MetadataRecord]:
        """One for each partition; several where the metadata log has lost elections, whose epochs are in the log."""
        for partition in self._open:
            tp, topic_id = partition.tp, partition.topic_id
            if self._partitions.find(*tp) is partition:
                for _ in range(partition.leader_epoch, max(partition.leader_epoch, partition.log.epochs.latest) + 1):
                    yield PartitionChangeRecord(tp.partition, topic_id, leader=self._node_id)

    def _lead(self) -> None:
        """The elections are on the device."""
        topics = self._metadata.image.topics_by_id
        for partition in self._open:
            topic = topics.get(partition.topic_id)
            if topic is not None:
                partition.lead(topic.partitions[partition.tp.partition].leader_epoch)
        self._open.clear()

    def _tell(self, fault: StorageError) -> None:
        _log.error(
            "%d partition(s) may have lost the end of their logs, and their leaders' next epochs cannot be written. "
            "No record is taken before they are: %s",
            len(self._open),
            fault,
        )

"""Data directories as Apache Kafka 4.3 leaves them, with a topic in them; and a disk that refuses."""

from __future__ import annotations

from random import Random
from typing import Final

from ottla.base.clock import ManualClock
from ottla.base.types import TopicPartition
from ottla.broker.config import BrokerConfig
from ottla.broker.metadata.records import MetadataRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from ottla.broker.recover import Recovered, recover
from ottla.broker.told import Told
from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.wire.producer_ids_record import ProducerIdsRecord
from sim import kraft_directory
from sim.disk import SimDisk
from sim.kraft_directory import BROKER_EPOCH, DIRECTORY_ID
from tests.log.batches import NOW_MS, batch
from tests.log.logs import append

TOPIC_ID: Final = b"t" * 16
_CONFIG: Final = BrokerConfig({"log.dirs": ("/disk",)})


class Disk(SimDisk):
    """A disk that refuses every change when a number of them is done; None: it refuses none."""

    steps_left: int | None = None

    def refuses(self, action: str, name: str) -> bool:
        if self.steps_left is None or action not in ("append", "write", "sync", "delete", "rename"):
            return False
        self.steps_left = max(self.steps_left - 1, 0)
        return self.steps_left == 0


class KraftDirectory(kraft_directory.KraftDirectory):
    """One directory, in memory."""

    disk: Disk

    def __init__(self, *, node_id: int = 1, voters: tuple[int, ...] = (1,)) -> None:
        super().__init__(Disk(), node_id=node_id, voters=voters)

    def make_topic(
        self, name: str = "orders", *, replicas: tuple[int, ...] = (1,), directory: bytes = DIRECTORY_ID
    ) -> None:
        """A topic of one partition that holds one record."""
        made = PartitionRecord(
            0, TOPIC_ID, replicas, replicas, (), (), replicas[0], 0, 0, 0, (directory,) * len(replicas)
        )
        self.write(TopicRecord(name, TOPIC_ID), made, ProducerIdsRecord(self.node_id, BROKER_EPOCH, 1000))
        if directory == DIRECTORY_ID:
            log = PartitionLog.open(
                TopicPartition(name, 0), self.disk.open_folder(f"{name}-0"), LogConfig(), NOW_MS, topic_id=TOPIC_ID
            )
            append(log, batch(value=b"theirs"))
            log.close()

    def stop(self, *leaves: MetadataRecord) -> None:
        """A stop in order: nobody leads the topic's partition any more."""
        leave = PartitionChangeRecord(0, TOPIC_ID, (), -1, eligible_leader_replicas=(1,), last_known_elr=(1,))
        super().stop(leave, *leaves)

    def recover(self, told: list[Told] | None = None) -> Recovered:
        """A start of ours. StorageError when it is refused."""
        found: list[Told] = [] if told is None else told
        return recover(_CONFIG, ManualClock(NOW_MS), self.disk, Random(1), found.append)

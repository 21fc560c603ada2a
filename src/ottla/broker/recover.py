"""Opening a data directory: what a start does before it listens, and what `ottla storage` does without one.

The order matters. The metadata log comes first: damage in it stops everything before a file is changed, because a log
that forgets topics would have their records set aside. Then each partition is recovered (`log.recovery`). Last, the
producer ids that the partitions know are compared with what the metadata log says of them.
"""

import random
from typing import Final, NamedTuple

from ottla.base.clock import Clock
from ottla.base.types import TopicPartition
from ottla.broker.config import BrokerConfig
from ottla.broker.disk import Disk
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.metadata.damage import refuse_damage
from ottla.broker.metadata.end_mark import EndMark
from ottla.broker.metadata.names import METADATA_TOPIC
from ottla.broker.metadata.properties import MetaProperties, load_or_create
from ottla.broker.runtime.directories import must_hold_no_partitions
from ottla.broker.runtime.manifest import sealed_properties
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.told import Tell, log_told

#: The metadata log does not follow the broker's settings for topics. All topics of a request are one batch in it, and
#: there must be room for as many partitions as `base.limits` allows.
_METADATA_CONFIGS: Final = {"max.message.bytes": str(64 * 1_048_576), "segment.bytes": str(1_073_741_824)}


class Recovered(NamedTuple):
    """A data directory, ready to be used."""

    properties: MetaProperties
    metadata: ClusterMetadata
    partitions: Partitions

    def close(self) -> None:
        """Flush and close all logs, and leave the mark of a clean stop. StorageError when the disk refuses something.

        The partitions are closed nevertheless, and there is no such mark.
        """
        clean = False
        try:
            self.metadata.close()
            clean = True
        finally:
            self.partitions.close(clean=clean)


def recover(config: BrokerConfig, clock: Clock, disk: Disk, rng: random.Random, tell: Tell = log_told) -> Recovered:
    """Recover the directory, which the caller has locked. `tell` hears what is found.

    StorageError when it cannot be used as it is.
    """
    properties = load_or_create(
        disk,
        rng,
        node_id=config.int("node.id"),
        cluster_id=config.text("cluster.id"),
        sealed=sealed_properties(disk.own_files()),
        tell=tell,
    )
    folder = f"{METADATA_TOPIC}-0"
    is_whole = refuse_damage(disk, folder, tell)
    partitions = Partitions(config, clock, disk, rng, tell)
    log = partitions.open_log(TopicPartition(METADATA_TOPIC, 0), None, _METADATA_CONFIGS)
    if log.end_offset == 0:
        must_hold_no_partitions(disk)
    metadata = ClusterMetadata(log, EndMark(disk.open_folder(folder)), properties.node_id, clock)
    deleted_ids = metadata.load()
    partitions.recover(metadata.image, deleted_ids)
    metadata.mend_producer_ids(
        (each.producer_id for part in partitions.all() for each in part.log.active_producers()),
        is_whole=is_whole,
        tell=tell,
    )
    return Recovered(properties, metadata, partitions)

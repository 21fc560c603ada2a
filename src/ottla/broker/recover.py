"""Opening a data directory: what a start does before it listens, and what `ottla storage` does without one.

The order matters. The metadata log comes first: damage in it stops everything before a file is changed, because a log
that forgets topics would have their records set aside. Then each partition is recovered (`log.recovery`). Last, the
producer ids that the partitions know are compared with what the metadata log says of them; and behind an end that was
not in order each partition's leader is elected anew (`runtime.elections`).

Where Apache Kafka was the last to write, what it has left is read to its end before anything else: what one node cannot
serve is refused, and nothing is changed. Then the metadata log goes on in an epoch of ours (`metadata.quorum`). When
all is recovered the directory is signed, and is ours.
"""

import random
from typing import Final, NamedTuple

from ottla.base.clock import Clock
from ottla.base.errors import CorruptDataError, StorageError
from ottla.base.types import TopicPartition
from ottla.broker.config import BrokerConfig
from ottla.broker.disk import Disk
from ottla.broker.metadata.cluster import FIRST_RECORDS, ClusterMetadata
from ottla.broker.metadata.damage import refuse_damage
from ottla.broker.metadata.features import ELIGIBLE_LEADER_REPLICAS_FEATURE
from ottla.broker.metadata.image import BROKER_RESOURCE, MetadataImage
from ottla.broker.metadata.names import BOOTSTRAP_CHECKPOINT, METADATA_FOLDER, METADATA_TOPIC, QUORUM_STATE
from ottla.broker.metadata.properties import MetaProperties, load_or_create
from ottla.broker.metadata.quorum import Quorum, mark_of_apache_kafka
from ottla.broker.metadata.reading import Reading, read_closed
from ottla.broker.metadata.records import ConfigRecord, FeatureLevelRecord, MetadataRecord
from ottla.broker.metadata.snapshots import read_snapshot
from ottla.broker.metadata.takeover import notes, refusal
from ottla.broker.runtime.directories import has_metadata, must_hold_no_partitions
from ottla.broker.runtime.elections import Elections
from ottla.broker.runtime.manifest import MANIFEST, sealed_metadata_end, sealed_properties
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.told import Kind, Tell, Told, log_told

#: The metadata log does not follow the broker's settings for topics. All topics of a request are one batch in it, and
#: there must be room for as many partitions as `base.limits` allows.
_METADATA_CONFIGS: Final = {"max.message.bytes": str(64 * 1_048_576), "segment.bytes": str(1_073_741_824)}


class Recovered(NamedTuple):
    """A data directory, ready to be used."""

    properties: MetaProperties
    metadata: ClusterMetadata
    partitions: Partitions
    elections: Elections

    def close(self, threads: int = 1) -> None:
        """Flush and close all logs, and leave the mark of a clean stop. StorageError when the disk refuses something.

        The partitions are closed nevertheless, and there is no such mark. More `threads` than one need a disk that
        several may use.
        """
        clean = False
        try:
            self.metadata.close()
            clean = not self.elections.are_owed
        finally:
            epoch = self.metadata.image.broker_epochs.get(self.properties.node_id, -1)
            self.partitions.close(clean=clean, broker_epoch=epoch, threads=threads)


def recover(config: BrokerConfig, clock: Clock, disk: Disk, rng: random.Random, tell: Tell = log_told) -> Recovered:
    """Recover the directory, which the caller has locked. `tell` hears what is found.

    StorageError when it cannot be used as it is.
    """
    is_theirs = mark_of_apache_kafka(disk) is not None
    if is_theirs:
        _tell_of_the_vote(disk, tell)
    properties = load_or_create(
        disk,
        rng,
        node_id=config.int("node.id"),
        cluster_id=config.text("cluster.id"),
        sealed=None if is_theirs else sealed_properties(disk.own_files()),
        tell=tell,
    )
    sealed_end = None if is_theirs else sealed_metadata_end(disk.own_files())
    is_whole = refuse_damage(disk, METADATA_FOLDER, tell, sealed_end=sealed_end)
    if not has_metadata(disk):
        must_hold_no_partitions(disk)  # before any file is changed
        if disk.own_files().read(MANIFEST) is not None:
            text = (
                f"{METADATA_FOLDER} is empty, and {MANIFEST} is there: the first start was interrupted, or all is gone"
            )
            tell(Told(Kind.NOTE, METADATA_FOLDER, text))
    first_records = _first_records(disk, config)
    if is_theirs:
        _refuse_what_one_node_cannot_serve(disk, properties)
    partitions = Partitions(config, clock, disk, rng, tell, is_theirs=is_theirs, has_whole_metadata=is_whole)
    tp = TopicPartition(METADATA_TOPIC, 0)
    log = partitions.open_metadata(tp, _METADATA_CONFIGS)
    if log.end_offset == 0:
        must_hold_no_partitions(disk)
    metadata = ClusterMetadata(log, disk.open_folder(METADATA_FOLDER), properties.node_id, clock)
    deleted_ids = metadata.load(is_theirs=is_theirs, first_records=first_records)
    for text in notes(metadata.image):
        tell(Told(Kind.NOTE, METADATA_FOLDER, text))
    partitions.recover(metadata.image, deleted_ids)
    metadata.mend_producer_ids(
        (each.producer_id for part in partitions.all() for each in part.log.producers.active()),
        is_whole=is_whole,
        tell=tell,
    )
    elections = Elections(metadata, partitions, properties.node_id)
    elections.hold()
    metadata.sign()
    return Recovered(properties, metadata, partitions, elections)


def _tell_of_the_vote(disk: Disk, tell: Tell) -> None:
    if not disk.entries(METADATA_FOLDER):
        return
    quorum, name = Quorum(disk.open_folder(METADATA_FOLDER)), f"{METADATA_FOLDER}/{QUORUM_STATE}"
    fault = None if quorum.fault is None else f"is damaged ({quorum.fault})"
    if quorum.vote is None and fault is None:
        fault = "is gone"
    if fault is not None:
        text = (
            f"{disk}/{name} {fault}: perhaps Apache Kafka led last, so what {MANIFEST} says of other files does not "
            "count any more; the vote is cast anew, in the epoch behind the log's last one"
        )
        tell(Told(Kind.MADE_AGAIN, name, text))


def _refuse_what_one_node_cannot_serve(disk: Disk, properties: MetaProperties) -> None:
    files, image = disk.open_folder(METADATA_FOLDER), MetadataImage()
    reading, vote = Reading(image.apply), Quorum(files).vote
    read_closed(files, reading)
    reason = refusal(
        image,
        reading,
        None if vote is None else vote.voters,
        node_id=properties.node_id,
        directory_id=properties.directory_id,
        is_there=lambda folder: disk.entries(folder) is not None,
    )
    if reason is not None:
        raise StorageError(f"{disk} cannot be served: {reason}; nothing was changed")


def _first_records(disk: Disk, config: BrokerConfig) -> tuple[MetadataRecord, ...]:
    """What a log without a record begins with: what `kafka-storage format` has said, or else our own features."""
    content = disk.own_files().read(BOOTSTRAP_CHECKPOINT)
    if content is None:
        return FIRST_RECORDS
    found: list[MetadataRecord] = []
    reading = Reading(found.append)
    try:
        for header, records in read_snapshot(content):
            reading.batch(header, records)
    except CorruptDataError as fault:
        raise StorageError(f"{disk}/{BOOTSTRAP_CHECKPOINT} is damaged ({fault}): put it back from a copy") from None
    if any(isinstance(each, FeatureLevelRecord) and each.name == ELIGIBLE_LEADER_REPLICAS_FEATURE for each in found):
        # As Apache Kafka does at its first start: with that feature the setting is the cluster's.
        least = str(config.int("min.insync.replicas"))
        found.append(ConfigRecord(BROKER_RESOURCE, "", "min.insync.replicas", least))
    return tuple(found)

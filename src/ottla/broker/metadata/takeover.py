"""What it takes to go on with a directory that Apache Kafka has written: what we refuse, and what we write first.

Pure: each function reads the image, and returns what is to be told or written.
"""

from collections.abc import Callable, Iterator
from typing import Final

from ottla.broker.metadata.image import BROKER_RESOURCE, MetadataImage
from ottla.broker.metadata.names import METADATA_FOLDER
from ottla.broker.metadata.reading import Reading
from ottla.broker.metadata.records import PartitionChangeRecord

#: Directory ids below it mean no directory: not assigned yet, lost, or being moved (KIP-858).
_FIRST_DIRECTORY_ID: Final = (100).to_bytes(16, "big")
#: It has no effect with one replica, and Apache Kafka sets it in each new cluster.
_WITHOUT_EFFECT: Final = "min.insync.replicas"


def refusal(
    image: MetadataImage,
    reading: Reading,
    voters: tuple[int, ...] | None,
    *,
    node_id: int,
    directory_id: bytes,
    is_there: Callable[[str], bool],
) -> str | None:
    """Why one node cannot serve what the metadata says; None when it can.

    `voters` are those that `quorum-state` names, `is_there` says whether a partition's folder is in the directory.
    """
    quorum = reading.voters if voters is None or reading.kraft_version else voters
    if quorum is not None and quorum != (node_id,):
        return (
            f"the quorum's voters are {_listed(quorum)} ({METADATA_FOLDER}), and one node alone, {node_id}, is its own "
            "quorum here: make it the only controller, as a broker of its own, before Ottla serves its directory"
        )
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            name = f"{topic.name}-{number}"
            if partition.replicas != (node_id,):
                return (
                    f"the replicas of partition {name} are on the brokers {_listed(partition.replicas)}, and this "
                    f"directory is of broker {node_id} alone: reassign every partition to it in Apache Kafka first "
                    "(kafka-reassign-partitions), or copy the topics with a consumer and a producer"
                )
            elsewhere = [each for each in partition.directories if each >= _FIRST_DIRECTORY_ID and each != directory_id]
            if elsewhere and not is_there(name):
                return (
                    f"partition {name} lies in another of the broker's log.dirs, and Ottla has one directory: move it "
                    f"here in Apache Kafka first (kafka-reassign-partitions with log_dirs)"
                )
    return None


def election(image: MetadataImage, node_id: int) -> Iterator[PartitionChangeRecord]:
    """The records that make this node the leader where it is not: Apache Kafka, when it stops, leaves none."""
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            if partition.leader != node_id:
                yield PartitionChangeRecord(
                    number,
                    topic.topic_id,
                    isr=(node_id,),
                    leader=node_id,
                    leader_recovery_state=0,
                    eligible_leader_replicas=(),
                    last_known_elr=(),
                )


def notes(image: MetadataImage) -> Iterator[str]:
    """Sentences on what is in the metadata, is kept there, and has no effect here."""
    for (kind, name), configs in image.configs.items():
        held = sorted(key for key in configs if key != _WITHOUT_EFFECT)
        if kind == BROKER_RESOURCE and held:
            whose = f"broker {name}" if name else "all brokers"
            yield (
                f"{METADATA_FOLDER}: settings of {whose} ({', '.join(held)}) were changed while Apache Kafka ran; they "
                "stay, and have no effect here: set them in the broker's own properties"
            )
    if image.tokens:
        yield (
            f"{METADATA_FOLDER}: {len(image.tokens)} delegation token(s) of Apache Kafka, of "
            f"{', '.join(sorted(set(image.tokens.values())))}; they stay, and nobody can log in with them here"
        )


def _listed(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids))

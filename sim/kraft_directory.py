"""Data directories as Apache Kafka 4.3 leaves them, made by hand: record for record what `kafka-dump-log` shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from ottla.base.types import TopicPartition, topic_id_text
from ottla.broker.metadata.node_records import (
    BrokerRegistrationChangeRecord,
    NodeEndpoint,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from ottla.broker.metadata.records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    encode_record,
)
from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.log.results import Origin
from ottla.wire.batch import assign_offsets, mark_as_control
from ottla.wire.quorum_records import leader_change_batch
from ottla.wire.records import Record, encode_batch
from sim.disk import SimDisk

METADATA: Final = "__cluster_metadata-0"
NEWEST: Final = 30
DIRECTORY_ID: Final = b"\xd0" * 16
FEATURES: Final = (
    FeatureLevelRecord("metadata.version", NEWEST),
    FeatureLevelRecord("eligible.leader.replicas.version", 1),
    FeatureLevelRecord("group.version", 1),
    FeatureLevelRecord("share.version", 1),
    FeatureLevelRecord("streams.version", 1),
    FeatureLevelRecord("transaction.version", 2),
)
BROKER_EPOCH: Final = 14
_NOW_MS: Final = 1_700_000_000_000


class KraftDirectory:
    """One directory, in memory. What Apache Kafka appends goes to `log`."""

    def __init__(self, disk: SimDisk | None = None, *, node_id: int = 1, voters: Sequence[int] = (1,)) -> None:
        """Formatted, on an empty disk: it has never been started on."""
        self.disk = SimDisk() if disk is None else disk
        self.node_id, self.voters = node_id, tuple(voters)
        self.epoch = 0
        lines = (f"node.id={node_id}", f"directory.id={topic_id_text(DIRECTORY_ID)}", "version=1")
        self._own("meta.properties", "\n".join(("#", "#Tue Nov 24 02:29:43 UTC 2026", *lines, "cluster.id=c\\=1")))
        self._own("bootstrap.checkpoint", snapshot(FEATURES))

    def _own(self, name: str, content: str | bytes) -> None:
        self.disk.own_files().write(name, content.encode() if isinstance(content, str) else content)

    def start(self) -> None:
        """Apache Kafka is elected, and registers its node."""
        self.epoch += 1
        state = {"leaderId": self.node_id, "leaderEpoch": self.epoch, "votedId": -1, "appliedOffset": 0}
        voters = [{"voterId": each} for each in self.voters]
        content = {"clusterId": "", **state, "currentVoters": voters, "data_version": 0}
        self.disk.open_folder(METADATA).write("quorum-state", json.dumps(content).encode())
        log = self.open()
        log.append(
            leader_change_batch(self.node_id, _NOW_MS),
            now_ms=_NOW_MS,
            origin=Origin.RAFT_LEADER,
            leader_epoch=self.epoch,
        )
        log.close()
        if self.epoch == 1:
            least = ConfigRecord(4, "", "min.insync.replicas", "1")
            self.write(BeginTransactionRecord("Bootstrap records"), *FEATURES, least, EndTransactionRecord())
        self.write(NoOpRecord())
        endpoint = NodeEndpoint("PLAINTEXT", "127.0.0.1", 9092)
        self.write(RegisterControllerRecord(self.node_id, b"i" * 16, end_points=(endpoint,)))
        self.write(RegisterBrokerRecord(self.node_id, False, b"i" * 16, BROKER_EPOCH, (endpoint,)))
        self.write(BrokerRegistrationChangeRecord(self.node_id, BROKER_EPOCH, -1))

    def stop(self, *leaves: MetadataRecord) -> None:
        """A stop in order: nobody leads any more, which `leaves` say of each partition."""
        self.write(BrokerRegistrationChangeRecord(self.node_id, BROKER_EPOCH, 0, 1), *leaves)
        self._own(".kafka_cleanshutdown", json.dumps({"version": 0, "brokerEpoch": BROKER_EPOCH}))
        for name in ("log-start-offset", "recovery-point-offset", "replication-offset"):
            self._own(f"{name}-checkpoint", "0\n0\n")
        self._own("cleaner-offset-checkpoint", "")

    def write(self, *records: MetadataRecord) -> None:
        """One batch of the metadata log."""
        self.write_values(*(encode_record(each, NEWEST) for each in records))

    def write_values(self, *values: bytes) -> None:
        """One batch of whatever this is."""
        log = self.open()
        log.append(
            encode_batch([Record(at, _NOW_MS, None, value, ()) for at, value in enumerate(values)]),
            now_ms=_NOW_MS,
            origin=Origin.COORDINATOR,
            leader_epoch=self.epoch,
        )
        log.close()

    def open(self) -> PartitionLog:
        """The metadata log."""
        tp = TopicPartition("__cluster_metadata", 0)
        return PartitionLog.open(tp, self.disk.open_folder(METADATA), LogConfig(), _NOW_MS)


def leave_used(disk: SimDisk) -> None:
    """Leave a directory that Apache Kafka has used, with no topic, and has stopped on in order."""
    theirs = KraftDirectory(disk)
    theirs.start()
    theirs.stop()


def snapshot(records: Sequence[MetadataRecord], *, has_footer: bool = True) -> bytes:
    """A snapshot's file."""
    values = [Record(at, _NOW_MS, None, encode_record(each, NEWEST), ()) for at, each in enumerate(records)]
    header = _control(3, b"\0\0" + b"\0" * 8 + b"\0")
    batches = [header, encode_batch(values), *([_control(4, b"\0\0\0")] if has_footer else [])]
    offset, content = 0, b""
    for made, count in zip(batches, (1, len(records), 1), strict=False):
        moved = bytearray(made)
        assign_offsets(moved, 0, offset, 0)
        offset += count
        content += bytes(moved)
    return content


def _control(kind: int, value: bytes) -> bytes:
    made = bytearray(encode_batch([Record(0, _NOW_MS, b"\0\0" + kind.to_bytes(2, "big"), value, ())]))
    mark_as_control(made)
    return bytes(made)

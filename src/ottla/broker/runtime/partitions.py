"""The partitions that this node leads, and the port through which other code reaches one: by topic and number.

Other code never keeps a partition. It asks for it by name each time, so that one day another process may answer
(DESIGN, idea 7). Appends wake the fetches that wait for data.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from ottla.base.clock import Clock
from ottla.base.errors import CorruptDataError, StorageError
from ottla.base.types import TopicPartition
from ottla.broker.config import BrokerConfig
from ottla.broker.metadata.image import MetadataImage, TopicImage
from ottla.broker.runtime.checkpoints import CheckpointPlan, Checkpoints, PartitionOffsets
from ottla.broker.runtime.directories import mark_deleted, must_be_free, remove_partition, set_strays_aside
from ottla.broker.runtime.faults import DiskFaults
from ottla.broker.storage import DirectoryStorage, sync_directory
from ottla.broker.topic_config import TopicConfig
from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.log.recovery import Findings
from ottla.log.results import Appended, Origin
from ottla.wire.batch import MARKER_BATCH_BYTES
from ottla.wire.errors import ErrorCode

_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Something that waits for a partition to change: a fetch (`runtime.purgatory`)."""

    def appended(self, partition: "Partition", size_bytes: int, /) -> None:
        """`size_bytes` were appended."""
        ...

    def gone(self, partition: "Partition", /) -> None:
        """The partition is deleted."""
        ...


class Partition:
    """A partition's log, and who waits for it to grow."""

    __slots__ = ("_watchers", "leader_epoch", "log", "topic_id", "tp")

    def __init__(self, tp: TopicPartition, topic_id: bytes, log: PartitionLog, leader_epoch: int) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self._watchers: set[Watcher] = set()

    def check_leader_epoch(self, current: int) -> ErrorCode:
        """Compare the leader epoch that a client believes in with ours (KIP-320); -1 means that it names none."""
        if current in (-1, self.leader_epoch):
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if current < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` about changes, until `unwatch`."""
        self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """Stop telling it. No-op for a watcher that does not watch."""
        self._watchers.discard(watcher)

    @property
    def watched(self) -> bool:
        """Whether somebody waits for it to change."""
        return bool(self._watchers)

    def appended(self, size_bytes: int) -> None:
        """Tell the watchers that a batch was appended or a transaction ended."""
        if self._watchers:
            for watcher in tuple(self._watchers):
                watcher.appended(self, size_bytes)

    def gone(self) -> None:
        """Tell the watchers that it is deleted."""
        for watcher in tuple(self._watchers):
            watcher.gone(self)


class Partitions:
    """All partitions of this node."""

    def __init__(self, config: BrokerConfig, clock: Clock, data_dir: Path) -> None:
        self._config = config
        self._clock = clock
        self._data_dir = data_dir
        self._directory = DirectoryStorage(data_dir)
        self._checkpoints = Checkpoints(self._directory)
        #: Every fault of the disk is reported here.
        self.faults = DiskFaults(clock)
        self._partitions: dict[tuple[str, int], Partition] = {}

    def find(self, topic: str, partition: int) -> Partition | None:
        """The partition if this node leads it, else None."""
        return self._partitions.get((topic, partition))

    def all(self) -> Iterable[Partition]:
        """Every partition, in no particular order; safe against changes while it is walked."""
        return tuple(self._partitions.values())

    # ---- the port of coordinators and of WriteTxnMarkers

    def append(self, tp: TopicPartition, records: bytes, *, origin: Origin) -> Appended:
        """Append a batch; UNKNOWN_TOPIC_OR_PARTITION when this node does not lead `tp`."""
        partition = self._partitions.get(tp)
        if partition is None:
            return _not_here(tp)
        try:
            appended = partition.log.append(
                records, now_ms=self._clock.now_ms(), origin=origin, leader_epoch=partition.leader_epoch
            )
        except StorageError as fault:
            return _failed(self.faults.report(tp, fault), fault)
        if appended.error is ErrorCode.NONE:
            partition.appended(len(records))
        return appended

    def append_marker(
        self,
        tp: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Appended:
        """End a producer's transaction in `tp`; errors as in `PartitionLog.append_control`, or as in `append`."""
        partition = self._partitions.get(tp)
        if partition is None:
            return _not_here(tp)
        try:
            appended = partition.log.append_control(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                commit=commit,
                coordinator_epoch=coordinator_epoch,
                now_ms=self._clock.now_ms(),
                leader_epoch=partition.leader_epoch,
                transaction_version=transaction_version,
            )
        except StorageError as fault:
            return _failed(self.faults.report(tp, fault), fault)
        if appended.error is ErrorCode.NONE:
            partition.appended(MARKER_BATCH_BYTES)
        return appended

    # ---- coming and going

    def open_log(self, tp: TopicPartition, topic_id: bytes | None, overrides: dict[str, str]) -> PartitionLog:
        """Open a partition's directory, recovering what is in it."""
        return self._open(tp, topic_id, self._log_config(overrides), self._checkpoints)

    def _open(
        self, tp: TopicPartition, topic_id: bytes | None, config: LogConfig, known: Checkpoints | None
    ) -> PartitionLog:
        try:
            log = PartitionLog.open(
                tp,
                DirectoryStorage(self._data_dir / str(tp)),
                config,
                self._clock.now_ms(),
                clean=known is not None and known.clean,
                recovery_point=0 if known is None else known.recovery_points.get(tp, 0),
                log_start_offset=None if known is None else known.log_start_offsets.get(tp),
                topic_id=topic_id,
            )
        except CorruptDataError as fault:
            raise StorageError(f"{self._data_dir / str(tp)} cannot be opened: {fault}") from fault
        _tell(tp, log.findings)
        return log

    def recover(self, image: MetadataImage) -> None:
        """Open every partition of the image, and set aside directories that belong to no topic."""
        set_strays_aside(self._data_dir, image)
        for topic in list(image.topics.values()):
            self.open_topic(topic, image.topic_configs(topic.name))

    def make(self, name: str, topic_id: bytes, numbers: Iterable[int], overrides: Mapping[str, str]) -> None:
        """Make partitions that the metadata does not know yet: all of them or, with StorageError, none."""
        numbers, config = tuple(numbers), self._log_config(overrides)
        for number in numbers:
            must_be_free(self._data_dir / str(TopicPartition(name, number)))
        try:
            self._forget_checkpointed(name, numbers)
            for number in numbers:
                tp = TopicPartition(name, number)
                # The checkpoints name this partition: what they say is about an older topic.
                log = self._open(tp, topic_id, config, None)
                self._partitions[tp] = Partition(tp, topic_id, log, leader_epoch=0)
            # One sync for all. An older topic's directory with this name may have been renamed or removed just before;
            # after a loss of power it must not be there again.
            sync_directory(self._data_dir)
        except StorageError:
            self.unmake(name, numbers)
            raise

    def unmake(self, name: str, numbers: Iterable[int]) -> None:
        """Remove what `make` has made, because the metadata could not be written."""
        for number in numbers:
            self._partitions.pop((name, number), None)
            remove_partition(self._data_dir / str(TopicPartition(name, number)))

    def open_topic(self, topic: TopicImage, overrides: dict[str, str]) -> None:
        """Open the partitions of `topic` that are not open yet."""
        config = self._log_config(overrides)
        for number, image in enumerate(topic.partitions):
            tp = TopicPartition(topic.name, number)
            if tp not in self._partitions:
                log = self._open(tp, topic.topic_id, config, self._checkpoints)
                self._partitions[tp] = Partition(tp, topic.topic_id, log, image.leader_epoch)

    def reconfigure(self, topic: TopicImage, overrides: dict[str, str]) -> None:
        """Use the topic's changed settings."""
        config = self._log_config(overrides)
        for number in range(len(topic.partitions)):
            partition = self._partitions.get((topic.name, number))
            if partition is not None:
                partition.log.config = config

    def delete_topic(self, topic: TopicImage) -> list[Path]:
        """Close a topic's partitions. Returns their renamed directories, whose files the caller removes later."""
        doomed = []
        for number in range(len(topic.partitions)):
            partition = self._partitions.pop((topic.name, number), None)
            if partition is not None:
                # Do not close the log: a fetch may still send its files. They close when the last slice is gone.
                try:
                    doomed.append(mark_deleted(self._data_dir / str(partition.tp)))
                except OSError as fault:  # the topic is deleted in the metadata; the next start sets this aside
                    _log.warning("%s cannot be removed: %s", partition.tp, fault.strerror)
                partition.gone()
        return doomed

    def _forget_checkpointed(self, name: str, numbers: Iterable[int]) -> None:
        """Take partitions out of the checkpoints: else, after a crash, a new topic would inherit their offsets."""
        if any(self._checkpoints.names(TopicPartition(name, number)) for number in numbers):
            self.checkpoint()

    def checkpoint(self, *, sync: bool = True) -> None:
        """Write down what is durable, so that a start after a crash need not check it. StorageError when that fails."""
        self._checkpoints.write(self._checkpoint_plan(), sync=sync)

    def checkpoint_plan(self) -> Callable[[], None]:
        """Like `checkpoint`, for what is durable now; another thread may call the result."""
        return partial(self._checkpoints.write, self._checkpoint_plan())

    def _checkpoint_plan(self) -> CheckpointPlan:
        logs = ((each.tp, each.log) for each in self._partitions.values())
        return self._checkpoints.plan(
            PartitionOffsets(tp, log.recovery_point, log.log_start_offset, log.end_offset) for tp, log in logs
        )

    def close(self) -> None:
        """Flush and close everything, and leave the mark of a clean shutdown."""
        for partition in self._partitions.values():
            partition.log.flush()
        self.checkpoint()
        for partition in self._partitions.values():
            partition.log.close()
        self._checkpoints.mark_clean()

    def _log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        return LogConfig.of(
            TopicConfig(self._config, overrides),
            producer_id_expiration_ms=self._config.int("producer.id.expiration.ms"),
            transaction_verification=self._config.flag("transaction.partition.verification.enable"),
        )


def _tell(tp: TopicPartition, findings: Findings) -> None:
    """Log what opening a partition's log has found."""
    if findings.truncated_bytes:
        _log.warning("%s: cut %d bytes that are no whole batches", tp, findings.truncated_bytes)
    if findings.rebuilt:
        _log.warning("%s: the indexes of %d segment(s) were damaged and are made again", tp, len(findings.rebuilt))
    for gap in findings.unexplained:
        _log.warning("%s: there are no records at offsets %s; readers go on behind them", tp, gap)
    for hole in findings.damaged:
        _log.error(
            "%s: the records at offsets %s were written to disk and are gone; reading there is refused "
            "(CORRUPT_MESSAGE). Stop the broker and put the log file back, or delete the records before offset %d",
            tp,
            hole,
            hole.end_offset,
        )


def _not_here(tp: TopicPartition) -> Appended:
    return Appended(-1, -1, -1, -1, False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp} is not led here")


def _failed(error: ErrorCode, fault: StorageError) -> Appended:
    return Appended(-1, -1, -1, -1, False, error, str(fault))

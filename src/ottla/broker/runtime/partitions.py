"""The partitions that this node leads, and the port through which other code reaches one: by topic and number.

Other code never keeps a partition. It asks for it by name each time, so that one day another process may answer
(DESIGN, idea 7). Appends wake the fetches that wait for data.
"""

import asyncio
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from ottla.base.clock import Clock
from ottla.base.errors import CorruptDataError, StorageError
from ottla.base.types import TopicPartition
from ottla.broker.config import BrokerConfig
from ottla.broker.disk import Disk, Space
from ottla.broker.metadata.image import MetadataImage, TopicImage
from ottla.broker.metadata.names import METADATA_TOPIC
from ottla.broker.runtime.checkpoints import Checkpoints, PartitionOffsets
from ottla.broker.runtime.closing import do_all
from ottla.broker.runtime.directories import make_free, mark_deleted, remove_partition, set_strays_aside
from ottla.broker.runtime.faults import DiskFaults
from ottla.broker.runtime.findings import told_of
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.slices import Slices
from ottla.broker.runtime.syncs import Syncs
from ottla.broker.runtime.wakes import Wakes
from ottla.broker.told import Tell, log_told
from ottla.broker.topic_config import TopicConfig
from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.log.results import Appended, Origin
from ottla.log.witnesses import Outside
from ottla.wire.errors import ErrorCode
from ottla.wire.markers import MARKER_BATCH_BYTES

T = TypeVar("T")

#: Of a partition that is made now, nobody knows anything.
_NEW = Outside()
#: For batches that are compressed anew, or looked at.
_BATCH_THREADS: Final = max(2, min(8, os.cpu_count() or 1))


class Partitions:
    """All partitions of this node."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        disk: Disk,
        rng: random.Random,
        tell: Tell = log_told,
        *,
        is_theirs: bool = False,
        has_whole_metadata: bool = True,
    ) -> None:
        """`tell` hears what opening the partitions finds. `is_theirs`: Apache Kafka was the last to write here.
        `has_whole_metadata`: it is certain that the metadata log has all its changes."""
        self._config = config
        self._clock = clock
        self._disk = disk
        self._rng = rng
        self._tell = tell
        is_used = bool(disk.entries(f"{METADATA_TOPIC}-0"))
        self._checkpoints = Checkpoints(
            disk.own_files(), is_used=is_used, is_theirs=is_theirs, has_whole_metadata=has_whole_metadata, tell=tell
        )
        self._has_whole_metadata = has_whole_metadata
        self._metadata_log: PartitionLog | None = None
        #: Every fault of the disk is reported here.
        self.faults = DiskFaults(clock)
        self.syncs = Syncs(self.faults, clock, self.find)
        #: Fetches that a change has woken.
        self.wakes = Wakes(clock)
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._files = ThreadPoolExecutor(1, "files")
        #: The threads for `beside`.
        self.batches = ThreadPoolExecutor(_BATCH_THREADS, "batches")

    def find(self, topic: str, partition: int) -> Partition | None:
        """The partition if this node leads it, else None."""
        return self._partitions.get((topic, partition))

    def max_message_bytes(self, tp: TopicPartition) -> int:
        """What a batch of a partition may have at most; nothing where there is none."""
        found = self._partitions.get(tp)
        return 0 if found is None else found.log.config.max_message_bytes

    def all(self) -> Iterator[Partition]:
        """Every partition, in no particular order; safe against changes while it is walked.

        What is deleted meanwhile is left out, and not held: thousands that are freed at once would keep the event loop.
        """
        for tp in tuple(self._partitions):
            partition = self._partitions.get(tp)
            if partition is not None:
                yield partition

    # ---- the port of coordinators and of WriteTxnMarkers

    def append(self, tp: TopicPartition, records: bytes, *, origin: Origin) -> Appended:
        """Append a batch; UNKNOWN_TOPIC_OR_PARTITION when this node does not lead `tp`.

        Where `flush.messages` asks for a sync, it is done before this returns: a coordinator goes on from what is sure.
        When the sync fails, the answer has the error, and the offset at which the batch is nevertheless.
        """
        partition = self._partitions.get(tp)
        if partition is None:
            return _not_here(tp)
        try:
            appended = partition.log.append(
                records, now_ms=self._clock.now_ms(), origin=origin, leader_epoch=partition.leader_epoch
            )
        except StorageError as fault:
            return _failed(self.faults.report(tp, fault), fault)
        try:
            self._sync(partition, len(records))
        except StorageError as fault:
            return appended._replace(error=self.faults.report(tp, fault), message=str(fault))
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
        unsynced: "Callable[[asyncio.Future[ErrorCode]], None] | None" = None,
    ) -> Appended:
        """End a producer's transaction in `tp`; errors as in `PartitionLog.append_control`, or as in `append`.

        Where `flush.messages` asks for a sync, who gives `unsynced` hears what to wait for; else it is done here.
        """
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
            if unsynced is not None and appended.error is ErrorCode.NONE and partition.log.synced.is_due:
                unsynced(self.syncs.after(partition, MARKER_BATCH_BYTES))
                return appended
            self._sync(partition, MARKER_BATCH_BYTES)
        except StorageError as fault:
            return _failed(self.faults.report(tp, fault), fault)
        if appended.error is ErrorCode.NONE:
            partition.appended(MARKER_BATCH_BYTES)
        return appended

    def is_held(self, tp: TopicPartition) -> bool:
        """Whether a large batch is being written to `tp`: no marker can be written meanwhile."""
        partition = self._partitions.get(tp)
        return partition is not None and partition.is_held

    def until_free(self, tp: TopicPartition) -> "Iterator[asyncio.Future[None]]":
        """Steps for `Slices`: behind them who looks for `tp` finds a partition to which he can write, or none.

        It may be deleted meanwhile, and a new one with its name be held by then."""
        while (partition := self._partitions.get(tp)) is not None and partition.held is not None:
            yield partition.held

    def is_synced(self, tp: TopicPartition) -> bool:
        """Try to sync what `flush.messages` asks for. Whether nothing of it is left."""
        partition = self._partitions.get(tp)
        try:
            if partition is not None:
                partition.log.synced.sync_due()
        except StorageError as fault:
            self.faults.report(tp, fault)
            return False
        if partition is not None and partition.untold_bytes:
            partition.appended(0)
        return True

    def _sync(self, partition: Partition, size_bytes: int) -> None:
        """Sync what was appended, so many bytes, if that is due. StorageError: its watchers hear of it later."""
        try:
            partition.log.synced.sync_due()
        except StorageError:
            partition.untold_bytes += size_bytes
            self.syncs.again_soon(partition)
            raise

    def space(self) -> Space:
        """How much room the data directory's device has."""
        return self._disk.space()

    # ---- coming and going

    def open_metadata(self, tp: TopicPartition, overrides: dict[str, str]) -> PartitionLog:
        """Open the metadata log, recovering what is in it. One that may have lost its end is read to where it ends,
        whatever the checkpoints say of it."""
        known = self._checkpoints if self._has_whole_metadata else None
        log = self._metadata_log = self._open(tp, None, self.log_config(overrides), known, is_known=False)
        return log

    def _open(
        self,
        tp: TopicPartition,
        topic_id: bytes | None,
        config: LogConfig,
        known: Checkpoints | None,
        *,
        is_known: bool = True,
        leader_epoch: int | None = None,
    ) -> PartitionLog:
        try:
            log = PartitionLog.open(
                tp,
                self._disk.open_folder(str(tp)),
                config,
                self._clock.now_ms(),
                clean=known is not None and known.clean,
                recovery_point=0 if known is None else known.recovery_points.get(tp, 0),
                log_start_offset=None if known is None else known.log_start_offsets.get(tp),
                topic_id=topic_id,
                outside=_NEW
                if known is None
                else known.outside(tp, is_known=is_known, leader_epoch=leader_epoch, deletes=config.deletes),
            )
            if known is not None and known.may_be_cleaned_further and config.compacts:
                log.flush()  # the next start knows that it was we who were here
        except (CorruptDataError, StorageError) as fault:
            raise StorageError(f"{self._disk}/{tp} cannot be opened: {fault}") from fault
        log.synced.sync_due()  # what a crash has left may not be on the device yet
        for told in told_of(tp, log.findings):
            self._tell(told)
        return log

    def recover(self, image: MetadataImage, deleted_ids: frozenset[bytes]) -> None:
        """Open every partition of the image. Directories of deleted topics are removed, those of no topic set aside."""
        set_strays_aside(self._disk, image, deleted_ids, self._rng, self._tell)
        for topic in list(image.topics.values()):
            self.open_topic(topic, image.topic_configs(topic.name))
        if self._checkpoints.may_be_cleaned_further:
            self.checkpoint_plan()()  # what only this start knows of the logs (`thinned_below`, `aborts`)
        elif self._checkpoints.unusable or self._checkpoints.has_older_starts(
            (each.tp, each.log.log_start_offset) for each in self._partitions.values()
        ):
            # Before anybody is served: if the broker is killed now, a second damage would take the other witness.
            with suppress(StorageError):  # on a full disk it is tried again soon (`lacks_checkpoints`)
                self.checkpoint_plan()()

    def doubtful(self) -> Iterator[Partition]:
        """The partitions that may have lost the end of their logs before this start."""
        for partition in self.all():
            findings = partition.log.findings
            if not self._checkpoints.proves_order or findings.truncated_bytes or findings.losses:
                yield partition

    # ---- for `runtime.making`

    def make_free(self, tp: TopicPartition) -> bool:
        """StorageError when there are files where a new partition would be, but for those of an attempt to make it.

        True if an empty folder is there, whose names are to be synced before it is used.
        """
        return make_free(self._disk, str(tp))

    def sync_folder(self, tp: TopicPartition) -> None:
        """Return once the device knows what is in a folder that is there already. May run in another thread."""
        self._disk.open_folder(str(tp)).sync_names()

    async def forget_checkpointed(self, tps: Iterable[TopicPartition], slices: Slices) -> None:
        """Take partitions out of the checkpoints: else, after a crash, a new topic would inherit their offsets.

        StorageError when the disk refuses.
        """
        if any(await slices.collect(map(self._checkpoints.names, tps))):
            await self.write_checkpoint(slices)

    def open_new(self, tp: TopicPartition, topic_id: bytes, config: LogConfig) -> Partition:
        """A new partition, which `find` does not find yet. What the checkpoints say of it is about an older topic."""
        log = self._open(tp, topic_id, config, None)
        partition = Partition(tp, topic_id, log, leader_epoch=0, wakes=self.wakes)
        partition.lead(0)
        return partition

    def sync_names(self) -> None:
        """Bring the new directories to the device, with one sync for all. May run in another thread.

        An older topic's directory with this name may have been renamed or removed just before; after a loss of power it
        must not be there again.
        """
        self._disk.sync_names()

    def add(self, made: Iterable[Partition]) -> None:
        """From now on `find` finds these."""
        self._partitions.update((each.tp, each) for each in made)

    def remove(self, tps: Iterable[TopicPartition]) -> None:
        """Remove the directories of partitions that were never added; may run in another thread."""
        for tp in tps:
            remove_partition(self._disk, str(tp))

    # ----

    def open_topic(self, topic: TopicImage, overrides: dict[str, str]) -> None:
        """Open the partitions of `topic` that are not open yet."""
        config = self.log_config(overrides)
        for number, image in enumerate(topic.partitions):
            tp = TopicPartition(topic.name, number)
            if tp not in self._partitions:
                log = self._open(tp, topic.topic_id, config, self._checkpoints, leader_epoch=image.leader_epoch)
                self._partitions[tp] = Partition(tp, topic.topic_id, log, image.leader_epoch, self.wakes)

    def reconfigure(self, topic: TopicImage, overrides: dict[str, str]) -> None:
        """Use the topic's changed settings."""
        config = self.log_config(overrides)
        for number in range(len(topic.partitions)):
            partition = self._partitions.get((topic.name, number))
            if partition is not None:
                partition.log.config = config

    def take_out(self, topic: TopicImage) -> Iterator[str]:
        """Let go of a deleted topic's partitions, one in each step; gives its folder, for `mark_deleted`.

        Do not close the logs: a fetch may still send their files. They close when the last slice is gone.
        """
        for number in range(len(topic.partitions)):
            partition = self._partitions.pop((topic.name, number), None)
            if partition is not None:
                partition.log.synced.let_go()
                partition.gone()
                yield str(partition.tp)

    def mark_deleted(self, folders: Iterable[str]) -> list[str]:
        """Rename folders, to be deleted. Returns their new names. May run in another thread.

        After a loss of power a folder that has its name again may not know any more whose it is (`partition.metadata`):
        its records would stay as those of no topic. If the device refuses, they may.
        """
        doomed = mark_deleted(self._disk, folders, self._rng)
        with suppress(StorageError):
            self.sync_names()
        return doomed

    def remove_deleted(self, folders: Iterable[str]) -> None:
        """Remove what `mark_deleted` has renamed. May run in another thread."""
        for folder in folders:
            remove_partition(self._disk, folder)

    def in_thread(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run `work`, which may wait for the disk, in the thread for files. The loop goes on meanwhile.

        There is one such thread, and it works in order. So when it renames a deleted topic's directory, it has finished
        deleting old files in there, and never deletes a file of a new topic with the same name.
        """
        return asyncio.get_running_loop().run_in_executor(self._files, work)

    def beside(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run `work`, which takes the processor, in a thread for batches. What waits for the device has other threads:
        a few batches that stand for gigabytes must not keep every sync waiting."""
        return asyncio.get_running_loop().run_in_executor(self.batches, work)

    @property
    def lacks_checkpoints(self) -> bool:
        """Whether the start has found a checkpoint that cannot be used: it should be written again soon."""
        return bool(self._checkpoints.unusable)

    async def write_checkpoint(self, slices: Slices) -> None:
        """Write down what is durable now, so that a start after a crash need not check it; return when it is done.

        It is put together in slices, and another thread writes it. StorageError when the disk refuses.
        """
        draft = self._checkpoints.draft(self._metadata_end)

        def steps() -> Iterator[None]:
            for partition in self.all():
                draft.add(_offsets(partition))
                yield

        await slices.run(steps())
        await asyncio.get_running_loop().run_in_executor(None, self._checkpoints.write, draft.plan())

    def checkpoint_plan(self, *, is_last: bool = False) -> Callable[[], None]:
        """The same, put together at once, while nobody is served. Returns the work; it raises StorageError.

        `is_last`: nothing changes any more before the broker stops.
        """
        offsets = (_offsets(each, is_last=is_last) for each in self._partitions.values())
        return partial(self._checkpoints.write, self._checkpoints.plan(offsets, self._metadata_end))

    @property
    def _metadata_end(self) -> int | None:
        return None if self._metadata_log is None else self._metadata_log.synced.offset

    def close(self, *, clean: bool = True, broker_epoch: int = -1, threads: int = 1) -> None:
        """Flush and close everything, and leave the mark of a clean shutdown unless something else was not `clean`.

        `broker_epoch` goes into that mark. The logs are closed in as many `threads`; with one, in order.

        StorageError when the disk refuses something. Everything else is flushed and closed nevertheless, and there is
        no such mark.
        """
        self._files.shutdown()
        self.batches.shutdown(cancel_futures=True)
        closing = [each.log.close for each in self._partitions.values()]
        refused = do_all(closing, threads)
        faults = [*refused.values(), *do_all([self.checkpoint_plan(is_last=True)], 1).values()]
        # Once more: on a full disk the others have made room.
        faults += do_all([closing[number] for number in refused], 1).values()
        if faults:
            raise faults[0]
        if clean:
            self._checkpoints.mark_clean(broker_epoch)

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """What a topic's own settings, and the broker's, say of a log."""
        return LogConfig.of(
            TopicConfig(self._config, overrides),
            producer_id_expiration_ms=self._config.int("producer.id.expiration.ms"),
            transaction_verification=self._config.flag("transaction.partition.verification.enable"),
        )


def _offsets(partition: Partition, *, is_last: bool = False) -> PartitionOffsets:
    """What the checkpoints shall say of a partition."""
    log = partition.log
    return PartitionOffsets(
        partition.tp,
        log.flushed_offset,
        log.log_start_offset,
        log.end_offset,
        log.aborts,
        log.compaction.cleaned_offset,
        log.findings.damaged,
        log.compaction.bases if is_last else (),
        log.compaction.thinned_below,
    )


def _not_here(tp: TopicPartition) -> Appended:
    return Appended(-1, -1, -1, -1, False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp} is not led here")


def _failed(error: ErrorCode, fault: StorageError) -> Appended:
    return Appended(-1, -1, -1, -1, False, error, str(fault))

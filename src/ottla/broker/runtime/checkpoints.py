"""The data directory's own files: offsets that are durable, and the mark of a clean shutdown.

A file that is gone or damaged never stops a start, and is never passed over in silence. What it said is taken from
other files: where a log begins, from its leader-epoch-checkpoint; what is durable, by checking more than is needed.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.base.errors import CorruptDataError, StorageError
from ottla.base.limits import MAX_LOST_EPOCHS
from ottla.base.types import TopicPartition
from ottla.broker.metadata.names import META_PROPERTIES
from ottla.broker.runtime.manifest import (
    MANIFEST,
    Manifest,
    checksum,
    decode_manifest,
    either,
    encode_manifest,
)
from ottla.broker.told import Kind, Tell, Told, log_told
from ottla.log.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    decode_offsets,
    encode_clean_shutdown,
    encode_offsets,
    is_clean_shutdown,
)
from ottla.log.damage import OffsetRange
from ottla.log.storage import Storage
from ottla.log.txn_index import AbortsSeal
from ottla.log.witnesses import Outside

_log = logging.getLogger(__name__)

#: What follows when a file cannot be used.
_INSTEAD: Final = {
    RECOVERY_POINT_CHECKPOINT: "after a crash every log is checked from its beginning",
    LOG_START_OFFSET_CHECKPOINT: "where each log begins is taken from its leader-epoch-checkpoint",
    HIGH_WATERMARK_CHECKPOINT: "nothing is lost by that, there is one replica; it is written again",
    CLEANER_OFFSET_CHECKPOINT: "compacted logs are cleaned from their beginning again",
}


class PartitionOffsets(NamedTuple):
    """What the files say about one partition."""

    tp: TopicPartition
    recovery_point: int
    log_start_offset: int
    high_watermark: int
    #: What the `.txnindex` of each segment must hold, by base offset.
    aborts: Mapping[int, AbortsSeal] = MappingProxyType({})
    #: Where the cleaner's last pass ended; None if there was none.
    cleaned_offset: int | None = None
    #: Where flushed records are missing.
    holes: tuple[OffsetRange, ...] = ()
    #: Base offsets of its segments, where the broker stops in order; () where a cleaning was going on.
    bases: tuple[int, ...] = ()
    #: Below which offset some may be missing by compaction, in any segment.
    thinned_below: int = 0


class CheckpointPlan(NamedTuple):
    """What the files should say, as it was at one moment; a later plan has a higher number."""

    number: int
    offsets: tuple[PartitionOffsets, ...]
    named: frozenset[TopicPartition]
    #: Up to where the metadata log is on the device.
    metadata_end: int | None = None


class CheckpointDraft:
    """A plan in the making, a partition at a time: others are served meanwhile, and partitions come and go.

    What it has of a partition was true when it was added, and stays true. Its number is of when it was begun: a plan
    that was begun later has the same, or news, and makes it needless.
    """

    def __init__(self, number: int, named: set[TopicPartition], metadata_end: int | None) -> None:
        self._number = number
        self._named = named
        self._metadata_end = metadata_end
        self._offsets: list[PartitionOffsets] = []

    def add(self, offsets: PartitionOffsets) -> None:
        """What the files should say about one more partition."""
        self._offsets.append(offsets)
        self._named.add(offsets.tp)

    def plan(self) -> CheckpointPlan:
        """The plan, when every partition is added."""
        return CheckpointPlan(self._number, tuple(self._offsets), frozenset(self._named), self._metadata_end)


class Checkpoints:
    """Reads the directory's files when the broker starts, and writes them again.

    `write` may run in another thread. A thread that comes late does not overwrite newer contents.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        is_used: bool = False,
        is_theirs: bool = False,
        has_whole_metadata: bool = True,
        tell: Tell = log_told,
    ) -> None:
        """`storage` is the data directory; `is_used` says that a broker has been here before, `is_theirs` that it was
        Apache Kafka: then what a manifest knows of the files is of an earlier time. `has_whole_metadata` is not so if
        somebody goes on with a metadata log that may lack its last changes."""
        self._storage = storage
        self._has_whole_metadata = has_whole_metadata
        self._tell = tell
        self._is_used = is_used and not is_theirs
        #: Apache Kafka was here last.
        self.is_theirs = is_theirs
        if is_theirs:
            storage.delete(MANIFEST)
            if storage.read(CLEANER_OFFSET_CHECKPOINT) == b"":  # as Apache Kafka makes it, before it has cleaned
                storage.delete(CLEANER_OFFSET_CHECKPOINT)
        #: Whether the last broker stopped in order. The marker is removed now, and the removal synced, so that even
        #: after a loss of power the next start does not find it: that start would check nothing.
        self.clean = self._read_mark()
        storage.delete(CLEAN_SHUTDOWN_MARKER)
        storage.sync_names()
        #: Names of files that cannot be used.
        self.unusable: set[str] = set()
        #: Whether the start has found no manifest that can be used.
        self.lacks_manifest = False
        self._manifest = self._read_manifest()
        self._epochs_reach_start = self._manifest.epochs_reach_start
        self.recovery_points = self._read(RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = self._read(LOG_START_OFFSET_CHECKPOINT)
        self._read(HIGH_WATERMARK_CHECKPOINT)
        self.cleaned_offsets = self._read(CLEANER_OFFSET_CHECKPOINT)
        self._seal()
        if not has_whole_metadata and self._manifest.metadata_end is not None:
            with suppress(StorageError):  # on a full disk the end mark is not made again, either
                self._write_manifest(replace(self._manifest, metadata_end=None))
        #: What the `.txnindex` of each segment must hold.
        self.aborts = self._manifest.aborts
        self._holes = self._manifest.holes
        #: After a kill it is not known any more which segments there were: retention and the cleaner went on.
        self._bases: Mapping[TopicPartition, tuple[int, ...]] = self._manifest.bases if self.clean else {}
        #: The partitions that the files name.
        self._named = frozenset(self.recovery_points.keys() | self.log_start_offsets.keys())
        #: The partitions of the plans that are made, or that another thread may still write, by the plan's number.
        self._coming: dict[int, set[TopicPartition]] = {}
        self._writing = threading.Lock()
        #: The last plan made, the last one begun to be written, and the last one written to its end.
        self._planned = self._written = self._complete = 0

    def names(self, tp: TopicPartition) -> bool:
        """Whether the files name `tp`, or will when a plan is written that is still to be written.

        A new partition with this name would inherit what they say.
        """
        return tp in self._named or any(tp in named for named in tuple(self._coming.values()))

    def has_older_starts(self, starts: Iterable[tuple[TopicPartition, int]]) -> bool:
        """Whether the broker stopped in order, and the files do not say that the logs begin there: they are older."""
        may_be = self.clean and self._epochs_reach_start
        return may_be and any(self.log_start_offsets.get(tp, 0) < offset for tp, offset in starts)

    @property
    def proves_order(self) -> bool:
        """Whether the last broker stopped in order, and nothing says that a log is not as it was then."""
        has_points = not self.lacks_manifest and RECOVERY_POINT_CHECKPOINT not in self.unusable
        return self.clean and has_points and self._has_whole_metadata

    @property
    def may_be_cleaned_further(self) -> bool:
        """Whether somebody else may have cleaned what the recovery points do not know to be on the device."""
        return self.is_theirs or self.lacks_manifest

    def outside(
        self, tp: TopicPartition, *, is_known: bool, leader_epoch: int | None = None, deletes: bool = False
    ) -> Outside:
        """What is known of a partition before its own files are looked at; `leader_epoch` from the metadata. Only where
        its topic `deletes` does the start of its log move."""
        return Outside(
            is_known,
            start_is_unknown=LOG_START_OFFSET_CHECKPOINT in self.unusable,
            start_is_unproved=self.lacks_manifest,
            start_may_be_old=is_known and deletes and self.clean and self._epochs_reach_start,
            flush_is_unknown=RECOVERY_POINT_CHECKPOINT in self.unusable,
            may_be_cleaned_further=self.may_be_cleaned_further,
            cleaned_offset=self.cleaned_offsets.get(tp),
            aborts=self.aborts.get(tp, {}),
            holes=self._holes.get(tp, ()),
            bases=self._bases.get(tp, ()),
            leader_epoch=leader_epoch,
            lost_epochs=0 if self._has_whole_metadata else MAX_LOST_EPOCHS,
            is_theirs=self.is_theirs,
            thinned_below=self._manifest.thinned.get(tp, 0),
        )

    def draft(self, metadata_end: int | None = None) -> CheckpointDraft:
        """Begin to say what the files should hold now; up to `metadata_end` the metadata log is on the device."""
        self._planned += 1
        named: set[TopicPartition] = set()
        self._coming[self._planned] = named
        return CheckpointDraft(self._planned, named, metadata_end)

    def plan(self, partitions: Iterable[PartitionOffsets], metadata_end: int | None = None) -> CheckpointPlan:
        """What the files should hold now, all of it at once."""
        draft = self.draft(metadata_end)
        for each in partitions:
            draft.add(each)
        return draft.plan()

    def write(self, plan: CheckpointPlan) -> None:
        """Replace the files, each atomically and synced. StorageError when one cannot be replaced, by this plan or by a
        newer one that was written before.

        A file that is replaced without a sync may be empty after a loss of power. Then everything would be gone that an
        earlier checkpoint had brought to the device.
        """
        with self._writing:
            try:
                if plan.number > self._written:
                    self._replace(plan)
                elif plan.number > self._complete:
                    raise StorageError("a newer checkpoint than this one could not be written")
            finally:
                for number in [each for each in tuple(self._coming) if each <= plan.number]:
                    del self._coming[number]  # an earlier plan comes too late to be written

    def _replace(self, plan: CheckpointPlan) -> None:
        # Both are true from now on, also when only some of the files can be replaced.
        self._written = plan.number
        self._named |= plan.named
        contents = dict(_contents(plan.offsets))
        now = {name: checksum(content) for name, content in contents.items()}
        before = {name: self._manifest.checksums.get(name) or (checksum(self._storage.read(name)),) for name in now}
        both = {name: either(before[name], now[name]) for name in now}
        coming = Manifest(
            both,
            {each.tp: each.aborts for each in plan.offsets if each.aborts},
            self._manifest.properties,
            {each.tp: each.holes for each in plan.offsets if each.holes},
            {each.tp: each.bases for each in plan.offsets if each.bases},
            {each.tp: each.thinned_below for each in plan.offsets if each.thinned_below},
            epochs_reach_start=True,
            metadata_end=plan.metadata_end,
        )
        self._write_manifest(coming)
        for name, content in contents.items():
            self._storage.write(name, content)
        # What the files held before is no longer right. It may be that there were none: nobody would miss one.
        self._write_manifest(replace(coming, checksums={name: (each,) for name, each in now.items()}))
        self._named = plan.named
        self._complete = plan.number

    def _write_manifest(self, manifest: Manifest) -> None:
        self._storage.write(MANIFEST, encode_manifest(manifest))
        self._manifest = manifest

    def mark_clean(self, broker_epoch: int = -1) -> None:
        """Leave the mark of a clean shutdown: everything is on the device.

        `broker_epoch` is that of the broker's registration. Apache Kafka takes a stop for clean if it knows it.
        """
        self._storage.write(CLEAN_SHUTDOWN_MARKER, encode_clean_shutdown(broker_epoch))

    def _seal(self) -> None:
        """Where the manifest does not know what a file holds, it knows it from now on. All were looked at before.

        One that was gone is written when every log is open (`lacks_manifest`): what the `.txnindex` of a segment must
        hold is not known before.
        """
        content = self._storage.read(META_PROPERTIES)
        properties = None if content is None else content.decode(errors="replace")  # `storage check` reads damaged ones
        if self.lacks_manifest:
            self._manifest = Manifest(properties=properties)
        elif properties is not None and properties != self._manifest.properties:
            found = {name: (checksum(self._storage.read(name)),) for name in _INSTEAD}
            checksums = found | dict(self._manifest.checksums)
            self._write_manifest(replace(self._manifest, checksums=checksums, properties=properties))

    def _read_mark(self) -> bool:
        content = self._storage.read(CLEAN_SHUTDOWN_MARKER)
        if content is None and self._is_used:
            _log.warning(
                "there is no %s: the last broker did not stop in order, or the file is gone. "
                "Each log is checked from its recovery point on",
                CLEAN_SHUTDOWN_MARKER,
            )
        try:
            return is_clean_shutdown(content)
        except CorruptDataError as damage:
            text = f"{CLEAN_SHUTDOWN_MARKER} is damaged ({damage}): every log is checked, as after a crash"
            self._tell(Told(Kind.MADE_AGAIN, CLEAN_SHUTDOWN_MARKER, text))
            return False

    def _read(self, name: str) -> Mapping[TopicPartition, int]:
        content = self._storage.read(name)
        fault = self._manifest.fault_of(name, content)
        if fault is None and content is not None:
            try:
                return decode_offsets(content)
            except CorruptDataError as damage:
                fault = f"is damaged ({damage})"
        # A clean stop leaves all of them, and so does whoever has made a manifest, which is gone as well. Apache Kafka
        # makes the cleaner's at its first cleaning.
        is_left = self.lacks_manifest or (self.clean and name != CLEANER_OFFSET_CHECKPOINT)
        if fault is None and content is None and is_left:
            fault = "is gone"
        if fault is not None:
            self.unusable.add(name)
            self._tell(Told(Kind.MADE_AGAIN, name, f"{name} {fault}: {_INSTEAD[name]}"))
        return {}

    def _identity(self) -> str:
        """Whose directory it is, as far as only `meta.properties` says: a changed digit would make another cluster."""
        lines = (self._storage.read(META_PROPERTIES) or b"").decode(errors="replace").splitlines()
        said = [line.strip() for line in lines if line.startswith(("cluster.id", "node.id"))]
        return f"{META_PROPERTIES} is believed: {', '.join(said) or 'it says nothing'}"

    def _read_manifest(self) -> Manifest:
        content = self._storage.read(MANIFEST)
        try:
            if content is not None:
                return decode_manifest(content)
            fault = "is gone" if self._is_used else ""
        except CorruptDataError as damage:
            fault = f"is damaged ({damage})"
        if fault:
            text = (
                f"{MANIFEST} {fault}: that the directory's other files are as the broker has left them cannot be "
                f"checked; it is made again. {self._identity()}"
            )
            self._tell(Told(Kind.MADE_AGAIN, MANIFEST, text))
            self.lacks_manifest = True
        return Manifest()


def _contents(offsets: Sequence[PartitionOffsets]) -> Iterator[tuple[str, bytes]]:
    # Where a flush has passed over deleted records, the recovery point is right only beside their log start.
    yield LOG_START_OFFSET_CHECKPOINT, encode_offsets({each.tp: each.log_start_offset for each in offsets})
    yield RECOVERY_POINT_CHECKPOINT, encode_offsets({each.tp: each.recovery_point for each in offsets})
    yield HIGH_WATERMARK_CHECKPOINT, encode_offsets({each.tp: each.high_watermark for each in offsets})
    cleaned = {each.tp: each.cleaned_offset for each in offsets if each.cleaned_offset is not None}
    yield CLEANER_OFFSET_CHECKPOINT, encode_offsets(cleaned)

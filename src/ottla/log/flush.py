"""What makes a log durable, apart from the log: it waits for the device, and may do so in another thread."""

import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Final, Protocol

from ottla.base.errors import StorageError
from ottla.log.config import LogConfig
from ottla.log.epochs import LeaderEpochs
from ottla.log.names import LEADER_EPOCH_CHECKPOINT, SNAPSHOT, UNFINISHED_SYNC
from ottla.log.producers import ProducerState
from ottla.log.segment import Segment
from ottla.log.segments import Segments
from ottla.log.snapshot import PlannedSnapshots, Snapshots
from ottla.log.storage import Changing, File, Storage, sync_whole

#: How many segments one flush syncs; three files each are open meanwhile.
_AT_ONCE: Final = 32


class FlushPlan:
    """What makes the log durable up to an offset: `steps`, `write` and `sync`, and then `mark_flushed`.

    Who takes no steps and does not write leaves it to `sync`, which may run in another thread. `write` may, too, as
    long as nobody gives the directory another name: it writes and removes files.
    """

    def __init__(
        self,
        offset: int,
        files: Sequence[File],
        storage: Storage,
        epochs: LeaderEpochs | None = None,
        snapshots: PlannedSnapshots | None = None,
        *,
        changing: Sequence[Changing] = (),
    ) -> None:
        """`changing`: what the device has, as it is now, when `sync` has returned (`done`)."""
        self.offset = offset
        self.storage = storage
        self._files = tuple(files)
        self._epochs = epochs
        self._snapshots = snapshots
        self._changes = [(each, each.changes) for each in changing]

    @property
    def is_long(self) -> bool:
        """Whether there are steps to take."""
        return self._snapshots is not None and self._snapshots.is_long

    def steps(self) -> Iterator[None]:
        """What takes the processor."""
        return iter(()) if self._snapshots is None else self._snapshots.steps()

    def write(self) -> tuple[File, ...]:
        """Write what is not written yet; all files that have to be on the device. StorageError."""
        if self._epochs is not None:
            self._files += self._epochs.unsynced_files()
            self._epochs = None
        if self._snapshots is not None:
            self._files += tuple(self._snapshots.write())
            self._snapshots = None
        return self._files

    def sync(self) -> None:
        """Return when every file and its name is on the device. StorageError when the system refuses."""
        files = self.write()
        sync_whole(self.storage, files)
        if files:
            self.storage.sync_names()

    def done(self) -> None:
        """All of it is on the device: the next flush need not sync it again."""
        for each, changes in self._changes:
            each.reached(changes)


def plan_flush(
    storage: Storage,
    segments: Segments,
    producers: ProducerState,
    snapshots: Snapshots,
    epochs: LeaderEpochs,
    offset: int,
) -> FlushPlan:
    """What brings a log to the device, which has it up to `offset`. Its indexes are written now. StorageError."""
    files = segments.retired_files(offset)
    wanted = segments.ending_after(offset)
    changing: list[Changing] = [epochs]
    for segment in wanted[:_AT_ONCE]:
        segment.save_indexes()
        files += segment.files()
        changing += segment.offset_index, segment.time_index
    if len(wanted) > _AT_ONCE and wanted[_AT_ONCE].base_offset < producers.end_offset:
        return FlushPlan(wanted[_AT_ONCE].base_offset, files, storage, epochs, changing=changing)
    planned = snapshots.planned(producers, (*segments.retired_bases, *segments.bases))
    return FlushPlan(producers.end_offset, files, storage, epochs, planned, changing=changing)


def heed_refusals(
    storage: Storage, names: Collection[str], segments: Sequence[Segment], recovery_point: int, *, clean: bool
) -> None:
    """At a start: if an earlier process may have been refused a sync, have what it left behind written again.

    That is all behind the recovery point, and the small files that stand for deleted records. The process was killed
    in the sync or after it, and the system went on: it may take for clean what the device does not have. StorageError.
    """
    if UNFINISHED_SYNC not in names:
        return
    if clean:
        with suppress(StorageError):  # it says nothing any more
            storage.unmark(UNFINISHED_SYNC)
        return
    for segment, following in zip_longest(segments, segments[1:]):
        if following is None or following.base_offset > recovery_point:
            _have_written_again(segment.log_file())
    for name in storage.names():  # this start has removed some
        if name.endswith(SNAPSHOT) or name == LEADER_EPOCH_CHECKPOINT:
            _have_written_again(storage.open(name))


def _have_written_again(file: File) -> None:
    file.suspect()
    with suppress(StorageError):  # else before its next sync; but then somebody may be waiting for that
        file.write_again()


class _Log(Protocol):
    """What is known of the log here."""

    config: LogConfig
    end_offset: int


class Synced:
    """How far the log's own bytes are on the device, and what nobody may see before they are (`flush.messages`).

    Apache Kafka syncs within the append, before it moves the high watermark. Here the sync may be in another thread, so
    the high watermark waits for it: else a reader could have seen what a loss of power then takes.
    """

    __slots__ = ("_held", "_log", "_segments", "_storage", "offset")

    def __init__(self, log: _Log, storage: Storage, segments: Segments, offset: int) -> None:
        #: The log owns this, not the other way: its files close with its last reader, not with the garbage.
        self._log: _Log = weakref.proxy(log)
        self._storage = storage
        self._segments = segments
        #: Everything below is on the device.
        self.offset = offset
        #: Where the high watermark waits; None if nothing waits for a sync.
        self._held: int | None = None

    @property
    def is_due(self) -> bool:
        """Whether the last records have to be on the device before they are acknowledged."""
        return self._log.end_offset - self.offset >= self._log.config.flush_messages

    @property
    def high_watermark(self) -> int:
        """Where readers end."""
        if self._held is not None and not self.is_due:
            self._held = None  # `flush.messages` was raised
        return self._log.end_offset if self._held is None else self._held

    def appended(self, offset: int) -> None:
        """Records from `offset` on were appended."""
        if self._held is None and self.is_due:
            self._held = offset

    def reached(self, offset: int) -> None:
        """The device has everything below `offset`: the files that hold it, and their names."""
        self._segments.is_named = self._segments.is_named or offset > self.offset
        self.offset = max(self.offset, offset)
        if self._held is not None:
            self._held = max(self._held, self.offset) if self.is_due else None

    def begins_at(self, offset: int) -> None:
        """The log begins there now: so nobody waits for what is below.

        It has to be on the device all the same, before a record behind it is acknowledged. Until the device knows of
        the new start, a loss of power may bring the old one back, and would end the log where records are missing.
        """
        if self._held is not None:
            self._held = max(self._held, offset)

    def let_go(self) -> None:
        """The log is deleted. A sync that is under way may end when the next one of its name has a note there."""
        self._storage.sync_note.leave()

    def plan(self) -> FlushPlan:
        """What brings the log's own bytes to the device, without indexes and snapshot: a start makes these again.

        Call its `sync`, perhaps in another thread, and then `reached` with its offset.
        """
        end_offset = self._log.end_offset
        if end_offset <= self.offset:
            return FlushPlan(end_offset, (), self._storage)
        files = [segment.log_file() for segment in self._segments.ending_after(self.offset)]
        return FlushPlan(end_offset, (*self._segments.retired_files(self.offset), *files), self._storage)

    def sync_due(self) -> None:
        """Sync now, if that is due. Blocks until the device has everything; StorageError when it refuses."""
        if self.is_due:
            plan = self.plan()
            plan.sync()
            self.reached(plan.offset)

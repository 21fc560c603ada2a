"""Which leader epoch began at which offset (KIP-101, KIP-320): the partition's leader-epoch-checkpoint."""

from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress

from ottla.base.errors import CorruptDataError, StorageError
from ottla.log.checkpoint import decode_leader_epochs, encode_leader_epochs
from ottla.log.names import LEADER_EPOCH_CHECKPOINT
from ottla.log.results import EpochEndOffset
from ottla.log.storage import Changing, File, Storage, sync_whole
from ottla.wire.batch import NO_PARTITION_LEADER_EPOCH, BatchHeader

_UNKNOWN = EpochEndOffset(-1, -1)
#: Epochs have 31 bits.
_MAX_EPOCH = 2**31 - 1


class LeaderEpochs(Changing):
    """Epochs and start offsets, both ascending. Every change but that of a next epoch is written at once."""

    def __init__(self, storage: Storage, newest: int | None = None, *, lost: int = 0, is_theirs: bool = False) -> None:
        """`newest` is the epoch of the partition's leader, where it is known: no record has a newer one, but for those
        of as many epochs as were perhaps `lost`.

        A batch, or a file, that says so was changed: no checksum covers an epoch. `is_theirs`: Apache Kafka was here
        last. It leaves an empty file where it has moved a log without records to another directory.
        """
        super().__init__()
        self._storage = storage
        self._newest = newest
        self._last = _MAX_EPOCH if newest is None else newest + lost
        #: The leader has to have another epoch before anything is appended.
        self.is_waiting = False
        self._entries: list[tuple[int, int]] = []
        #: The first batch that says an epoch that cannot be: its offset, and the epoch.
        self.wrong: tuple[int, int] | None = None
        #: What was wrong with the file.
        self.fault: str | None = None
        #: Whether the file does not say yet where the log, or the newest epoch, begins.
        self._is_behind = False
        #: The disk has refused to sync what a start has made again.
        self.is_owed = False
        content = storage.read(LEADER_EPOCH_CHECKPOINT)
        if content is not None and not (is_theirs and content == b""):
            try:
                for epoch, start_offset in decode_leader_epochs(content):
                    if epoch > self._last:
                        raise CorruptDataError(f"checkpoint: {epoch} is no leader epoch, the newest is {self._last}")
                    self._put(epoch, start_offset)
            except CorruptDataError as fault:
                # The file is written atomically, so something else has changed it. Recovery reads the epochs from the
                # batches instead.
                self._entries, self.fault = [], str(fault)
        #: Whether the file is gone, or says nothing. It is written before the first record is.
        self.was_empty = not self._entries

    @property
    def latest(self) -> int:
        """The newest epoch that has records, or -1."""
        return self._entries[-1][0] if self._entries else -1

    @property
    def newest(self) -> int | None:
        """The epoch of the partition's leader, where it is known."""
        return self._newest

    @property
    def leaders(self) -> int:
        """The epoch of the partition's leader; the newest that has records, or -1, where it is not known."""
        return self.latest if self._newest is None else max(self.latest, self._newest)

    def lead(self, epoch: int | None) -> None:
        """The leader leads in this epoch from now on. None: in one that it does not know yet, so nothing is appended
        before it is told: no two leaders may write in one epoch (KIP-101)."""
        self.is_waiting = epoch is None
        if epoch is not None:
            self._newest = self._last = epoch

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(epoch, start offset), oldest first."""
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """The first record of `epoch` is at `start_offset`. No-op when it is known already; StorageError.

        The first epoch of all is written at once: it is the witness of the records. A later one is in the batches that
        a start behind a kill reads, and the next flush writes it: behind an end of the broker that was not in order,
        the next record of every partition begins an epoch.
        """
        if self.is_waiting:
            raise StorageError("the epoch that the leader has next is not on the device yet")
        if epoch >= 0 and epoch != self.latest:
            before = tuple(self._entries)
            self._put(epoch, start_offset)
            if before:
                self.changes += 1
                self._is_behind = True
                return
            try:
                self.save(sync=False)  # the batches carry the epoch too, and `flush` makes both durable
            except StorageError:
                self._entries, self._is_behind = [], False  # so the next append finds the epoch unknown, and writes it
                raise

    def read(self, header: BatchHeader, log_start_offset: int = 0) -> None:
        """The log, which begins at `log_start_offset`, has this batch: recovery reads it. StorageError."""
        epoch = self._said(header)
        if epoch > self.latest:
            self.assign(epoch, max(header.base_offset, log_start_offset))

    def read_again(self, headers: Iterable[BatchHeader], log_start_offset: int) -> None:
        """What the checkpoint says is wrong: these are all the batches there are. `save` when nothing else has to be
        said: a start that is killed must leave no checkpoint that knows some of them."""
        self._entries = []
        for header in headers:
            epoch = self._said(header)
            if epoch > self.latest:
                self._put(epoch, max(header.base_offset, log_start_offset))

    def _said(self, header: BatchHeader) -> int:
        """The epoch that a batch says; -1 where it says none, or one that cannot be."""
        epoch = header.partition_leader_epoch
        if epoch == NO_PARTITION_LEADER_EPOCH or self.may_be(epoch):
            return epoch
        self.wrong = self.wrong or (header.base_offset, epoch)
        return NO_PARTITION_LEADER_EPOCH

    def at(self, offset: int) -> int:
        """The epoch of the record at `offset`, or -1."""
        slot = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[slot - 1][0] if slot else -1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """The largest epoch up to `epoch`, and where the next one starts (OffsetForLeaderEpoch).

        Epochs up to the leader's are known, though no record may be left of them: Apache Kafka notes the leader's when
        it begins to lead.
        """
        if not 0 <= epoch <= self.leaders:
            return _UNKNOWN
        if epoch >= self.latest:
            is_leaders = epoch == self.newest or not self._entries
            return EpochEndOffset(epoch if is_leaders else self.latest, log_end_offset)
        slot = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        end_offset = self._entries[slot][1]
        # An epoch before the first known one has no records left: it ends where the first known one begins.
        return EpochEndOffset(self._entries[slot - 1][0] if slot else epoch, end_offset)

    def truncate(self, start_offset: int, end_offset: int) -> None:
        """The log lies between these offsets.

        When all records were deleted, their last epoch stays: a consumer that has read it asks where it ended.
        """
        self.truncate_from_end(end_offset + 1 if 0 < start_offset == end_offset else end_offset)
        self.truncate_from_start(start_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """The log was cut to `end_offset`."""
        kept = [entry for entry in self._entries if entry[1] < end_offset]
        if len(kept) < len(self._entries):
            self._entries = kept
            self.save(sync=False)

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now begins at `start_offset`, and so does the epoch of the record there."""
        slot = bisect_right(self._entries, start_offset, key=lambda entry: entry[1])
        if slot > 1 or (slot and self._entries[0][1] != start_offset):
            self._entries = [(self._entries[slot - 1][0], start_offset), *self._entries[slot:]]
            self._is_behind = True
            with suppress(StorageError):  # a full disk must not keep records from being deleted; opening repeats this
                self.save(sync=False)

    def catch_up(self) -> None:
        """Write the checkpoint if that is to be done, or if a deletion could not. It may run in another thread.
        StorageError."""
        with self._storage.sync_note.lock:
            if self._is_behind:
                self._write(sync=False)

    def unsynced_files(self) -> tuple[File, ...]:
        """The checkpoint, written, if the device may have another one. It may run in another thread. StorageError."""
        self.catch_up()
        return (self._storage.open(LEADER_EPOCH_CHECKPOINT),) if self._entries and self.is_unsynced else ()

    def sync(self) -> None:
        """Have the checkpoint on the device, before batches go whose epochs nothing else says. It may run in another
        thread. StorageError."""
        if self._entries:
            changes = self.changes
            sync_whole(self._storage, [self._storage.open(LEADER_EPOCH_CHECKPOINT)])
            self._storage.sync_names()
            self.reached(changes)

    def sync_or_owe(self) -> None:
        """The same at a start, which goes on when the disk refuses: then the stop has to do it."""
        try:
            self.sync()
        except StorageError:
            self.is_owed = True

    def may_be(self, epoch: int) -> bool:
        """Whether there can be records of this epoch."""
        return 0 <= epoch <= self._last

    def begin_at(self, log_start_offset: int) -> None:
        """Say where the log begins, where no batch is left that does, or one says a wrong epoch: it is the second place
        that knows it. So it must not begin later, either, behind a hole or what was compacted."""
        if not self._entries or self._entries[0][1] > log_start_offset:
            epoch = self._entries[0][0] if self._entries else self._newest or 0
            self._entries = [(epoch, log_start_offset), *self._entries[1:]]

    def save(self, *, sync: bool) -> None:
        """Write the checkpoint, if there is anything to write."""
        with self._storage.sync_note.lock:
            if self._entries or self._storage.read(LEADER_EPOCH_CHECKPOINT) is not None:
                self.changes += 1
                self._write(sync=sync)
            self._is_behind = False

    def _write(self, *, sync: bool) -> None:
        self._is_behind = False  # first: another thread may add an epoch meanwhile
        try:
            self._storage.write(LEADER_EPOCH_CHECKPOINT, encode_leader_epochs(tuple(self._entries)), sync=sync)
        except StorageError:
            self._is_behind = True
            raise

    def _put(self, epoch: int, start_offset: int) -> None:
        while self._entries and (self._entries[-1][0] >= epoch or self._entries[-1][1] >= start_offset):
            self._entries.pop()
        self._entries.append((epoch, start_offset))

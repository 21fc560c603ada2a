"""One segment of a partition: batches in a .log file, and the indexes beside it.

The log file is the truth. The indexes only make it quicker to find a batch, and can always be made again from the log.
As in Kafka, a batch gets an index entry when more than `index.interval.bytes` before it have none.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from ottla.base.errors import CorruptDataError, StorageError
from ottla.base.limits import MAX_INDEX_INTERVAL_BYTES
from ottla.log.checking import ANY_OFFSET, last_sound_offset, refuse_old_message, whole_batch
from ottla.log.config import LogConfig
from ottla.log.damage import Cut
from ottla.log.index import OffsetIndex, OffsetPosition, TimeIndex
from ottla.log.names import DELETED, LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, file_name
from ottla.log.storage import Buffer, File, Storage
from ottla.log.txn_index import TransactionIndex
from ottla.wire.batch import HEADER_BYTES, SIZE_BYTES, BatchHeader, batch_size, check_integrity, parse_header, walk_to
from ottla.wire.batch_errors import CorruptBatchError, UnsupportedMagicError

#: How many bytes are read at once while looking for one batch: the distance of index entries, and a header.
_LOOK_BYTES: Final = 4_096 + HEADER_BYTES
#: How many bytes are read at once while walking many batches.
_WALK_BYTES: Final = 65_536
_RELATIVE_MAX: Final = 2**31 - 1


class Segment:
    """A segment, active (the last one, appended to) or closed. Single writer."""

    __slots__ = (
        "_log",
        "_since_index_bytes",
        "_storage",
        "base_offset",
        "created_ms",
        "cuts",
        "first_timestamp_ms",
        "full",
        "index_interval_bytes",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "modified_ms",
        "offset_index",
        "size_bytes",
        "time_index",
        "txn_index",
    )

    def __init__(self, storage: Storage, base_offset: int, config: LogConfig, now_ms: int) -> None:
        self._storage = storage
        self._log: File | None = None
        self._since_index_bytes = 0
        self.base_offset = base_offset
        self.index_interval_bytes = min(config.index_interval_bytes, MAX_INDEX_INTERVAL_BYTES)
        size = config.segment_index_bytes
        self.offset_index = OffsetIndex(storage, file_name(base_offset, OFFSET_INDEX), base_offset, size)
        self.time_index = TimeIndex(storage, file_name(base_offset, TIME_INDEX), base_offset, size)
        self.txn_index = TransactionIndex(storage, file_name(base_offset, TXN_INDEX))
        self.size_bytes = 0
        #: Newest timestamp in the segment and the last offset of the first batch that has it; -1 while there is none.
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = base_offset
        #: Newest timestamp of the first batch, from which `segment.ms` counts; None until it is looked up.
        self.first_timestamp_ms: int | None = None
        self.created_ms = self.modified_ms = now_ms
        #: An index has no room for another entry.
        self.full = False
        #: What recovery has cut.
        self.cuts: list[Cut] = []

    @classmethod
    def create(cls, storage: Storage, base_offset: int, config: LogConfig, now_ms: int) -> "Segment":
        """A new, empty segment with its three files. StorageError when one of them cannot be made.

        Then no file should stay, but one may. So who has begun to make a segment must end that before anything else is
        appended (`Segments.roll`).
        """
        segment = cls(storage, base_offset, config, now_ms)
        try:
            segment._log = storage.open(file_name(base_offset, LOG), create=True)
            segment._log.truncate(0)
            segment.offset_index.is_made()
            segment.time_index.is_made()
            segment.forget_indexes()
            segment.save_indexes()
        except StorageError:
            with suppress(StorageError):
                delete_segments(storage, [segment])
            raise
        return segment

    @classmethod
    def load(cls, storage: Storage, base_offset: int, config: LogConfig, now_ms: int) -> "Segment":
        """The segment that is on disk. Its indexes are trusted until `check` says otherwise."""
        segment = cls(storage, base_offset, config, now_ms)
        segment.size_bytes = segment.log.size_bytes
        segment.close()  # a log may have more segments than a process may have files
        segment.modified_ms = storage.modified_ms(file_name(base_offset, LOG))
        return segment

    @property
    def log(self) -> File:
        """The log file, opened on first use."""
        if self._log is None:
            self._log = self._storage.open(self.log_name)
        return self._log

    @property
    def log_name(self) -> str:
        """The log file's name."""
        return file_name(self.base_offset, LOG)

    def check(self, names: frozenset[str]) -> OffsetPosition | None:
        """The offset index's last entry; None if an index is missing or its ends cannot belong to this segment.

        Also takes over the newest timestamp from the time index.
        """
        if self.offset_index.name not in names or self.time_index.name not in names:
            return None
        try:
            last = self.offset_index.check()
            newest = self.time_index.check()
        except CorruptDataError:
            return None
        self.max_timestamp_ms, self.max_timestamp_offset = newest.timestamp_ms, newest.offset
        return last

    # ---- writing

    def should_roll(self, config: LogConfig, size_bytes: int, timestamp_ms: int, last_offset: int, now_ms: int) -> bool:
        """Whether a batch with this size, newest timestamp and last offset must go into a new segment."""
        own_bytes = self.size_bytes
        if own_bytes == 0:
            return False
        if own_bytes + size_bytes > config.segment_bytes or self.full or last_offset - self.base_offset > _RELATIVE_MAX:
            return True
        first = self.first_timestamp_ms
        if first is None:
            first = -1
            with suppress(CorruptDataError):  # a disk has changed the header
                first = self.header_at(0).max_timestamp_ms
            self.first_timestamp_ms = first
        waited_ms = timestamp_ms - first if first >= 0 else now_ms - self.created_ms
        return waited_ms > config.segment_ms

    def write(self, buffers: Sequence[Buffer], size_bytes: int) -> int:
        """Append one batch's bytes; its position. StorageError leaves the segment as it was."""
        position, log = self.size_bytes, self.log
        if log.size_bytes != position:
            log.truncate(position)  # what is left of a batch that was given up (`parts`)
        log.append(buffers)
        self.size_bytes = position + size_bytes
        return position

    def note(self, last_offset: int, timestamp_ms: int, position: int, size_bytes: int) -> None:
        """Add a batch that is in the log file to the indexes."""
        if position == 0:
            self.first_timestamp_ms = timestamp_ms
        if timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self.max_timestamp_offset = timestamp_ms, last_offset
        if self._since_index_bytes > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(self.max_timestamp_ms, self.max_timestamp_offset)
            self._since_index_bytes = 0
            self.full = self.offset_index.is_full or self.time_index.is_full
        self._since_index_bytes += size_bytes

    def seal(self) -> None:
        """Called when appends pause or end: puts the newest timestamp into the time index, and saves the indexes."""
        self.time_index.append(self.max_timestamp_ms, self.max_timestamp_offset)
        self.save_indexes()

    def end(self) -> None:
        """Seal it, without what a refused append has left of a batch: after a kill the log would end with that.

        StorageError when the disk refuses to cut it off: then nothing may come behind this segment.
        """
        self.log.truncate(self.size_bytes)
        self.seal()

    def save_indexes(self) -> None:
        """Bring the index files up to date."""
        self.offset_index.save()
        self.time_index.save()
        self.txn_index.save()

    def files(self) -> list[File]:
        """Open handles of all files that a flush must sync: not of an index that the device has as it is."""
        names = [each.name for each in (self.offset_index, self.time_index) if each.is_unsynced]
        if self.txn_index.entries:
            names.append(self.txn_index.name)
        return [self.log_file(), *(self._storage.open(name, create=True) for name in names)]

    def log_file(self) -> File:
        """An open handle of the log's file. That of an old segment is opened for the caller alone."""
        return self._log if self._log is not None else self._storage.open(file_name(self.base_offset, LOG))

    # ---- reading

    def load_indexes(self) -> None:
        """Have every index entry in memory; indexes that are not in order are made again from the log.

        Every search in them does this first: among entries that are out of order it could find any position.
        """
        if self.offset_index.is_loaded and self.time_index.is_loaded:
            return
        try:
            self.offset_index.check_order()
            self.time_index.check_order()
        except CorruptDataError:
            self.rebuild_indexes()

    def locate(self, offset: int) -> int | None:
        """Position of the first batch that ends at `offset` or later; None when all end before `offset`.

        CorruptDataError when there are bytes on the way that are no batch.
        """
        position = self.position_to(offset)
        log, size_bytes = self.log, self.size_bytes
        while position < size_bytes:
            chunk = log.read(position, min(_LOOK_BYTES, size_bytes - position))  # behind it may be what was damaged
            try:
                at, found = walk_to(chunk, offset)
            except CorruptBatchError as fault:
                raise CorruptDataError(f"segment {self.base_offset}: no batch behind {position}: {fault}") from None
            if found:
                behind = self._behind_a_lie(position + at, offset, chunk[at : at + HEADER_BYTES])
                if behind is None:
                    return position + at
                at = behind - position
            if at == 0:
                raise CorruptDataError(f"segment {self.base_offset}: no batch at position {position} of {size_bytes}")
            position += at
        if position > size_bytes:
            raise CorruptDataError(f"segment {self.base_offset}: its last batch on the way to {offset} ends behind it")
        return None

    def _behind_a_lie(self, position: int, offset: int, header_bytes: bytes) -> int | None:
        """Where to look on, when the batch at `position` says that it has `offset` and a changed byte says so.

        Such a batch has the offsets of those behind it, too, and its CRC is wrong.
        """
        header = parse_header(header_bytes, 0)
        following = position + header.size_bytes
        if header.base_offset >= offset or following + HEADER_BYTES > self.size_bytes:
            return None
        try:
            if parse_header(self.log.read(following, HEADER_BYTES), 0).base_offset > header.last_offset:
                return None
        except CorruptDataError:
            return None
        return None if self.is_whole(position, header) else following

    def position_to(self, offset: int) -> int:
        """Position of the last indexed batch that ends at `offset` or before it; 0 when there is none."""
        self.load_indexes()
        return self._sound(self.offset_index.downward_from(offset))

    def position_before(self, position: int) -> int:
        """The start of the last indexed batch that begins at `position` or before it; 0 when there is none."""
        self.load_indexes()
        return self._sound(self.offset_index.downward_from_position(position))

    def offset_behind(self, position: int) -> int | None:
        """An offset that lies at `position` or after it (the nearest indexed one), or None."""
        self.load_indexes()
        headers = map(self._header_of, self.offset_index.upward_from(position))
        return next((header.last_offset for header in headers if header is not None), None)

    def _sound(self, entries: Iterator[OffsetPosition]) -> int:
        return next(each.position for each in entries if each.position == 0 or self._header_of(each) is not None)

    def _header_of(self, entry: OffsetPosition) -> BatchHeader | None:
        """The header of the entry's batch; None when there is none: no checksum covers an index.

        The batch may end before the entry's offset: Apache Kafka once made one entry for several batches.
        """
        try:
            header = parse_header(self.log.read(entry.position, HEADER_BYTES), 0)
        except CorruptDataError:
            return None
        return header if self.base_offset <= header.base_offset <= header.last_offset <= entry.offset else None

    def batch_bytes_at(self, position: int) -> int:
        """Size of the batch that begins at `position`. CorruptDataError when the file has fewer bytes."""
        size, left = batch_size(self.log.read(position, SIZE_BYTES)), self.size_bytes - position
        if size > left:
            raise CorruptDataError(
                f"segment {self.base_offset}: the batch at position {position} should take {size} bytes, "
                f"{left} are there"
            )
        return size

    def is_whole(self, position: int, header: BatchHeader) -> bool:
        """Whether the batch is what its CRC says."""
        with suppress(CorruptDataError):
            check_integrity(self.log.read(position, header.size_bytes), 0, header)
            return True
        return False

    def header_at(self, position: int) -> BatchHeader:
        """The header of the batch at `position`. CorruptDataError when there is none, or the file has fewer bytes."""
        self.batch_bytes_at(position)
        return parse_header(self.log.read(position, HEADER_BYTES), 0)

    def walk(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every whole batch from `position` on; nothing is checked beyond the header."""
        log, size_bytes = self.log, self.size_bytes
        while position + HEADER_BYTES <= size_bytes:
            chunk = log.read(position, _WALK_BYTES)
            at, last_start = 0, len(chunk) - HEADER_BYTES
            if last_start < 0:
                raise CorruptDataError(f"segment {self.base_offset}: no batch at position {position} of {size_bytes}")
            while at <= last_start:
                header = parse_header(chunk, at)
                end = at + header.size_bytes
                if position + end > size_bytes:
                    return
                yield position + at, header
                at = end
            position += at

    def sound_headers(
        self, position: int, limit_offset: int, *, gaps_below: int = ANY_OFFSET
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Like `walk`, but ends at the first bytes that cannot be the next batch with offsets below `limit_offset`.

        Nor may an offset be left out between two batches from `gaps_below` on. In the newest segment none is that
        nobody has compacted; a changed base offset looks like a gap.
        StorageError when those bytes are messages of Apache Kafka before 0.11: they are old, and not damaged.
        """
        lowest_offset, limit_offset = self.base_offset, min(limit_offset, self.base_offset + _RELATIVE_MAX + 1)
        begun = position == 0  # a file begins with the offset in its name
        try:
            for at, header in self.walk(position):
                if not lowest_offset <= header.base_offset <= header.last_offset < limit_offset:
                    return
                if begun and lowest_offset < header.base_offset > gaps_below:
                    return
                begun = True
                lowest_offset, position = header.last_offset + 1, at + header.size_bytes
                yield at, header
        except UnsupportedMagicError as fault:
            with self.log.map() as view:
                refuse_old_message(view, position, fault)
        except CorruptDataError:
            return

    def unload(self) -> None:
        """Close the file and forget the index entries of a closed segment. They are loaded again when it is read."""
        with suppress(StorageError):  # on a full disk, entries that were made again cannot be saved and stay loaded
            self.offset_index.unload()
            self.time_index.unload()
        self._log = None  # a slice that is being sent keeps the file open

    def close(self) -> None:
        """Close the log file."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def mark_deleted(self) -> None:
        """Note on the disk that it is about to be deleted. On a full disk it is deleted without that note."""
        with suppress(StorageError):
            self._storage.open(self._mark, create=True).close()

    def delete(self) -> None:
        """Remove the segment's files except the mark. Slices that readers hold stay readable."""
        self._log = None
        for suffix in (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX):
            self._storage.delete(file_name(self.base_offset, suffix))

    def remove_mark(self) -> None:
        """Remove the mark: the segment's files are gone."""
        self._storage.delete(self._mark)

    @property
    def _mark(self) -> str:
        return self.log_name + DELETED  # Apache Kafka gives it to a log file that it is about to delete

    # ---- recovery

    def forget_indexes(self) -> None:
        """Empty the three indexes, so that they can be made again."""
        self.offset_index.clear()
        self.time_index.clear()
        self.txn_index.clear()

    def rebuild_indexes(self, limit_offset: int = ANY_OFFSET, *, gaps_below: int = ANY_OFFSET) -> tuple[int, int]:
        """Make offset index and time index again from the batches' headers, as far as one batch follows another.

        Returns the offset after the last of these batches, and the position there. Records are not read, and nothing is
        cut.
        """
        self.offset_index.clear()
        self.time_index.clear()
        self.max_timestamp_ms, self.max_timestamp_offset = -1, self.base_offset
        self._since_index_bytes = 0
        end_offset, end = self.base_offset, 0
        for position, header in self.sound_headers(0, limit_offset, gaps_below=gaps_below):
            self.note(header.last_offset, header.max_timestamp_ms, position, header.size_bytes)
            end_offset, end = header.last_offset + 1, position + header.size_bytes
        self.time_index.append(self.max_timestamp_ms, self.max_timestamp_offset)
        return end_offset, end

    def cut(self, position: int, end_offset: int) -> None:
        """Cut the log file to `position`, where the log ends with `end_offset`, and note what is cut."""
        self.cuts.append(self.cut_from(position, end_offset))
        self.log.truncate(position)
        self.size_bytes = position

    def cut_from(self, position: int, end_offset: int) -> Cut:
        """What is lost if the file is cut to `position`."""
        with self.log.map() as view:
            last_offset = last_sound_offset(view, position, end_offset)
        name = file_name(self.base_offset, LOG)
        return Cut(name, position, self.size_bytes - position, end_offset, last_offset + 1)

    def recover(
        self,
        from_offset: int,
        flushed_offset: int,
        limit_offset: int = ANY_OFFSET,
        *,
        trusted_offset: int | None = None,
        gaps_below: int = ANY_OFFSET,
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Check the batches from `from_offset` on, make the indexes anew from there, cut what is not a whole batch.

        Yields position and header of each good batch, beginning with the last indexed one before `from_offset`. Run the
        iterator to its end; then `size_bytes` says how much was kept. Batches that end before `flushed_offset` were
        flushed: if one of them is missing, nothing is cut. Their records are not checked below `trusted_offset`, which
        is `flushed_offset` unless given. This segment cannot have offsets of `limit_offset` or more, nor leave one out
        from `gaps_below` on (`sound_headers`).
        """
        trusted_offset = flushed_offset if trusted_offset is None else trusted_offset
        self.offset_index.truncate_to(from_offset)
        self.time_index.truncate_to(from_offset)
        self.max_timestamp_ms, self.max_timestamp_offset = self.time_index.last()
        indexed_offset, start = self.offset_index.last()
        position = start
        lowest_offset = 0 if start else self.base_offset
        self._since_index_bytes = 0
        with self.log.map() as view:
            while position < self.size_bytes:
                header = whole_batch(view, position, trusted_offset)
                if header is None or not lowest_offset <= header.base_offset <= header.last_offset < limit_offset:
                    break
                begun = position > start or start == 0
                if begun and lowest_offset < header.base_offset > gaps_below:
                    break
                if not begun and header.last_offset != indexed_offset:
                    break  # the whole file is looked at then
                lowest_offset = header.last_offset + 1
                if position == start and start > 0:
                    self._since_index_bytes = header.size_bytes
                else:
                    self.note(header.last_offset, header.max_timestamp_ms, position, header.size_bytes)
                yield position, header
                position += header.size_bytes
        if position == start and start > 0:
            # The indexed position holds no batch, so the index is wrong: start once more, from the beginning.
            self.forget_indexes()
            yield from self.recover(
                self.base_offset, flushed_offset, limit_offset, trusted_offset=trusted_offset, gaps_below=gaps_below
            )
            return
        if lowest_offset < flushed_offset:
            self.size_bytes = position
        elif position < self.size_bytes:
            self.cut(position, lowest_offset)
        self.save_indexes()


def delete_segments(storage: Storage, segments: list[Segment]) -> None:
    """Delete the segments' files, oldest first, and take out of the list those that are gone.

    StorageError when a file cannot be deleted: then those behind it stay, too. Each segment is off the device before
    the next one goes, so whenever the process or the machine dies, what is left is one piece: a start ends an unflushed
    log at a gap. Nor must it look as if somebody had removed a log file and left its indexes. So each segment is marked
    first, and the mark is removed last.
    """
    if not segments:
        return
    for segment in segments:
        segment.mark_deleted()
    storage.sync_names()
    gone: set[Segment] = set()
    try:
        for segment in segments:
            segment.delete()
            storage.sync_names()
            gone.add(segment)
    finally:
        for segment in gone:
            segment.remove_mark()
        segments[:] = [segment for segment in segments if segment not in gone]

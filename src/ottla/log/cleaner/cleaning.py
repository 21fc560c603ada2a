"""One pass over a log, in small steps: it may run in another thread, beside the log's owner.

It reads closed segments, which nobody changes, through files that it opens itself. What it has to be told is in its
`Job`, as it was when the pass began. That is enough: a batch that was its producer's last one then stays, and
transactions that end later are behind what is cleaned.

Only the owner of the log may put a new segment into it. So where the pass needs the owner it yields a `Swap`
(`Compaction.turn`): to be accepted, to be switched over, and twice to be given names when the old files are gone.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.base.errors import CorruptDataError, StorageError
from ottla.base.limits import MAX_DECOMPRESSED_BATCH_BYTES, RECORDS_AT_ONCE
from ottla.base.zeros import taken
from ottla.log.cleaner.batches import BatchFilter, LastRecord, parsed
from ottla.log.cleaner.choice import Source, grouped
from ottla.log.cleaner.offset_map import OffsetMap
from ottla.log.cleaner.steps import WORKED
from ottla.log.cleaner.swap import MovedFiles, Swap, forget
from ottla.log.cleaner.transactions import Aborted, CleanedTransactions, in_order
from ottla.log.config import LogConfig
from ottla.log.names import CLEANED, LOG, OFFSET_INDEX, TIME_INDEX, file_name
from ottla.log.segment import Segment
from ottla.log.storage import Storage, sync_whole
from ottla.wire.batch import HEADER_BYTES, BatchHeader, CorruptBatchError, check_integrity, parse_header

#: Batches that are written at once; the system takes no more than 1024 pieces.
_PIECES: Final = 256
#: Aborted transactions that are written at once.
_ABORTS_AT_ONCE: Final = 1_000


class Memory(NamedTuple):
    """What a pass may take."""

    #: `log.cleaner.dedupe.buffer.size`, and to which part the table is filled (`log.cleaner.io.buffer.load.factor`).
    map_bytes: int
    load_factor: float
    #: What is read, and written, at once (half of `log.cleaner.io.buffer.size`). A larger batch is read whole.
    io_bytes: int
    #: What the records of one batch may take. A batch that holds more stays as it is.
    batch_bytes: int = MAX_DECOMPRESSED_BATCH_BYTES


class Job(NamedTuple):
    """What a pass must know of its log."""

    storage: Storage
    config: LogConfig
    #: From here on the log is dirty; up to there it can be cleaned. A segment begins at the end.
    first_dirty_offset: int
    end_offset: int
    #: Every segment before the end.
    sources: tuple[Source, ...]
    #: Transactions that were aborted, by segment: at least those that begin before the end.
    aborted: tuple[Aborted, ...]
    last_records: Mapping[int, LastRecord]
    now_ms: int
    #: A segment of an earlier pass that did not get all of its names, or was not taken back.
    unsettled: Swap | None = None


class Cleaning:
    """See the module. Take all `steps`; `cleaned_offset` then says how far the log is clean."""

    def __init__(self, job: Job, memory: Memory) -> None:
        self._job = job
        self._memory = memory
        #: What was accepted, and is neither settled nor taken back.
        self._swap = job.unsettled
        bases = [each.base_offset for each in job.sources]
        #: Where each segment ends: where the next one begins.
        self._ends = dict(zip(bases, [*bases[1:], job.end_offset], strict=False))
        #: None until the pass has come to its end.
        self.cleaned_offset: int | None = None
        #: The bytes of all segments that were looked at, and what of them stays.
        self.cleaned_bytes = self.kept_bytes = 0
        #: How many batches have stayed because their records cannot be read, and the offset of the first one.
        self.unreadable, self.first_unreadable = 0, -1

    def steps(self) -> Iterator[int | Swap]:
        """How many bytes the step has read or written; or what the owner must do now.

        CorruptDataError where a batch is damaged, StorageError where the disk refuses. The log is whole then, and
        either old or cleaned from its start to some segment.
        """
        job = self._job
        if job.unsettled is not None and job.unsettled.is_in_log:
            yield from self._finish(job.unsettled)
        self._take_back()
        if not job.sources:
            return
        memory = self._memory
        offsets = OffsetMap(memory.map_bytes, memory.load_factor, job.end_offset - job.first_dirty_offset)
        for _ in taken(offsets.memory):
            yield WORKED
        yield from self._fill(offsets)
        cleaned_offset = offsets.latest_offset + 1
        transactions = CleanedTransactions((yield from in_order(job.aborted)))
        batches = BatchFilter(
            offsets,
            transactions,
            job.last_records,
            end_offset=job.end_offset,
            now_ms=job.now_ms,
            delete_retention_ms=job.config.delete_retention_ms,
            most_bytes=memory.batch_bytes,
        )
        sources = []
        for source in job.sources:
            if source.base_offset < cleaned_offset:
                sources.append(self._measured(source))
                yield 0
        for group in grouped(sources, job.config, self._ends[sources[-1].base_offset]):
            if not (yield from self._clean(group, batches, transactions)):
                return
        self.unreadable, self.first_unreadable = batches.unreadable, batches.first_unreadable
        self.cleaned_offset = cleaned_offset

    def give_up(self) -> None:
        """Remove the files of a pass that goes no further, unless they are those of a segment that is in the log."""
        if self._swap is None or not self._swap.is_in_log:
            with suppress(StorageError):  # the next pass tries it again
                self._take_back()

    # ---- the first time over it

    def _fill(self, offsets: OffsetMap) -> Iterator[int]:
        job, start = self._job, self._job.first_dirty_offset
        transactions = CleanedTransactions((yield from in_order(job.aborted, start)))
        for source in job.sources:
            end = self._ends[source.base_offset]
            if end <= start:
                continue
            for batch, header in self._batches(source):
                yield len(batch)
                if header.last_offset < start:
                    continue
                if header.is_control:
                    transactions.is_over(batch, header)
                elif not transactions.is_aborted(header) and not (yield from self._put(offsets, batch, header)):
                    return
                offsets.latest_offset = header.last_offset
            offsets.latest_offset = end - 1

    def _put(self, offsets: OffsetMap, batch: bytes, header: BatchHeader) -> Generator[int, None, bool]:
        """Note the batch's keys; False when the map is full. Those of one that cannot be read are not noted.

        Not even those before the fault: nobody reads them there, so an older record of such a key is its last one.
        """
        try:
            cursor = yield from parsed(batch, header, self._memory.batch_bytes)
        except CorruptBatchError:
            return True
        while offsets.put_some(cursor, RECORDS_AT_ONCE, self._job.first_dirty_offset):
            if cursor.taken == cursor.count:
                return True
            yield WORKED
        return False

    # ---- the second time

    def _clean(
        self, group: list[Source], batches: BatchFilter, transactions: CleanedTransactions
    ) -> Generator[int | Swap, None, bool]:
        """Write one new segment; whether it is in the log now."""
        job = self._job
        files = MovedFiles(job.storage, CLEANED)
        segment = Segment.create(files, group[0].base_offset, job.config, job.now_ms)
        writer = _Writer(segment)
        for source in group:
            for batch, header in self._batches(source):
                kept = yield from batches.kept(batch, header)
                self.cleaned_bytes += len(batch)
                if kept is not None:
                    writer.write(kept)
                    self.kept_bytes += len(kept)
                    if writer.waiting_bytes >= self._memory.io_bytes:
                        writer.flush()
                yield len(batch) + len(kept or b"")
        writer.flush()
        for at in range(0, len(transactions.kept), _ABORTS_AT_ONCE):
            segment.txn_index.extend(transactions.kept[at : at + _ABORTS_AT_ONCE])
            yield WORKED
        transactions.kept.clear()
        segment.seal()
        segment.modified_ms = group[-1].modified_ms
        for file in segment.files():
            sync_whole(job.storage, [file])
            yield 0
        segment.unload()
        files.set_modified_ms(segment.log_name, segment.modified_ms)
        swap = Swap(job.storage, files, segment, [each.base_offset for each in group])
        yield swap
        if not swap.is_accepted:
            self._take_back()
            return False
        self._swap = swap
        try:
            swap.announce()
        except StorageError:
            self._take_back()
            raise
        yield swap
        yield from self._finish(swap)
        return True

    def _finish(self, swap: Swap) -> Iterator[Swap]:
        swap.delete_old()
        while not swap.is_settled:
            yield swap
            swap.sync()
        self._swap = None

    def _take_back(self) -> None:
        forget(self._job.storage)
        if self._swap is not None:
            self._swap.is_taken_back, self._swap = True, None

    # ---- reading

    def _measured(self, source: Source) -> Source:
        sizes = []
        for kind in (OFFSET_INDEX, TIME_INDEX):
            file = self._job.storage.open(file_name(source.base_offset, kind))
            sizes.append(file.size_bytes)
            file.close()
        return source._replace(index_bytes=(sizes[0], sizes[1]))

    def _batches(self, source: Source) -> Iterator[tuple[bytes, BatchHeader]]:
        """The segment's batches, checked."""
        name = file_name(source.base_offset, LOG)
        file = self._job.storage.open(name)
        position, lowest = 0, source.base_offset
        chunk, start = b"", 0
        try:
            while position < source.size_bytes:
                at = position - start
                if len(chunk) - at < HEADER_BYTES:
                    chunk, start, at = file.read(position, self._memory.io_bytes), position, 0
                header = parse_header(chunk, at)
                if len(chunk) - at < header.size_bytes:
                    chunk = file.read(position, max(header.size_bytes, self._memory.io_bytes))
                    start, at = position, 0
                check_integrity(chunk, at, header)
                if not lowest <= header.base_offset <= header.last_offset:
                    raise CorruptDataError(f"{name}: the batch at position {position} has offsets that go back")
                yield chunk[at : at + header.size_bytes], header
                position, lowest = position + header.size_bytes, header.last_offset + 1
        finally:
            file.close()


class _Writer:
    """Appends batches to a new segment, several with one write."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._waiting: list[bytes] = []
        self.waiting_bytes = 0

    def write(self, batch: bytes) -> None:
        self._waiting.append(batch)
        self.waiting_bytes += len(batch)
        if len(self._waiting) >= _PIECES:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        position = self._segment.write(self._waiting, self.waiting_bytes)
        for batch in self._waiting:
            header = parse_header(batch)
            self._segment.note(header.last_offset, header.max_timestamp_ms, position, header.size_bytes)
            position += header.size_bytes
        self._waiting, self.waiting_bytes = [], 0

"""What the owner of a log does for its cleaner: says what can be cleaned, and switches over to cleaned segments."""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from ottla.base.errors import CorruptDataError
from ottla.base.require import require
from ottla.log.cleaner.batches import LastRecord
from ottla.log.cleaner.choice import Cleanable, Source, cleanable
from ottla.log.cleaner.cleaning import Cleaning, Job, Memory
from ottla.log.cleaner.swap import Swap
from ottla.log.cleaner.transactions import Aborted
from ottla.log.config import LogConfig
from ottla.log.producers import ProducerState
from ottla.log.segments import Segments
from ottla.log.storage import Storage
from ottla.wire.batch import HEADER_BYTES, parse_header

#: Producers that are noted in one step: a tenth of a millisecond.
_NOTED_AT_ONCE: Final = 200


class _Gathered(NamedTuple):
    """The last records of the producers, as they were noted; those of batches before `end_offset`."""

    last_records: Mapping[int, LastRecord]
    end_offset: int


class _Findings(Protocol):
    """What the start has found."""

    @property
    def damaged(self) -> Sequence[object]: ...


class _Log(Protocol):
    """What is known of the log here."""

    config: LogConfig
    log_start_offset: int
    end_offset: int

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def findings(self) -> _Findings: ...


class Compaction:
    """See the module. Only the log's owner calls it, between two other calls to the log.

    `prepare`, then bring the log to the device and write that down. All steps of `gather`, or none; `begin` (perhaps
    None); then all steps of the pass, in any thread; `turn` for each swap that it yields; `end`.
    """

    def __init__(
        self,
        log: _Log,
        storage: Storage,
        segments: Segments,
        producers: ProducerState,
        cleaned_offset: int | None,
        thinned_below: int,
    ) -> None:
        #: The log owns this, not the other way: its files close with its last reader, not with the garbage.
        self._log: _Log = weakref.proxy(log)
        self._storage = storage
        self._segments = segments
        self._producers = producers
        #: Where the last pass ended (`cleaner-offset-checkpoint`); None: there was none.
        self.cleaned_offset = cleaned_offset
        #: Below which offset some may be missing, also if the last pass did not come to its end.
        self.thinned_below = thinned_below
        #: A pass runs, or is about to.
        self.is_running = False
        #: Why the log cannot be cleaned: a batch is damaged. Until the next start no pass is tried.
        self.fault: str | None = None
        self._unsettled: Swap | None = None
        #: The last stable offset when the pass was prepared.
        self._stable_offset = -1
        self._gathered: _Gathered | None = None

    @property
    def is_switching(self) -> bool:
        """Whether a new segment was accepted, and has not got its own names yet. Retention has to wait for that."""
        return self._unsettled is not None and not self._unsettled.is_taken_back

    @property
    def is_changing(self) -> bool:
        """Whether a pass, or the next start, may change the files. Meanwhile nobody must write down what there is."""
        return self.is_running or self.is_switching

    def look(self, now_ms: int) -> Cleanable | None:
        """What can be cleaned; None if nothing: the log is not compacted, or has only its active segment, or a hole.

        A hole's file is left to a person who wants to mend it.
        """
        return self._look(now_ms, self._log.last_stable_offset)

    def _look(self, now_ms: int, stable_offset: int) -> Cleanable | None:
        log = self._log
        if not log.config.compacts or len(self._segments) < 2 or log.findings.damaged or self.fault is not None:
            return None
        return cleanable(
            tuple(self._segments),
            log.config,
            self._first_batch_ms,
            cleaned_offset=self.cleaned_offset,
            log_start_offset=log.log_start_offset,
            end_offset=log.end_offset,
            stable_offset=stable_offset,
            now_ms=now_ms,
        )

    @property
    def bases(self) -> tuple[int, ...]:
        """Base offsets of the log's segments. Empty while a pass is about to change them."""
        return () if self.is_changing else self._segments.bases

    def prepare(self) -> None:
        """A pass is about to begin: what a checkpoint says from now on holds before and after it.

        What ends a transaction from now on may not be on the device when the pass begins. A loss of power would take
        the marker, and the transaction be aborted; so its records are not counted on.
        """
        self.is_running = True
        self.thinned_below = max(self.thinned_below, self._segments[-1].base_offset)
        self._stable_offset = self._log.last_stable_offset
        self._gathered = None

    def gather(self) -> Iterator[None]:
        """Note the last record of each producer, some at a time. The log may change between two steps.

        What is written meanwhile is behind what will be cleaned. So where a producer has gone on, and its entry was
        noted before, a batch more than needed stays.
        """
        end_offset, found = self._segments.active.base_offset, dict[int, LastRecord]()
        for number, entry in enumerate(tuple(self._producers.producers.values()), 1):
            last_offset = entry.batches[-1].last_offset if entry.batches else None
            if last_offset is None or last_offset < end_offset:
                found[entry.producer_id] = LastRecord(last_offset, entry.producer_epoch)
            if number % _NOTED_AT_ONCE == 0:
                yield
        self._gathered = _Gathered(found, end_offset)

    def begin(self, now_ms: int, memory: Memory, recovery_point: int) -> Cleaning | None:
        """A pass, if one is wanted. After `prepare`.

        A checkpoint says that the log is on the device up to `recovery_point`: no more is cleaned, because behind its
        recovery point a start takes offsets that are missing for a loss.
        """
        require(self.is_running, "a pass is prepared before it begins")
        if self._gathered is None:
            for _ in self.gather():
                pass
        gathered, self._gathered = self._gathered, None
        assert gathered is not None
        found = self._look(now_ms, min(self._stable_offset, recovery_point, gathered.end_offset))
        if found is None or not found.is_wanted(self._log.config):
            if not self.is_switching:
                return None
            found = Cleanable(0, 0, 0, 0, is_due=False)  # all there is to do is to give a segment its names
        segments = [each for each in self._segments if each.base_offset < found.end_offset]
        indexes = (each.txn_index.entries for each in self._segments)
        job = Job(
            self._storage,
            self._log.config,
            found.first_dirty_offset,
            found.end_offset,
            tuple(Source(each.base_offset, each.size_bytes, each.modified_ms) for each in segments),
            tuple(Aborted(entries, len(entries)) for entries in indexes if entries),
            gathered.last_records,
            now_ms,
            self._unsettled,
        )
        return Cleaning(job, memory)

    def turn(self, swap: Swap) -> None:
        """The pass has come to a swap: accept it, switch over to its segment, or give it its names. StorageError then.

        It is not accepted if the log has changed: then the pass takes it back (`forget`) and ends.
        """
        if not swap.is_accepted:
            swap.is_accepted = self._log.config.compacts and not self.is_switching and self._segments.has_all(swap.old)
            self._unsettled = swap if swap.is_accepted else self._unsettled
            return
        require(swap is self._unsettled, "the log waits for this segment")
        if swap.is_in_log:
            swap.settle()
            self._unsettled = None if swap.is_settled else swap
        else:
            swap.retired = self._segments.replace(swap.old, swap.segment)
            swap.is_in_log = True

    def end(self, cleaning: Cleaning | None) -> None:
        """The pass is over, or was given up."""
        self.is_running = False
        if cleaning is not None and cleaning.cleaned_offset is not None:
            self.cleaned_offset = cleaning.cleaned_offset

    def _first_batch_ms(self, number: int) -> int:
        segment = self._segments[number]
        if segment.first_timestamp_ms is None:
            segment.first_timestamp_ms = -1
            with suppress(CorruptDataError):
                segment.first_timestamp_ms = parse_header(segment.log_file().read(0, HEADER_BYTES)).max_timestamp_ms
        return segment.first_timestamp_ms

"""One partition's log: append, read, offsets, retention. The one object a broker holds per partition it leads.

Theory of operation. An append decides first and changes nothing: it checks the batch's header and CRC (`validation`),
and the producer's epoch, sequence and transaction (`producers`). Then it writes the bytes, in one write and without a
copy. Base offset and leader epoch, which the CRC does not cover, come from a new head of 16 bytes; the rest is the
client's own buffer. Only then does state change: end offset, producers, indexes. After the write only a broken
invariant can fail. So an append that is refused, or that fails, leaves the log as it was.

There is one node and so one copy: the high watermark is the end offset (but see `flush.Synced`), and a finished
transaction is stable at once. A read never opens a batch: it finds a position and returns a slice of the file.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import Final

from ottla.base.errors import StorageError
from ottla.base.limits import MAX_RECORD_ERRORS
from ottla.base.steps import result_of
from ottla.base.types import TopicPartition
from ottla.log.cleaner.compaction import Compaction
from ottla.log.config import LogConfig
from ottla.log.damage import drop_unreadable
from ottla.log.deciding import decide, refused
from ottla.log.epochs import LeaderEpochs
from ottla.log.findings import Findings
from ottla.log.flush import FlushPlan, Synced, plan_flush
from ottla.log.parts import write_in_parts
from ottla.log.producers import ProducerState
from ottla.log.record_checks import Looked
from ottla.log.recovery import load
from ottla.log.results import (
    NO_GUARD,
    AbortedTransaction,
    Appended,
    Deleted,
    EpochEndOffset,
    Isolation,
    Origin,
    Read,
    TimestampOffset,
)
from ottla.log.retention import deletable_segments
from ottla.log.rolling import Rolling
from ottla.log.segment import Segment
from ottla.log.segments import Segments
from ottla.log.snapshot import Snapshots
from ottla.log.storage import Buffer, Slice, Storage, sync_whole
from ottla.log.timestamps import Search, search
from ottla.log.topic_id import take_topic_id
from ottla.log.txn_index import AbortsSeal
from ottla.log.witnesses import Outside
from ottla.wire.batch import BatchHeader, at_offset, parse_header, stamped
from ottla.wire.errors import ErrorCode
from ottla.wire.markers import control_batch

_NOTHING: Final = Outside()


#: A batch as it is written, its newest record's timestamp, and the one that is answered: -1 unless the topic stamps
#: records itself.
_Coming = tuple[tuple[Buffer, ...], int, int]


class PartitionLog:
    """See the top of the file. Single writer; reads may happen between any two calls."""

    def __init__(self, tp: TopicPartition, storage: Storage, config: LogConfig, epochs: LeaderEpochs) -> None:
        """For `open` alone."""
        self.tp = tp
        self.config = config
        self.log_start_offset = 0
        #: The next record's offset.
        self.end_offset = 0
        #: Everything below is on the device (the data directory's recovery-point checkpoint).
        self.recovery_point = 0
        #: What `open` found that was not as it should be.
        self.findings = Findings()
        self.topic_id: bytes | None = None
        #: Which leader epoch began where, and in which one the leader leads.
        self.epochs = epochs
        self._storage = storage
        self._snapshots = Snapshots(storage)
        self._segments: Segments
        #: What is known of the producers. Only the log changes it, but for verifications (KIP-890).
        self.producers: ProducerState
        self.synced: Synced
        self.rolling: Rolling
        self.compaction: Compaction

    @classmethod
    def open(
        cls,
        tp: TopicPartition,
        storage: Storage,
        config: LogConfig,
        now_ms: int,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int | None = None,
        topic_id: bytes | None = None,
        outside: Outside = _NOTHING,
    ) -> "PartitionLog":
        """Open or create the partition in `storage`; see `recovery` for what happens after a crash.

        `clean` says that the data directory had its clean-shutdown marker; `recovery_point` and `log_start_offset`
        come from its checkpoints (0 and None are always safe). StorageError when the directory cannot be used, or
        belongs to another topic id.
        """
        newest, lost, is_theirs = outside.leader_epoch, outside.lost_epochs, outside.is_theirs
        log = cls(tp, storage, config, LeaderEpochs(storage, newest, lost=lost, is_theirs=is_theirs))
        log.topic_id, mended = take_topic_id(tp, storage, topic_id, is_known=outside.is_known)
        mended += drop_unreadable(storage)
        loaded = load(
            storage,
            config,
            log.epochs,
            now_ms=now_ms,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            outside=outside,
        )
        log._segments = Segments(storage, loaded.segments)
        log.producers = loaded.producers
        log.log_start_offset, log.end_offset = loaded.log_start_offset, loaded.end_offset
        if clean:
            log.epochs.catch_up()  # what was on the device is not flushed again
        log.recovery_point = max(loaded.recovery_point, loaded.log_start_offset)
        log.synced = Synced(log, storage, log._segments, loaded.synced_offset)
        log.rolling = Rolling(log, storage, log._segments)
        cleaned = outside.cleaned_offset, loaded.thinned_below
        log.compaction = Compaction(log, storage, log._segments, log.producers, *cleaned)
        log.findings = replace(loaded.findings, mended=(*mended, *loaded.findings.mended))
        return log

    # ---- append

    def append(
        self,
        records: Buffer,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        leader_epoch: int = 0,
        verification_guard: int = NO_GUARD,
        looked: Looked | None = None,
        max_named: int = MAX_RECORD_ERRORS,
    ) -> Appended:
        """Append one record batch, giving it its offsets. `records` is neither changed nor kept.

        The answer carries Kafka's error code when the batch is refused. A transactional batch that begins a
        transaction here needs the guard of `producers.begin_verification` (KIP-890). `looked` saves a look at its
        records (`validation.look_at`); of those it refuses at most `max_named` are named. StorageError when the disk
        fails.
        """
        decided = decide(self, records, now_ms, origin, verification_guard, looked, max_named)
        if isinstance(decided, Appended):
            return decided
        buffers, timestamp_ms, _ = coming = self._coming(records, decided, leader_epoch, now_ms)
        try:
            segment = self._to_write(decided, leader_epoch, timestamp_ms, now_ms)
            position = segment.write(buffers, decided.size_bytes)
        except StorageError:
            self.producers.refused(decided)
            raise
        return self._written(segment, position, decided, coming, now_ms)

    def append_in_parts(
        self,
        records: Buffer,
        *,
        now_ms: int,
        leader_epoch: int,
        verification_guard: int,
        looked: Looked | None,
        max_named: int,
    ) -> Generator[None, None, Appended]:
        """The same for a large batch of a client, of which each step writes a part. Who gives it up closes it.

        It is decided in the first step, and there in the last. Until then nobody sees any of it, and nothing else may
        be appended.
        """
        decided = decide(self, records, now_ms, Origin.CLIENT, verification_guard, looked, max_named)
        if isinstance(decided, Appended):
            return decided
        buffers, timestamp_ms, _ = coming = self._coming(records, decided, leader_epoch, now_ms)
        try:
            segment = self._to_write(decided, leader_epoch, timestamp_ms, now_ms)
            position = yield from write_in_parts(self._segments, buffers, decided.size_bytes)
        except StorageError:
            self.producers.refused(decided)
            raise
        return self._written(segment, position, decided, coming, now_ms)

    def _coming(self, records: Buffer, header: BatchHeader, leader_epoch: int, now_ms: int) -> _Coming:
        offset = self.end_offset
        if self.config.stamps:
            return stamped(records, header, offset, leader_epoch, now_ms), now_ms, now_ms
        return at_offset(records, header, offset, leader_epoch), header.max_timestamp_ms, -1

    def _written(self, segment: Segment, position: int, header: BatchHeader, coming: _Coming, now_ms: int) -> Appended:
        """A data batch is in the log file."""
        offset, (_, timestamp_ms, appended_ms) = self.end_offset, coming
        if header.producer_id >= 0:
            self.producers.apply_batch(header, offset, timestamp_ms, now_ms, segment.base_offset, position)
        self._advance(segment, position, header, timestamp_ms, now_ms)
        return Appended(offset, offset + header.last_offset_delta, appended_ms, self.log_start_offset)

    def append_control(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        leader_epoch: int = 0,
        transaction_version: int = 0,
    ) -> Appended:
        """Append the marker that ends a producer's transaction here (WriteTxnMarkers).

        INVALID_PRODUCER_EPOCH for a late marker (with `transaction_version` 2 or more, KIP-1228's stricter rule),
        TRANSACTION_COORDINATOR_FENCED for one of an older coordinator.
        """
        refusal = self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        if refusal is not None:
            return refused(self.log_start_offset, refusal)
        marker = control_batch(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
        )
        header, offset = parse_header(marker), self.end_offset
        segment = self._to_write(header, leader_epoch, now_ms, now_ms)
        position = segment.write(at_offset(marker, header, offset, leader_epoch), header.size_bytes)
        ended = self.producers.apply_marker(
            header, offset, committed=commit, coordinator_epoch=coordinator_epoch, now_ms=now_ms
        )
        self._advance(segment, position, header, now_ms, now_ms)
        if ended is not None and not commit:
            self._segments.note_abort(ended)
        return Appended(offset, offset, -1, self.log_start_offset)

    def _to_write(self, header: BatchHeader, leader_epoch: int, timestamp_ms: int, now_ms: int) -> Segment:
        """The segment at whose end the batch comes. Rolls to a new one first, if it is time."""
        offset = self.end_offset
        if leader_epoch != self.epochs.latest or self.epochs.is_waiting:
            self.epochs.assign(leader_epoch, offset)  # before a segment is made: one that is empty tells of a loss
        segment = self._segments.to_append()
        last_offset, rolling = offset + header.last_offset_delta, self._segments.is_rolling
        if rolling or segment.should_roll(self.config, header.size_bytes, timestamp_ms, last_offset, now_ms):
            self.roll(now_ms)
            segment = self._segments.active
        return segment

    def _advance(self, segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, now_ms: int) -> None:
        """The batch is in the log: offsets and indexes follow."""
        offset = self.end_offset
        last_offset = offset + header.last_offset_delta
        self.end_offset = self.producers.end_offset = last_offset + 1
        segment.note(last_offset, timestamp_ms, position, segment.size_bytes - position)
        segment.modified_ms = now_ms
        self._segments.note(offset, position)
        self.synced.appended(offset)

    # ---- read

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        min_one_batch: bool = True,
    ) -> Read:
        """Slices of at most `max_bytes`, beginning with the batch that holds `offset` (or the next one there is).

        A first batch that is larger comes whole with `min_one_batch`, and not at all without it (KIP-74).
        OFFSET_OUT_OF_RANGE below the log's start or above its end, CORRUPT_MESSAGE where flushed records are missing
        (see `damage`). CorruptDataError where bytes that are no batch are in the way. READ_COMMITTED ends at the LSO.
        """
        end, stable, start = self.high_watermark, self.last_stable_offset, self.log_start_offset
        if not start <= offset <= self.end_offset:
            return Read(ErrorCode.OFFSET_OUT_OF_RANGE, (), end, stable, start)
        if any(first <= offset < last for first, last in self.findings.damaged):
            return Read(ErrorCode.CORRUPT_MESSAGE, (), end, stable, start)
        committed = isolation is Isolation.READ_COMMITTED
        limit = stable if committed else end
        place = self._segments.find(offset) if offset < limit else None
        if place is None:
            return Read(ErrorCode.NONE, (), end, stable, start, () if committed else None)
        segment, position = place
        available = self._position_of(segment, limit) - position
        length = min(available, max_bytes)
        # That the first batch is whole: never more is promised than the file has.
        if available > max_bytes or not self._segments.is_recent(offset):
            first_bytes = segment.batch_bytes_at(position)
            if first_bytes > max_bytes:
                length = first_bytes if min_one_batch else 0
        slices = (Slice(segment.log, position, length),) if length > 0 else ()
        aborted = self._aborted(segment, offset, slices) if committed else None
        following = self._segments.following_base(segment)
        return Read(ErrorCode.NONE, slices, end, stable, start, aborted, following is not None and following < limit)

    def _position_of(self, segment: Segment, limit: int) -> int:
        """Where in `segment` the records at `limit` begin; its end when they are in a later segment, or not there."""
        if limit == self.end_offset:
            return segment.size_bytes
        oldest = self.producers.first_unstable_offset()
        # held back; or known from a snapshot, or deleted
        if oldest is None or limit != oldest.first_offset or oldest.position < 0:
            place = self._segments.find(limit)
            return place[1] if place is not None and place[0] is segment else segment.size_bytes
        return oldest.position if oldest.segment_base_offset == segment.base_offset else segment.size_bytes

    def _aborted(self, segment: Segment, offset: int, slices: tuple[Slice, ...]) -> tuple[AbortedTransaction, ...]:
        if not slices or not self._segments.has_aborted(segment):
            return ()
        # An offset at or after the slice's end. The nearest indexed one will do: a few aborts too many do no harm.
        upper = segment.offset_behind(slices[0].position + slices[0].length_bytes)
        if upper is None:
            upper = self._segments.following_base(segment)
        return self._segments.aborted(segment, offset, self.end_offset if upper is None else upper)

    # ---- offsets

    @property
    def high_watermark(self) -> int:
        """Where readers end: the end of the log, but for what has to be on the device first (`flush.messages`)."""
        return self.synced.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Where READ_COMMITTED ends: the oldest open transaction's first record, else the high watermark."""
        oldest, end = self.producers.first_unstable_offset(), self.high_watermark
        return end if oldest is None else min(max(oldest.first_offset, self.log_start_offset), end)

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """OffsetForLeaderEpoch: the largest epoch up to `epoch`, and where it ends."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    def offset_for_timestamp(
        self, timestamp_ms: int, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> TimestampOffset | None:
        """ListOffsets: the first record of at least that timestamp, or a `SpecialTimestamp`'s answer; else None."""
        return result_of(self.search_timestamp(timestamp_ms, isolation))

    def search_timestamp(self, timestamp_ms: int, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> Search:
        """The same in steps; the log may change between them (`timestamps`)."""
        limit = self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark
        return search(self._segments, self.epochs, timestamp_ms, self.log_start_offset, limit)

    # ---- producers

    def expire_producers(self, now_ms: int) -> Generator[None, None, int]:
        """In steps: forget producers that were silent for `producer.id.expiration.ms`, with nothing open. How many."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # ---- deletion

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments' logs."""
        return sum(segment.size_bytes for segment in self._segments)

    def delete_records_before(self, offset: int) -> Deleted:
        """DeleteRecords: the log begins at `offset` now (-1: its end); retention deletes the segments. StorageError."""
        offset = self.high_watermark if offset == -1 else offset
        if not 0 <= offset <= self.high_watermark:
            return Deleted(ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        self._move_start(offset)
        self.epochs.catch_up()
        return Deleted(ErrorCode.NONE, self.log_start_offset)

    def retire(self, now_ms: int) -> bool:
        """Take what retention allows to delete out of the log. Returns whether `delete_retired` has work."""
        if self.compaction.is_switching:
            return self._segments.has_retired
        segments, start_offset = list(self._segments), self.log_start_offset
        count = deletable_segments(segments, self.config, log_start_offset=start_offset, now_ms=now_ms)
        if count == len(segments) and self._segments.is_held:
            count -= 1  # more is coming into the last one
        elif count == len(segments):
            try:
                self.roll(now_ms)
            except StorageError:
                count -= 1  # the disk is full: deleting the closed segments makes room
                if count == 0:
                    raise
        if (count := self._snapshots.deletable(self._segments.bases, count)) > 0:
            self._move_start(self._segments[count].base_offset)
            self._segments.retire_first(count)
        return self._segments.has_retired

    def delete_retired(self) -> int:
        """Delete the files of segments that are out of the log; how many. StorageError: the next call tries again.

        It may run in another thread, while nobody calls `retire`: it touches only what is out of the log.
        """
        first_offset = self._segments[0].base_offset
        self._snapshots.begin_at(first_offset)
        self.epochs.sync()
        count = self._segments.delete_retired()
        self._snapshots.delete_before(first_offset)
        return count

    def _move_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.recovery_point = max(self.recovery_point, offset)
            self.synced.begins_at(offset)
            self.epochs.truncate_from_start(offset)

    @property
    def aborts(self) -> dict[int, AbortsSeal]:
        """What each `.txnindex` must hold, by base offset. Empty while the cleaner is about to change that."""
        return {} if self.compaction.is_changing else self._segments.aborts()

    # ---- durability

    @property
    def flushed_offset(self) -> int:
        """Everything below is on the device. (Below the recovery point are deleted records, too, that need not be.)"""
        return min(self.recovery_point, self.synced.offset)

    @property
    def needs_flush(self) -> bool:
        """Whether something was appended since the last flush, or that one has something to write."""
        return self.end_offset > self.flushed_offset or self._snapshots.are_owed

    def roll(self, now_ms: int) -> None:
        """Close the active segment and begin the next at the end of the log. No-op while the active one is empty."""
        if self._segments.active.size_bytes == 0:
            return
        self._segments.roll(self.end_offset, self.config, now_ms)
        self._snapshots.roll(self.producers)

    def flush_plan(self) -> FlushPlan:
        """Write indexes that only memory holds, and return what makes the log durable up to its end.

        If nothing was appended since the last flush, it writes nothing and there is nothing to sync. A plan has a few
        segments only, because it holds their files open: after it, there may be more to flush.
        """
        if not self.needs_flush:
            return FlushPlan(self.end_offset, (), self._storage)
        return plan_flush(
            self._storage, self._segments, self.producers, self._snapshots, self.epochs, self.flushed_offset
        )

    def mark_flushed(self, plan: FlushPlan) -> None:
        """The plan's `sync` has returned: recovery may begin at its offset."""
        self.recovery_point = max(self.recovery_point, plan.offset)
        self.synced.reached(plan.offset)
        plan.done()

    def flush(self, *, sync: bool = True) -> None:
        """Make everything durable now. Blocks until the device has it (not without `sync`: see `close`)."""
        while True:
            plan = self.flush_plan()
            plan.sync() if sync else plan.write()
            self.mark_flushed(plan)
            del plan  # its files are closed before the next ones are opened
            if not self.needs_flush:
                return

    def close(self, *, sync: bool = True) -> None:
        """Clean shutdown: indexes and producer snapshot are written, the log is synced, files are closed.

        Without `sync` the clean-shutdown marker survives the end of the process, but not a loss of power.
        """
        active = self._segments.active
        changes = active.time_index.changes
        active.end()
        if sync and self.epochs.is_owed:
            self.epochs.sync()
        if sync and active.time_index.changes > changes and not self.needs_flush:
            sync_whole(self._storage, active.files())  # behind a flush, the newest timestamp was not in the index yet
        self.flush(sync=sync)
        self._snapshots.ensure(self.producers)
        self._segments.close()

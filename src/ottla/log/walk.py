"""The pass over a log's segments, when its directory is opened (`recovery`): each is checked, or only inspected.

What is to be done with each segment is planned first, because that says how far other files can be trusted.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from types import MappingProxyType
from typing import NamedTuple

from ottla.base.errors import CorruptDataError, StorageError
from ottla.log.checking import ANY_OFFSET
from ottla.log.config import LogConfig
from ottla.log.damage import Cut, OffsetRange
from ottla.log.epochs import LeaderEpochs
from ottla.log.history import add_history
from ottla.log.inspection import Inspection, has_fitting_indexes, inspect, load_txn_index
from ottla.log.producers import ProducerState
from ottla.log.salvage import split_behind_damage
from ottla.log.segment import Segment, delete_segments
from ottla.log.snapshot import Snapshots
from ottla.log.storage import Storage
from ottla.log.txn_index import AbortedTxn
from ottla.log.witnesses import Outside
from ottla.wire.batch import BatchHeader, check_integrity, is_emptied
from ottla.wire.markers import parse_end_txn_marker


class Thinned(NamedTuple):
    """Which offsets may be missing because somebody compacted the log; the topic may not be compacted any more."""

    #: Those below, in closed segments.
    below: int
    #: Those below, in the newest segment, too.
    newest_below: int
    #: Whether that may be so behind the recovery point, too.
    may_go_on: bool
    #: Apache Kafka has written the log: it never minds that offsets are missing.
    is_theirs: bool


class Known(NamedTuple):
    """What is known of the log before its segments are looked at."""

    #: Records below this offset were deleted.
    log_start_offset: int
    #: Where the log began at the last clean stop.
    known_start: int | None
    #: Records below this offset are on the device, or at least are none that a crash has torn.
    flushed_offset: int
    #: Records below this offset are on the device for certain.
    trusted_offset: int
    #: Base offsets of segments whose log files are gone although nobody meant to delete their records.
    lost: frozenset[int]
    #: Holes (`damage`) that an earlier start has found.
    recorded: tuple[OffsetRange, ...]
    thinned: Thinned

    def has_recorded(self, end_offset: int) -> bool:
        """Whether a recorded hole ends here. Where one begins moves with the log's start."""
        return any(hole.end_offset == end_offset for hole in self.recorded)


class Plan(NamedTuple):
    """What to do with each segment, by base offset."""

    #: Segments that may hold unflushed bytes, and the offset from which each is checked.
    scans: Mapping[int, int]
    #: Segments that were flushed, and what the look at each has found.
    inspected: Mapping[int, Inspection]
    #: Up to which offset snapshots can be trusted.
    trusted_offset: int
    #: See `witnesses`.
    indexed_offset: int


def plan_pass(
    segments: Sequence[Segment],
    names: frozenset[str],
    clean: bool,
    recovery_point: int,
    outside: Outside,
    recorded: Collection[OffsetRange],
    thinned: Thinned,
) -> Plan:
    """Look at each segment, and say what the pass shall do with it. Indexes are mended on the way."""
    scans, inspected, indexed_offset = {}, {}, -1
    trusted_offset = ANY_OFFSET if clean else recovery_point
    for segment, following in zip_longest(segments, segments[1:]):
        base, limit_offset = segment.base_offset, ANY_OFFSET if following is None else following.base_offset
        is_read = load_txn_index(segment, names, limit_offset, outside.aborts.get(base))
        if not is_read or outside.start_is_unproved:
            segment.txn_index.doubt(is_read=is_read)
            trusted_offset = min(trusted_offset, base)  # the aborts are found by replaying
        if clean or limit_offset <= recovery_point:
            known = any(hole.end_offset == limit_offset for hole in recorded)
            gaps_below = thinned.newest_below if following is None else ANY_OFFSET
            inspected[base] = inspect(segment, names, limit_offset, gaps_below=gaps_below, has_lost_its_end=known)
        else:
            scans[base] = max(recovery_point, base)
            last = segment.check(names)
            if last is not None and last.position >= max(segment.size_bytes, 1):
                indexed_offset = last.offset
            if not has_fitting_indexes(segment, names):
                segment.rebuild_indexes()  # no finding: after a crash indexes need not fit
        segment.close()
    return Plan(MappingProxyType(scans), MappingProxyType(inspected), trusted_offset, indexed_offset)


class Walked(NamedTuple):
    """The segments that are left after one pass, and what it has found."""

    segments: tuple[Segment, ...]
    end_offset: int
    cuts: tuple[Cut, ...]
    damaged: tuple[OffsetRange, ...]
    #: Offsets missing behind unflushed segments of a log that is compacted.
    gaps: tuple[OffsetRange, ...] = ()
    #: Sentences on transaction markers that cannot be read.
    unreadable: tuple[str, ...] = ()
    #: Sentences on records that may be gone.
    losses: tuple[str, ...] = ()


class _Step(NamedTuple):
    """What the pass has left and found of one segment."""

    end_offset: int
    damaged: tuple[OffsetRange, ...] = ()
    #: A new segment with the sound batches after damage. The pass continues with it.
    rest: Segment | None = None
    #: Whether the log ends here. Then later segments are removed.
    is_last: bool = False


class Walk:
    """One pass over the segments, oldest first: checks what is to be checked, and brings the producers up to date."""

    def __init__(
        self,
        storage: Storage,
        config: LogConfig,
        now_ms: int,
        plan: Plan,
        known: Known,
        producers: ProducerState,
        epochs: LeaderEpochs,
    ) -> None:
        self._storage = storage
        self._config = config
        self._now_ms = now_ms
        self._plan = plan
        self._known = known
        self._producers = producers
        self._snapshots = Snapshots(storage)
        self._epochs = epochs
        self._gaps: list[OffsetRange] = []
        self._unreadable: list[str] = []

    def run(self, segments: Sequence[Segment]) -> Walked:
        """Go over `segments`. Returns those that remain, where the log ends, and what was found."""
        waiting, steps = deque(segments), []
        kept: list[Segment] = []
        end_offset = segments[0].base_offset if segments else 0
        snapshot_offset = self._producers.end_offset
        removed: list[Cut] = []
        while waiting:
            segment = waiting.popleft()
            if kept and self._producers.end_offset <= segment.base_offset:
                self._snapshots.put_at(segment.base_offset, self._producers)
            step = self._pass(segment, waiting[0].base_offset if waiting else ANY_OFFSET)
            with suppress(StorageError):  # a disk that refuses keeps no log from its readers; it is doubted once more
                segment.txn_index.settle()
            segment.close()
            kept.append(segment)
            steps.append(step)
            end_offset = step.end_offset
            if step.rest is not None:
                waiting.appendleft(step.rest)
            if step.is_last:
                removed = [each.cut_from(0, end_offset) for each in waiting if each.size_bytes]
                delete_segments(self._storage, list(waiting))
                waiting.clear()
        self._sync_aborts(kept, end_offset)
        if not self._producers.history_is_known:
            add_history(self._producers, kept, snapshot_offset)
        cuts = (*(cut for segment in kept for cut in segment.cuts), *removed)
        damaged = tuple(hole for step in steps for hole in step.damaged)
        return Walked(tuple(kept), end_offset, cuts, damaged, tuple(self._gaps), tuple(self._unreadable))

    def _sync_aborts(self, segments: Collection[Segment], end_offset: int) -> None:
        """Have the indexes of aborts on the device that were made again below the recovery point: no flush does it.

        A checkpoint says that they are there, or nothing, while the log is cleaned; and nobody misses one that is gone.
        """
        is_flushed = end_offset <= self._known.flushed_offset
        has_synced = False
        with suppress(StorageError):  # a disk that refuses keeps no log from its readers
            for segment in segments:
                if is_flushed or segment.base_offset in self._plan.inspected:
                    has_synced = segment.txn_index.sync_changes() or has_synced
            if has_synced:
                self._storage.sync_names()

    def _pass(self, segment: Segment, limit_offset: int) -> _Step:
        """Go over one segment. The next segment begins at `limit_offset`."""
        segment.txn_index.truncate_to(max(self._producers.end_offset, segment.base_offset))
        seen = self._plan.inspected.get(segment.base_offset)
        if seen is None:
            return self._scan(segment, limit_offset)
        is_active, rest = limit_offset == ANY_OFFSET, None
        if is_active and seen.junk_bytes and seen.end_offset >= self._known.flushed_offset:
            segment.size_bytes += seen.junk_bytes
            segment.cut(segment.size_bytes - seen.junk_bytes, seen.end_offset)
        elif seen.junk_bytes and limit_offset <= self._known.log_start_offset and self._known.known_start is None:
            segment.log.truncate(segment.size_bytes)  # who died while deleted records were not on the device
        elif seen.junk_bytes and seen.lacks_batches:
            rest = self._saved_behind(segment, OffsetRange(seen.end_offset, limit_offset))
        end_offset = seen.end_offset if is_active else limit_offset
        if end_offset > self._producers.end_offset:
            self._replay(segment, segment.size_bytes)
        return _Step(end_offset, rest=rest)

    def _saved_behind(self, segment: Segment, missing: OffsetRange) -> Segment | None:
        """The sound batches of a flushed segment behind a damaged one, unless an earlier start has found the hole."""
        if self._known.has_recorded(missing.end_offset):
            return None
        first_offset, end_offset = missing.first_offset, min(missing.end_offset, self._known.flushed_offset)
        return split_behind_damage(self._storage, segment, first_offset, end_offset, self._config, self._now_ms)

    def _scan(self, segment: Segment, limit_offset: int) -> _Step:
        """Check one segment from the recovery point on."""
        flushed_offset = self._known.flushed_offset
        is_active = limit_offset == ANY_OFFSET
        before_bytes = segment.size_bytes
        end_offset = segment.base_offset
        segment.load_indexes()
        # A segment that was copied from after damage is checked as a whole.
        from_offset = self._plan.scans.get(segment.base_offset, segment.base_offset)
        if from_offset > segment.base_offset:
            self._replay(segment, segment.position_to(from_offset - 1))
        trusted_offset = self._known.trusted_offset
        gaps_below = self._known.thinned.newest_below if is_active else ANY_OFFSET
        for position, header in segment.recover(
            from_offset, flushed_offset, limit_offset, trusted_offset=trusted_offset, gaps_below=gaps_below
        ):
            end_offset = header.last_offset + 1
            self._epochs.read(header)
            if header.last_offset >= trusted_offset or self._may_be_believed(segment, position, header):
                self._apply(segment, position, header)
        gone_bytes = before_bytes - segment.size_bytes
        if not is_active:
            segment.seal()
        if end_offset < flushed_offset:
            return self._step_over_loss(segment, end_offset, limit_offset, damaged=gone_bytes > 0)
        hole = OffsetRange(end_offset, limit_offset)
        if end_offset < limit_offset and self._known.has_recorded(limit_offset):
            return _Step(end_offset, (hole,))
        # A file may have lost its end between two batches. Then later segments must be removed too. (A marker may be
        # gone, and then the next one would end its transaction.) Nobody but others cleans what is not on the device.
        gap = not is_active and limit_offset != end_offset
        thinned = self._known.thinned
        is_cleaned = thinned.is_theirs or (thinned.may_go_on and limit_offset <= thinned.below)
        is_loss = gap and not is_cleaned
        if gap and not is_loss:
            self._gaps.append(hole)
        return _Step(end_offset, is_last=is_loss or gone_bytes > 0)

    def _step_over_loss(self, segment: Segment, end_offset: int, limit_offset: int, *, damaged: bool) -> _Step:
        """Flushed batches are missing at the end of a segment: find what comes next, and note what lies between."""
        rest = None
        if damaged:
            rest = split_behind_damage(self._storage, segment, end_offset, limit_offset, self._config, self._now_ms)
            if rest is not None:
                limit_offset = rest.base_offset
        if not end_offset < limit_offset < ANY_OFFSET:
            return _Step(end_offset, rest=rest)  # at the end of the log `load` finds out what is missing
        missing = OffsetRange(end_offset, limit_offset)
        is_deleted = self._known.flushed_offset <= self._known.log_start_offset < limit_offset
        if is_deleted and (damaged or not self._known.thinned.may_go_on):
            # All that was flushed is deleted. So the log ends here, as it does where any unflushed batch is gone.
            return _Step(end_offset, rest=rest, is_last=True)
        if damaged or limit_offset > self._known.thinned.below:
            return _Step(end_offset, damaged=(missing,), rest=rest)
        self._gaps.append(missing)  # after a compaction segments may end early
        return _Step(end_offset, rest=rest)

    def _replay(self, segment: Segment, end_position: int) -> None:
        """Apply the batches before `end_position` that the producers' state does not hold yet."""
        position = segment.position_to(self._producers.end_offset)
        for at, header in segment.sound_headers(position, ANY_OFFSET):
            if at >= end_position:
                return
            if self._may_be_believed(segment, at, header):
                self._apply(segment, at, header)

    def _may_be_believed(self, segment: Segment, position: int, header: BatchHeader) -> bool:
        """Of a changed batch nothing is believed: its header could open a transaction that nobody ends."""
        changes = header.producer_id >= 0 and not header.is_control and header.base_offset >= self._producers.end_offset
        return not changes or segment.is_whole(position, header)

    def _apply(self, segment: Segment, position: int, header: BatchHeader) -> None:
        producers, offset = self._producers, header.base_offset
        if offset < producers.end_offset:
            return
        producers.end_offset = header.last_offset + 1
        if header.producer_id < 0:
            return
        if not header.is_control:
            timestamp_ms = header.max_timestamp_ms
            producers.apply_batch(header, offset, timestamp_ms, self._now_ms, segment.base_offset, position)
            return
        if is_emptied(header):
            return
        try:
            check_integrity(marker := segment.log.read(position, header.size_bytes), 0, header)
            committed, coordinator_epoch = parse_end_txn_marker(marker)
        except CorruptDataError:
            committed, coordinator_epoch = False, -1
            self._unreadable.append(
                f"{segment.log_name}: the transaction marker at offset {offset} is damaged: its "
                "transaction counts as aborted here"
            )
        ended = producers.apply_marker(
            header, offset, committed=committed, coordinator_epoch=coordinator_epoch, now_ms=self._now_ms
        )
        if ended is not None and not committed:
            segment.txn_index.append(
                AbortedTxn(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)
            )

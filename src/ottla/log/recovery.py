"""Opening a partition's directory: after a clean stop, after kill -9, after a loss of power.

Theory of operation. The recovery point is an offset: records below it are on the device. After a clean stop that is
every record. First, files are removed that a dead process or a refusing disk has left half done. Then one pass goes
over the segments, oldest first, and does one of two things with each:

- Check, when the segment may hold unflushed bytes. Every batch from the recovery point on is verified by its CRC. At
  the first bad batch the log is cut, and later segments are removed. The indexes are made again on the way. But when
  a batch below the recovery point is missing, nothing is cut: the sound batches after it stay (`salvage`).
- Inspect, when the segment was flushed. This is a look at its ends (`inspection`). A flushed segment is never cut.
  Where batches are missing there is a hole: it is remembered (`damage`), and reading there is an error. Sound batches
  behind it stay, as above. The end of the log may be a hole, too, and so may a segment whose log file is gone while
  its indexes are still there. No offset below the recovery point is used twice.

The pass also brings the producers' state up to date. It begins with the newest snapshot that can be trusted; then each
later batch header is applied. The entries of transactions that were aborted after the snapshot are made again.

After kill -9 alone, at most the last batch is cut, because it was written in part.

Each step returns a frozen value, and `load` hands one to the next. What stays mutable is what the log goes on with:
its segments, its producers and its leader epochs.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, zip_longest
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.base.errors import CorruptDataError
from ottla.log.checking import ANY_OFFSET
from ottla.log.config import LogConfig
from ottla.log.damage import Cut, OffsetRange, read_damage, write_damage
from ottla.log.epochs import LeaderEpochs
from ottla.log.findings import Findings
from ottla.log.history import add_history
from ottla.log.inspection import Inspection, has_fitting_indexes, inspect, load_txn_index
from ottla.log.leftovers import tidy, without_failed_rolls
from ottla.log.names import DAMAGED_OFFSETS, LOG, PARTITION_METADATA, file_name
from ottla.log.producers import ProducerState
from ottla.log.salvage import reached_in, reached_offset, split_behind_damage
from ottla.log.segment import Segment, delete_segments
from ottla.log.snapshot import Snapshots
from ottla.log.storage import Storage
from ottla.log.txn_index import AbortedTxn
from ottla.log.witnesses import Outside, Seen, emptied_behind, look, losses, lost_segments, mended, start_of
from ottla.wire.batch import BatchHeader, check_integrity, is_emptied, parse_end_txn_marker


@dataclass(frozen=True, slots=True)
class Loaded:
    """A partition's directory, ready to be used."""

    segments: tuple[Segment, ...]
    producers: ProducerState
    log_start_offset: int
    end_offset: int
    recovery_point: int
    findings: Findings


_NOTHING: Final = Outside()


class _Known(NamedTuple):
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

    def has_recorded(self, end_offset: int) -> bool:
        """Whether a recorded hole ends here. Where one begins moves with the log's start."""
        return any(hole.end_offset == end_offset for hole in self.recorded)


def load(
    storage: Storage,
    config: LogConfig,
    epochs: LeaderEpochs,
    *,
    now_ms: int,
    clean: bool,
    recovery_point: int,
    log_start_offset: int | None,
    outside: Outside = _NOTHING,
) -> Loaded:
    """Open the directory; see the top of the file. StorageError when it cannot be used as it is."""
    names = storage.names()
    reached = partial(reached_in, storage, config, now_ms, names)
    log_start_offset, outside = start_of(outside, epochs, recovery_point, log_start_offset, reached)
    # After a clean stop the checkpoint says where the log began, and not only what was deleted for certain.
    known_start = log_start_offset if clean else None
    log_start_offset = log_start_offset or 0
    recovery_point = max(recovery_point, log_start_offset)  # nobody wants what is below
    if (not names or names == [PARTITION_METADATA]) and recovery_point <= log_start_offset:
        return _new(storage, config, now_ms, log_start_offset, outside)
    found = tidy(storage, names)
    recorded = read_damage(storage) if DAMAGED_OFFSETS in found.names else ()
    segments = without_failed_rolls(storage, [Segment.load(storage, base, config, now_ms) for base in found.bases])
    began = min(found.orphans, default=log_start_offset)  # where no log file is left: retention removes indexes, too
    first_offset = segments[0].base_offset if segments else max(log_start_offset, began)
    plan = _plan(segments, found.names, clean, recovery_point, outside, recorded)
    snapshots, unflushed = Snapshots(storage), None if clean else segments
    seen = look(found.bases, found.orphans, epochs, snapshots, unflushed, recovery_point, plan.indexed_offset)
    seen = seen._replace(emptied=emptied_behind(recorded, found.bases, segments))
    producers = _load_producers(snapshots, first_offset, plan.trusted_offset, now_ms)
    # After a clean stop the last snapshot was taken at the end of the log.
    flushed_offset = trusted_offset = max(recovery_point, producers.end_offset) if clean else recovery_point
    if outside.flush_is_unknown and not clean:
        flushed_offset = max(flushed_offset, reached_offset(segments))
    lost = lost_segments(found.orphans, log_start_offset, flushed_offset, compacts=config.compacts)
    known = _Known(log_start_offset, known_start, flushed_offset, trusted_offset, lost, recorded)
    walked = _Walk(storage, config, now_ms, plan, known, producers, epochs).run(segments)
    if not walked.segments or walked.end_offset < log_start_offset >= flushed_offset:
        reached_at = max((seen.snapshot_offset, *found.orphans))
        walked, known = _begin_again(storage, config, now_ms, walked, known, OffsetRange(began, reached_at))
        if producers.end_offset < log_start_offset:
            producers = ProducerState(log_start_offset)
    elif walked.end_offset < flushed_offset:
        walked = _go_on_behind_loss(storage, config, now_ms, walked, known)
    start_offset = _start(walked.segments[0].base_offset, known)
    findings = _findings(walked, plan, known, start_offset, compacts=config.compacts)
    findings = _witnessed(findings, outside, seen, epochs, snapshots, walked, start_offset)
    producers.holes = findings.damaged
    is_thinned = walked.segments[0].base_offset > 0 or (config.compacts and len(walked.segments) > 1)
    producers.thinned_below = walked.end_offset if is_thinned else 0
    if findings.damaged != recorded:
        write_damage(storage, findings.damaged)
    for segment in walked.segments[:-1]:
        segment.unload()
    walked.segments[-1].load_indexes()
    end_offset = producers.end_offset = walked.end_offset
    epochs.truncate(start_offset, end_offset)
    recovery_point = end_offset if clean else min(recovery_point, end_offset)
    return Loaded(walked.segments, producers, start_offset, end_offset, recovery_point, findings)


def _new(storage: Storage, config: LogConfig, now_ms: int, start_offset: int, outside: Outside) -> Loaded:
    """A log that holds nothing yet."""
    segment = Segment.create(storage, start_offset, config, now_ms)
    findings = Findings(losses=losses(outside, Seen(), start_offset, ()))
    return Loaded((segment,), ProducerState(start_offset), start_offset, start_offset, start_offset, findings)


def _load_producers(snapshots: Snapshots, first_offset: int, trusted_offset: int, now_ms: int) -> ProducerState:
    """The producers' state, from the newest snapshot that can be trusted."""
    # A snapshot at the log's very beginning says nothing about the records that are still here, so it can be trusted.
    # Records that were deleted but are still in the first segment are replayed too: their producers are still known.
    producers = snapshots.load_newest(first_offset, max(trusted_offset, first_offset))
    producers = producers or ProducerState(first_offset)
    for entry in producers.producers.values():
        entry.last_seen_ms = now_ms
    return producers


def _begin_again(
    storage: Storage, config: LogConfig, now_ms: int, walked: "_Walked", known: _Known, named: OffsetRange
) -> tuple["_Walked", _Known]:
    """An empty log, because the files are gone, or hold nothing that is wanted; and what is known then.

    It begins after everything that was deleted or flushed; and, where no log file is left, after what the names of
    other files still know (`named`). What is missing is a hole if some of it was flushed.
    """
    end_offset = max(known.log_start_offset, known.flushed_offset)
    is_hole = not walked.segments and named.first_offset < end_offset
    if not walked.segments:
        end_offset = max(end_offset, named.end_offset)
    known = known._replace(known_start=named.first_offset if is_hole else end_offset)
    delete_segments(storage, list(walked.segments))
    Snapshots(storage).delete_before(known.log_start_offset)
    begun = walked._replace(segments=(Segment.create(storage, end_offset, config, now_ms),), end_offset=end_offset)
    if not walked.segments:
        return begun, known  # told as a hole, or by `witnesses`
    told = f"the log's files end at offset {walked.end_offset}, before its start, {end_offset}"
    return begun._replace(losses=(f"{told}: if there were records from there on, they are gone",)), known


def _go_on_behind_loss(storage: Storage, config: LogConfig, now_ms: int, walked: "_Walked", known: _Known) -> "_Walked":
    """Flushed batches are missing at the end of the log: it goes on after them, in a new segment."""
    return _Walked(
        (*walked.segments, Segment.create(storage, known.flushed_offset, config, now_ms)),
        known.flushed_offset,
        walked.cuts,
        (*walked.damaged, OffsetRange(max(walked.end_offset, known.log_start_offset), known.flushed_offset)),
        walked.gaps,
        walked.unreadable,
    )


def _start(first_offset: int, known: _Known) -> int:
    """Where the log begins: at its first segment, or at a hole before that segment."""
    before = [each for each in known.lost if each < first_offset]
    before += [each.first_offset for each in known.recorded if each.end_offset == first_offset]
    if known.known_start is not None:
        before.append(known.known_start)
    return max(known.log_start_offset, min(before, default=first_offset))


def _findings(walked: "_Walked", plan: "_Plan", known: _Known, start_offset: int, *, compacts: bool) -> Findings:
    """All that was found. Offsets missing between segments are holes or gaps.

    They are a hole when batches are known to be missing there, found now or by an earlier start.
    """
    first_offset = walked.segments[0].base_offset
    holes = {*walked.damaged, *([OffsetRange(start_offset, first_offset)] if start_offset < first_offset else ())}
    unexplained = list(walked.gaps)
    for segment, following in pairwise(walked.segments):
        seen = plan.inspected.get(segment.base_offset)
        if seen is None or max(seen.end_offset, start_offset) >= following.base_offset:
            continue
        gap = OffsetRange(max(seen.end_offset, start_offset), following.base_offset)
        lost = any(gap.first_offset <= each < gap.end_offset for each in known.lost)
        if lost or seen.lacks_batches or known.has_recorded(gap.end_offset):
            holes.add(gap)
        elif not compacts:
            unexplained.append(gap)
    clipped = {each._replace(first_offset=max(each.first_offset, start_offset)) for each in holes}
    damaged = tuple(sorted(each for each in clipped if each.end_offset > start_offset))
    rebuilt = tuple(base for base, seen in plan.inspected.items() if seen.rebuilt)
    bases = {*known.lost, *(segment.base_offset for segment in walked.segments)}
    held = (max((each for each in bases if each <= first), default=None) for first, _ in damaged)
    files = tuple("" if each is None else file_name(each, LOG) for each in held)
    return Findings(walked.cuts, rebuilt, damaged, files, tuple(unexplained))


def _witnessed(
    findings: Findings,
    outside: Outside,
    seen: Seen,
    epochs: LeaderEpochs,
    snapshots: Snapshots,
    walked: "_Walked",
    start_offset: int,
) -> Findings:
    """With what other files say (`witnesses`). Mends the leader epochs."""
    extent = OffsetRange(start_offset, walked.end_offset)
    return replace(
        findings,
        losses=(*walked.losses, *losses(outside, seen, walked.end_offset, findings.damaged)),
        mended=(
            *mended(outside, epochs, snapshots, walked.segments, extent),
            *walked.unreadable,
        ),
    )


class _Plan(NamedTuple):
    """What to do with each segment, by base offset."""

    #: Segments that may hold unflushed bytes, and the offset from which each is checked.
    scans: Mapping[int, int]
    #: Segments that were flushed, and what the look at each has found.
    inspected: Mapping[int, Inspection]
    #: Up to which offset snapshots can be trusted.
    trusted_offset: int
    #: See `witnesses`.
    indexed_offset: int


def _plan(
    segments: Sequence[Segment],
    names: frozenset[str],
    clean: bool,
    recovery_point: int,
    outside: Outside,
    recorded: Collection[OffsetRange],
) -> _Plan:
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
            inspected[base] = inspect(segment, names, limit_offset, has_lost_its_end=known)
        else:
            scans[base] = max(recovery_point, base)
            last = segment.check(names)
            if last is not None and last.position >= max(segment.size_bytes, 1):
                indexed_offset = last.offset
            if not has_fitting_indexes(segment, names):
                segment.rebuild_indexes()  # no finding: after a crash indexes need not fit
        segment.close()
    return _Plan(MappingProxyType(scans), MappingProxyType(inspected), trusted_offset, indexed_offset)


class _Walked(NamedTuple):
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


class _Walk:
    """One pass over the segments, oldest first: checks what is to be checked, and brings the producers up to date."""

    def __init__(
        self,
        storage: Storage,
        config: LogConfig,
        now_ms: int,
        plan: _Plan,
        known: _Known,
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

    def run(self, segments: Sequence[Segment]) -> _Walked:
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
        if not self._producers.history_is_known:
            add_history(self._producers, kept, snapshot_offset)
        cuts = (*(cut for segment in kept for cut in segment.cuts), *removed)
        damaged = tuple(hole for step in steps for hole in step.damaged)
        return _Walked(tuple(kept), end_offset, cuts, damaged, tuple(self._gaps), tuple(self._unreadable))

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
        for position, header in segment.recover(
            from_offset, flushed_offset, limit_offset, trusted_offset=trusted_offset
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
        # A file may have lost its end between two batches. Then later segments must be removed too. But after a
        # compaction it is right that a segment ends before the next one begins.
        gap = not is_active and limit_offset != end_offset
        if gap and self._config.compacts:
            self._gaps.append(hole)
        return _Step(end_offset, is_last=(gap and not self._config.compacts) or gone_bytes > 0)

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
        if damaged or not self._config.compacts:
            if self._known.flushed_offset <= self._known.log_start_offset < limit_offset:
                # All that was flushed is deleted. So the log ends here, as it does where any unflushed batch is gone.
                return _Step(end_offset, rest=rest, is_last=True)
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

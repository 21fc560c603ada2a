"""Opening a partition's directory: after a clean stop, after kill -9, after a loss of power.

Theory of operation. Everything below the recovery point is known to be on the device; after a clean stop that is
everything. First what a dead process left half done goes away. Then, in one pass over the segments:

- Check: in each segment that may hold unflushed bytes, every batch from the recovery point on is verified by its CRC;
  at the first that fails the log is cut, and later segments are removed. Indexes are made again on the way. Where it
  is below the recovery point that batches are missing, nothing is cut: what is sound behind them stays (`salvage`).
- Inspect: a flushed segment costs a look at its ends (`inspection`). It is never cut: where batches of it are missing,
  the hole is remembered and reading there is an error (`damage`), and so is what is missing at the end of the log, and
  a segment whose log file is gone while its indexes are still there. No offset below the recovery point is used twice.
- Replay: the newest producer snapshot that can be believed was loaded; the batch headers after it are applied, and
  the entries of aborted transactions after it are made again.

After kill -9 alone, there is nothing to cut but a last batch that was written in part.
"""

from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

from ottla.base.errors import StorageError
from ottla.log.config import LogConfig
from ottla.log.damage import OffsetRange, read_damage, write_damage
from ottla.log.epochs import LeaderEpochs
from ottla.log.history import add_history
from ottla.log.inspection import Inspection, has_fitting_indexes, inspect, load_txn_index
from ottla.log.names import (
    DAMAGED_OFFSETS,
    DELETED,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    STALE,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    base_offset,
)
from ottla.log.producers import ProducerState
from ottla.log.salvage import split_behind_damage
from ottla.log.segment import ANY_OFFSET, Segment
from ottla.log.snapshot import Snapshots
from ottla.log.storage import Storage
from ottla.log.txn_index import AbortedTxn
from ottla.wire.batch import BatchHeader, parse_end_txn_marker


@dataclass(slots=True)
class Findings:
    """What was not as it should be."""

    #: Bytes that were cut because they were no whole batches.
    truncated_bytes: int = 0
    #: Base offsets of the segments whose indexes were made again.
    rebuilt: list[int] = field(default_factory=list)
    #: Flushed offsets that are gone.
    damaged: list[OffsetRange] = field(default_factory=list)
    #: Offsets missing between two sound segments: compacted once, or left out by another broker's recovery.
    unexplained: list[OffsetRange] = field(default_factory=list)


@dataclass(slots=True)
class Loaded:
    """A partition's directory, ready to be used."""

    segments: list[Segment]
    producers: ProducerState
    log_start_offset: int
    end_offset: int
    recovery_point: int
    findings: Findings


def load(
    storage: Storage,
    config: LogConfig,
    epochs: LeaderEpochs,
    *,
    now_ms: int,
    clean: bool,
    recovery_point: int,
    log_start_offset: int | None,
) -> Loaded:
    """Open the directory; see the top of the file. StorageError when it cannot be used as it is."""
    names = storage.names()
    # After a clean stop the checkpoint says where the log began, and not only what was deleted for certain.
    known_start = log_start_offset if clean else None
    log_start_offset = log_start_offset or 0
    if (not names or names == [PARTITION_METADATA]) and recovery_point <= log_start_offset:
        return _new(storage, config, now_ms, log_start_offset)
    bases, orphans = _tidy(storage, names)
    segments = [Segment.load(storage, base, config, now_ms) for base in bases]
    first_offset = segments[0].base_offset if segments else log_start_offset
    snapshots = Snapshots(storage)
    plan = _plan(segments, frozenset(names), clean, recovery_point)
    plan.recorded = read_damage(storage) if DAMAGED_OFFSETS in names else []
    # A snapshot at the very beginning concerns nothing that is still here, so nothing can contradict it. Records that
    # were deleted but are still in the first segment are replayed too: their producers were not forgotten.
    producers = snapshots.load_newest(first_offset, max(plan.trusted_offset, first_offset))
    producers = producers or ProducerState(first_offset)
    # After a clean stop the last snapshot was taken at the end of the log.
    flushed_offset = max(recovery_point, producers.end_offset) if clean else recovery_point
    add_history(producers, segments, producers.end_offset)
    for entry in producers.producers.values():
        entry.last_seen_ms = now_ms
    walk = _Pass(storage, segments, plan, producers, epochs, config, now_ms)
    walk.run(flushed_offset)
    end_offset, findings = walk.end_offset, plan.findings
    if not segments or end_offset < log_start_offset:
        # The files were taken away under us; what is known to be deleted must not come back.
        known_start = min(orphans, default=log_start_offset) if not segments else log_start_offset
        for segment in segments:
            segment.delete()
        end_offset = max(log_start_offset, flushed_offset)
        snapshots.delete_before(log_start_offset)
        segments = [Segment.create(storage, end_offset, config, now_ms)]
        if producers.end_offset < log_start_offset:
            producers = ProducerState(log_start_offset)
    elif end_offset < flushed_offset:
        findings.damaged.append(OffsetRange(end_offset, flushed_offset))
        segments.append(Segment.create(storage, flushed_offset, config, now_ms))
        end_offset = flushed_offset
    plan.orphans = frozenset() if config.compacts else frozenset(each for each in orphans if each < flushed_offset)
    start_offset = _start(segments[0].base_offset, log_start_offset, known_start, plan)
    _keep_damage(storage, segments, plan, config, start_offset)
    for segment in segments[:-1]:
        segment.unload()
    segments[-1].load_indexes()
    producers.end_offset = end_offset
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    recovery_point = end_offset if clean else min(recovery_point, end_offset)
    return Loaded(segments, producers, start_offset, end_offset, recovery_point, findings)


def _keep_damage(
    storage: Storage,
    segments: list[Segment],
    plan: "_Plan",
    config: LogConfig,
    start_offset: int,
) -> None:
    """Tell holes from gaps: a hole is one where batches are known to be missing, now or by an earlier start."""
    findings, recorded = plan.findings, plan.recorded
    for segment, following in pairwise(segments):
        seen = plan.inspected.get(segment.base_offset)
        if seen is None or seen.end_offset == following.base_offset:
            continue
        gap = OffsetRange(seen.end_offset, following.base_offset)
        lost = any(gap.first_offset <= each < gap.end_offset for each in plan.orphans)
        if lost or seen.lacks_batches or gap in recorded:
            if gap not in findings.damaged:
                findings.damaged.append(gap)
        elif not config.compacts:
            findings.unexplained.append(gap)
    findings.damaged = sorted(each for each in findings.damaged if each.end_offset > start_offset)
    if findings.damaged != recorded:
        write_damage(storage, findings.damaged)


def _start(first_offset: int, log_start_offset: int, known_start: int | None, plan: "_Plan") -> int:
    """Where the log begins: at its first segment, or at a hole before it."""
    lost = [each for each in plan.orphans if each < first_offset]
    lost += [each.first_offset for each in plan.recorded if each.end_offset == first_offset]
    if known_start is not None:
        lost.append(known_start)
    start_offset = max(log_start_offset, min(lost, default=first_offset))
    if start_offset < first_offset:
        plan.findings.damaged.append(OffsetRange(start_offset, first_offset))
    return start_offset


def _new(storage: Storage, config: LogConfig, now_ms: int, start_offset: int) -> Loaded:
    """A log that holds nothing yet."""
    segments = [Segment.create(storage, start_offset, config, now_ms)]
    return Loaded(segments, ProducerState(start_offset), start_offset, start_offset, start_offset, Findings())


def _tidy(storage: Storage, names: list[str]) -> tuple[list[int], set[int]]:
    """Remove what is left of interrupted work.

    The base offsets of the segments, ascending, and those of which there are indexes only, though nobody was about to
    delete them.
    """
    swapped = [name for name in names if name.endswith(SWAP)]
    if swapped:
        raise StorageError(
            f"{swapped[0]}: Apache Kafka was stopped in the middle of a compaction; start and stop it once more"
        )
    bases = sorted(base for base in (base_offset(name, LOG) for name in names) if base is not None)
    known = {None, *bases}
    orphans: set[int] = set()
    for name in names:
        found = {base_offset(name, suffix) for suffix in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)} - known
        if found or name.endswith(STALE):
            orphans |= {each for each in found if each is not None}
            storage.delete(name)
    return bases, orphans - {base_offset(name, LOG + DELETED) for name in names}


@dataclass(slots=True)
class _Plan:
    """What is to be done with each segment, by base offset."""

    #: From which offset on a segment that may hold unflushed bytes is checked.
    scans: dict[int, int] = field(default_factory=dict)
    #: What was seen of those that were flushed.
    inspected: dict[int, Inspection] = field(default_factory=dict)
    #: Up to where snapshots can be believed.
    trusted_offset: int = ANY_OFFSET
    #: Holes that an earlier start has found.
    recorded: list[OffsetRange] = field(default_factory=list)
    #: Base offsets of segments whose log files were taken away.
    orphans: frozenset[int] = frozenset()
    findings: Findings = field(default_factory=Findings)


def _plan(segments: list[Segment], names: frozenset[str], clean: bool, recovery_point: int) -> _Plan:
    plan = _Plan(trusted_offset=ANY_OFFSET if clean else recovery_point)
    for segment, following in zip_longest(segments, segments[1:]):
        base, limit_offset = segment.base_offset, ANY_OFFSET if following is None else following.base_offset
        if not load_txn_index(segment, names, limit_offset):
            segment.txn_index.clear()
            plan.trusted_offset = min(plan.trusted_offset, base)  # the aborts are found by replaying
        if clean or limit_offset <= recovery_point:
            seen = plan.inspected[base] = inspect(segment, names, limit_offset)
            if seen.rebuilt:
                plan.findings.rebuilt.append(base)
        else:
            plan.scans[base] = max(recovery_point, base)
            if not has_fitting_indexes(segment, names):
                segment.rebuild_indexes()  # not told: after a crash they need not fit
    return plan


class _Pass:
    """One pass over the segments, oldest first. `segments` is cut in place where the log turns out to end."""

    def __init__(
        self,
        storage: Storage,
        segments: list[Segment],
        plan: _Plan,
        producers: ProducerState,
        epochs: LeaderEpochs,
        config: LogConfig,
        now_ms: int,
    ) -> None:
        self.end_offset = segments[0].base_offset if segments else 0
        self._storage = storage
        self._segments = segments
        self._plan = plan
        self._findings = plan.findings
        self._producers = producers
        self._epochs = epochs
        self._config = config
        self._now_ms = now_ms

    def run(self, flushed_offset: int) -> None:
        """Check what is to be checked, and bring the producers up to date; `flushed_offset`: what must be there."""
        segments = self._segments
        for number, segment in enumerate(segments):
            following = segments[number + 1] if number + 1 < len(segments) else None
            segment.txn_index.truncate_to(max(self._producers.end_offset, segment.base_offset))
            seen = self._plan.inspected.get(segment.base_offset)
            if seen is None:
                if self._scan(number, flushed_offset):
                    self._remove_from(number + 1)
                    return
                continue
            self.end_offset = seen.end_offset if following is None else following.base_offset
            if following is None and seen.junk_bytes and seen.end_offset >= flushed_offset:
                segment.size_bytes += seen.junk_bytes
                self._findings.truncated_bytes += segment.cut(segment.size_bytes - seen.junk_bytes)
            if self.end_offset > self._producers.end_offset:
                self._replay(segment, segment.size_bytes)

    def _scan(self, number: int, flushed_offset: int) -> bool:
        """Check one segment; True when the log ends in it and what follows must go."""
        segment = self._segments[number]
        following = self._segments[number + 1] if number + 1 < len(self._segments) else None
        limit_offset = ANY_OFFSET if following is None else following.base_offset
        before_bytes = segment.size_bytes
        self.end_offset = segment.base_offset
        segment.load_indexes()
        from_offset = self._plan.scans[segment.base_offset]
        if from_offset > segment.base_offset:
            self._replay(segment, segment.offset_index.lookup(from_offset - 1).position)
        for position, header in segment.recover(from_offset, flushed_offset, limit_offset):
            self.end_offset = header.last_offset + 1
            if header.partition_leader_epoch > self._epochs.latest:
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)
            self._apply(segment, position, header)
        gone_bytes = before_bytes - segment.size_bytes
        if following is not None:
            segment.seal()
        if self.end_offset < flushed_offset:
            self._go_on_behind(number, limit_offset, damaged=gone_bytes > 0)
            return False
        self._findings.truncated_bytes += gone_bytes
        if OffsetRange(self.end_offset, limit_offset) in self._plan.recorded:
            self._findings.damaged.append(OffsetRange(self.end_offset, limit_offset))
            return False
        # A file may have lost its end between two batches; what follows then must go too. After a compaction, though,
        # a segment may rightly end before the next begins.
        gap = following is not None and limit_offset != self.end_offset and not self._config.compacts
        return gap or gone_bytes > 0

    def _go_on_behind(self, number: int, limit_offset: int, *, damaged: bool) -> None:
        """Flushed batches are missing at the end of a segment: find what comes next, and note what lies between."""
        if damaged:
            rest = split_behind_damage(
                self._storage, self._segments[number], self.end_offset, limit_offset, self._config, self._now_ms
            )
            if rest is not None:
                limit_offset = self._plan.scans[rest.base_offset] = rest.base_offset
                self._segments.insert(number + 1, rest)
        # At the end of the log `load` knows what is missing. After a compaction segments may end early.
        if self.end_offset < limit_offset < ANY_OFFSET and (damaged or not self._config.compacts):
            self._findings.damaged.append(OffsetRange(self.end_offset, limit_offset))

    def _remove_from(self, number: int) -> None:
        for segment in self._segments[number:]:
            self._findings.truncated_bytes += segment.size_bytes
            segment.delete()
        del self._segments[number:]

    def _replay(self, segment: Segment, end_position: int) -> None:
        """Apply what lies before `end_position` and after the producers' state, without checking it."""
        segment.load_indexes()
        position = segment.offset_index.lookup(self._producers.end_offset).position
        for at, header in segment.sound_headers(position, ANY_OFFSET):
            if at >= end_position:
                return
            self._apply(segment, at, header)

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
        committed, coordinator_epoch = parse_end_txn_marker(segment.log.read(position, header.size_bytes))
        ended = producers.apply_marker(
            header, offset, committed=committed, coordinator_epoch=coordinator_epoch, now_ms=self._now_ms
        )
        if ended is not None and not committed:
            segment.txn_index.append(
                AbortedTxn(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)
            )

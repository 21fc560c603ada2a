"""Opening a partition's directory: after a clean stop, after kill -9, after a loss of power.

Theory of operation. Everything below the recovery point is known to be on the device; after a clean stop that is
everything. First what a dead process left half done goes away. Then, in one pass over the segments:

- Check: in each segment that may hold unflushed bytes, or has a damaged index, every batch from the recovery point on
  is verified by its CRC; at the first that fails the log is cut, and later segments are removed. Indexes are made
  again on the way. A segment below the recovery point costs a look at the ends of its indexes, nothing else.
- Replay: the newest producer snapshot that can be believed was loaded; the batch headers after it are applied, and
  the entries of aborted transactions after it are made again.

After kill -9 alone, there is nothing to cut but a last batch that was written in part.
"""

from dataclasses import dataclass
from typing import Final

from ottla.base.errors import CorruptDataError, StorageError
from ottla.log.config import LogConfig
from ottla.log.epochs import LeaderEpochs
from ottla.log.history import add_history
from ottla.log.names import LOG, OFFSET_INDEX, STALE, SWAP, TIME_INDEX, TXN_INDEX, base_offset
from ottla.log.producers import ProducerState
from ottla.log.segment import Segment
from ottla.log.snapshot import Snapshots
from ottla.log.storage import Storage
from ottla.log.txn_index import AbortedTxn
from ottla.wire.batch import BatchHeader, parse_end_txn_marker

_ANY_OFFSET: Final = 2**63 - 1


@dataclass(slots=True)
class Loaded:
    """A partition's directory, ready to be used."""

    segments: list[Segment]
    producers: ProducerState
    log_start_offset: int
    end_offset: int
    recovery_point: int
    #: Bytes that were cut because they were no whole batches.
    truncated_bytes: int


def load(
    storage: Storage,
    config: LogConfig,
    epochs: LeaderEpochs,
    *,
    now_ms: int,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
) -> Loaded:
    """Open the directory; see the top of the file. StorageError when it cannot be used as it is."""
    segments = [Segment.load(storage, base, config, now_ms) for base in _tidy(storage)]
    scans, trusted_offset = _plan(segments, frozenset(storage.names()), clean, recovery_point)
    first_offset = segments[0].base_offset if segments else log_start_offset
    start_offset = max(log_start_offset, first_offset)
    snapshots = Snapshots(storage)
    # A snapshot at the very beginning concerns nothing that is still here, so nothing can contradict it. Records that
    # were deleted but are still in the first segment are replayed too: their producers were not forgotten.
    producers = snapshots.load_newest(first_offset, max(trusted_offset, first_offset)) or ProducerState(first_offset)
    snapshot_offset = producers.end_offset
    add_history(producers, segments, snapshot_offset)
    for entry in producers.producers.values():
        entry.last_seen_ms = now_ms
    walk = _Pass(segments, producers, epochs, config, now_ms)
    walk.run(scans)
    if log_start_offset <= walk.end_offset < snapshot_offset and segments:
        # Flushed data was damaged, and the snapshot knows what is gone. What is left is sound: once more without it.
        left = load(
            storage,
            config,
            epochs,
            now_ms=now_ms,
            clean=False,
            recovery_point=min(recovery_point, walk.end_offset),
            log_start_offset=log_start_offset,
        )
        left.truncated_bytes += walk.truncated_bytes
        return left
    end_offset = walk.end_offset
    if not segments or end_offset < log_start_offset:
        # The files were taken away under us; what is known to be deleted must not come back.
        for segment in segments:
            segment.delete()
        snapshots.delete_before(log_start_offset)
        segments, end_offset = [Segment.create(storage, log_start_offset, config, now_ms)], log_start_offset
    producers.end_offset = end_offset
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    recovery_point = end_offset if clean else min(recovery_point, end_offset)
    return Loaded(segments, producers, start_offset, end_offset, recovery_point, walk.truncated_bytes)


def _tidy(storage: Storage) -> list[int]:
    """Remove what is left of interrupted work; the base offsets of the segments, ascending."""
    names = storage.names()
    swapped = [name for name in names if name.endswith(SWAP)]
    if swapped:
        raise StorageError(
            f"{swapped[0]}: Apache Kafka was stopped in the middle of a compaction; start and stop it once more"
        )
    bases = sorted(base for base in (base_offset(name, LOG) for name in names) if base is not None)
    for name in names:
        orphan = any(
            base_offset(name, suffix) not in (None, *bases) for suffix in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
        )
        if orphan or name.endswith(STALE):
            storage.delete(name)
    return bases


def _plan(
    segments: list[Segment], names: frozenset[str], clean: bool, recovery_point: int
) -> tuple[dict[int, int], int]:
    """From which offset on which segment (by base offset) is checked, and up to where snapshots can be believed."""
    scans: dict[int, int] = {}
    trusted_offset = _ANY_OFFSET if clean else recovery_point
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        if not segment.check(names):
            segment.forget_indexes()
            trusted_offset = min(trusted_offset, segment.base_offset)
            scans[segment.base_offset] = segment.base_offset
        elif clean:
            if following is None and _walk_to_end(segment) is None:
                scans[segment.base_offset] = segment.base_offset
        elif following is None or following.base_offset > recovery_point:
            scans[segment.base_offset] = recovery_point
    return scans, trusted_offset


def _walk_to_end(segment: Segment) -> int | None:
    """The offset after a sound segment's last batch, or None when its end is not the end of a batch."""
    end_offset, position = segment.base_offset, segment.offset_index.last().position
    try:
        for at, header in segment.walk(position):
            end_offset, position = header.last_offset + 1, at + header.size_bytes
    except CorruptDataError:
        return None
    return end_offset if position == segment.size_bytes else None


class _Pass:
    """One pass over the segments, oldest first. `segments` is cut in place where the log turns out to end."""

    def __init__(
        self, segments: list[Segment], producers: ProducerState, epochs: LeaderEpochs, config: LogConfig, now_ms: int
    ) -> None:
        self.end_offset = segments[0].base_offset if segments else 0
        self.truncated_bytes = 0
        self._segments = segments
        self._producers = producers
        self._epochs = epochs
        self._config = config
        self._now_ms = now_ms

    def run(self, scans: dict[int, int]) -> None:
        """Check the segments in `scans` from the offset given there, and bring the producers up to date."""
        segments = self._segments
        for number, segment in enumerate(segments):
            following = segments[number + 1] if number + 1 < len(segments) else None
            segment.txn_index.truncate_to(max(self._producers.end_offset, segment.base_offset))
            from_offset = scans.get(segment.base_offset)
            if from_offset is None:
                end_offset = _walk_to_end(segment) if following is None else following.base_offset
                self.end_offset = segment.base_offset if end_offset is None else end_offset
                if self.end_offset > self._producers.end_offset:
                    self._replay(segment, segment.size_bytes)
            elif self._scan(segment, from_offset, following):
                self._remove_from(number + 1)
                return

    def _scan(self, segment: Segment, from_offset: int, following: Segment | None) -> bool:
        """Check one segment; True when the log ends in it and what follows must go."""
        before_bytes = segment.size_bytes
        self.end_offset = segment.base_offset
        if from_offset > segment.base_offset:
            self._replay(segment, segment.offset_index.lookup(from_offset - 1).position)
        for position, header in segment.recover(from_offset):
            self.end_offset = header.last_offset + 1
            if header.partition_leader_epoch > self._epochs.latest:
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)
            self._apply(segment, position, header)
        self.truncated_bytes += before_bytes - segment.size_bytes
        # A file may have lost its end between two batches; what follows then must go too. After a compaction, though,
        # a segment may rightly end before the next begins.
        gap = following is not None and following.base_offset != self.end_offset and not self._config.compacts
        return gap or segment.size_bytes < before_bytes

    def _remove_from(self, number: int) -> None:
        for segment in self._segments[number:]:
            self.truncated_bytes += segment.size_bytes
            segment.delete()
        del self._segments[number:]

    def _replay(self, segment: Segment, end_position: int) -> None:
        """Apply what lies before `end_position` and after the producers' state, without checking it."""
        for at, header in segment.walk(segment.offset_index.lookup(self._producers.end_offset).position):
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

"""Opening a partition's directory: after a clean stop, after kill -9, after a loss of power.

Theory of operation. Everything below the recovery point is known to be on the device; after a clean stop that is
everything. Three steps:

1. Tidy: what a dead process left half done goes away; index files without a log go away.
2. Check: of each segment that may hold unflushed bytes, or has a damaged index, every batch from the recovery point on
   is verified by its CRC; at the first that fails the log is cut, and later segments are removed. Indexes are made
   again on the way. A segment below the recovery point costs a look at the ends of its indexes, nothing else.
3. Replay: the newest producer snapshot that can be believed is loaded, and the batch headers after it are applied.
   The entries of aborted transactions behind the snapshot are made again on the way. A snapshot keeps one batch of
   each producer; the four before it are found in the last megabyte before the snapshot, so that a clean restart
   forgets no batch that may still be in flight (Kafka does forget them).

After kill -9 alone, step 2 finds nothing to cut but a last batch that was written in part.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.base.errors import CorruptDataError, StorageError
from ottla.log.config import LogConfig
from ottla.log.epochs import LeaderEpochs
from ottla.log.names import LOG, OFFSET_INDEX, STALE, SWAP, TIME_INDEX, TXN_INDEX, base_offset
from ottla.log.producers import BATCHES_TO_RETAIN, BatchMetadata, ProducerEntry, ProducerState
from ottla.log.segment import Segment
from ottla.log.snapshot import Snapshots
from ottla.log.storage import Storage
from ottla.log.txn_index import AbortedTxn
from ottla.wire.batch import BatchHeader, parse_end_txn_marker

#: How far before a snapshot older batches of its producers are looked for: five batches of many producers.
_HISTORY_BYTES: Final = 1_048_576
#: How much of that is read at a time.
_STEP_BYTES: Final = 32_768
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
    bases = _tidy(storage)
    names = frozenset(storage.names())
    segments = [Segment.load(storage, base, config, now_ms) for base in bases]
    checked = _check(segments, names, epochs, config, clean, recovery_point)
    segments, end_offset = checked.segments, checked.end_offset
    if not segments or end_offset < log_start_offset:
        # The files were taken away under us; what is known to be deleted must not come back.
        for segment in segments:
            segment.delete()
        segments, end_offset = [Segment.create(storage, log_start_offset, config, now_ms)], log_start_offset
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(log_start_offset)
    producers = Snapshots(storage).load_newest(log_start_offset, min(end_offset, checked.trusted_offset))
    if producers is None:
        producers = ProducerState(log_start_offset)
    _add_history(producers, segments, producers.end_offset)
    for entry in producers.producers.values():
        entry.last_seen_ms = now_ms
    _replay(producers, segments, end_offset, now_ms)
    return Loaded(
        segments,
        producers,
        log_start_offset,
        end_offset,
        end_offset if clean else min(recovery_point, end_offset),
        checked.truncated_bytes,
    )


class _Checked(NamedTuple):
    segments: list[Segment]
    end_offset: int
    #: Producer snapshots up to here can be believed, if the log reaches so far.
    trusted_offset: int
    truncated_bytes: int


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


def _check(
    segments: list[Segment],
    names: frozenset[str],
    epochs: LeaderEpochs,
    config: LogConfig,
    clean: bool,
    recovery_point: int,
) -> _Checked:
    """Step 2."""
    end_offset = 0
    trusted_offset = _ANY_OFFSET if clean else recovery_point
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        sound = segment.check(names)
        if sound and following is not None and (clean or following.base_offset <= recovery_point):
            continue
        end_of_sound = _walk_to_end(segment) if sound and clean else None
        if end_of_sound is not None:
            end_offset = end_of_sound
            continue
        if not sound:
            segment.forget_indexes()
            trusted_offset = min(trusted_offset, segment.base_offset)
        before_bytes = segment.size_bytes
        end_offset = segment.base_offset
        for _, header in segment.recover(segment.base_offset if clean else recovery_point):
            end_offset = header.last_offset + 1
            if header.partition_leader_epoch > epochs.latest:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
        # A file may have lost its end between two batches; what follows then must go too. After a compaction, though,
        # a segment may rightly end before the next begins.
        gap = following is not None and following.base_offset != end_offset and not config.compacts
        if segment.size_bytes < before_bytes or gap:
            later = segments[number + 1 :]
            for each in later:
                each.delete()
            cut_bytes = before_bytes - segment.size_bytes + sum(each.size_bytes for each in later)
            return _Checked(segments[: number + 1], end_offset, trusted_offset, cut_bytes)
    return _Checked(segments, end_offset, trusted_offset, 0)


def _walk_to_end(segment: Segment) -> int | None:
    """The offset after a sound segment's last batch, or None when its end is not the end of a batch."""
    end_offset, position = segment.base_offset, segment.offset_index.last().position
    try:
        for at, header in segment.walk(position):
            end_offset, position = header.last_offset + 1, at + header.size_bytes
    except CorruptDataError:
        return None
    return end_offset if position == segment.size_bytes else None


def _add_history(producers: ProducerState, segments: list[Segment], snapshot_offset: int) -> None:
    """Find the batches that the snapshot's producers wrote before their last one."""
    wanted = {entry.producer_id: entry for entry in producers.producers.values() if _has_more(entry)}
    if not wanted:
        return
    oldest_offset = _history_start(segments, snapshot_offset)
    wanted = {key: entry for key, entry in wanted.items() if entry.batches[0].first_offset > oldest_offset}
    for header in _headers_back(segments, snapshot_offset):
        if not wanted or header.last_offset < oldest_offset:
            return
        entry = wanted.get(header.producer_id)
        if entry is None or header.is_control:
            continue
        if header.producer_epoch != entry.producer_epoch:
            del wanted[header.producer_id]
        elif header.last_offset < entry.batches[0].first_offset:
            entry.batches.appendleft(_metadata(header))
            if not _has_more(entry):
                del wanted[header.producer_id]


def _has_more(entry: ProducerEntry) -> bool:
    """Whether the producer may have written batches of its epoch before the first one that is known."""
    return 0 < len(entry.batches) < BATCHES_TO_RETAIN and entry.batches[0].first_sequence > 0


def _history_start(segments: list[Segment], offset: int) -> int:
    """An offset about `_HISTORY_BYTES` before `offset`."""
    wanted_bytes = _HISTORY_BYTES
    for segment in reversed(segments):
        if segment.base_offset < offset:
            end = _position_of(segment, offset)
            if end > wanted_bytes:
                start = segment.offset_index.position_before(end - wanted_bytes)
                return next(segment.walk(start))[1].base_offset
            wanted_bytes -= end
    return segments[0].base_offset


def _headers_back(segments: list[Segment], offset: int) -> Iterator[BatchHeader]:
    """The headers before `offset`, newest first."""
    for segment in reversed(segments):
        end = _position_of(segment, offset) if segment.base_offset < offset else 0
        while end > 0:
            start = segment.offset_index.position_before(max(end - _STEP_BYTES, 0))
            yield from reversed(_headers_between(segment, start, end))
            end = start


def _headers_between(segment: Segment, start: int, end: int) -> list[BatchHeader]:
    found = []
    for at, header in segment.walk(start):
        if at >= end:
            break
        found.append(header)
    return found


def _position_of(segment: Segment, offset: int) -> int:
    position = segment.locate(offset)
    return segment.size_bytes if position is None else position


def _metadata(header: BatchHeader) -> BatchMetadata:
    return BatchMetadata(
        header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, header.max_timestamp_ms
    )


def _replay(producers: ProducerState, segments: list[Segment], end_offset: int, now_ms: int) -> None:
    """Step 3: apply every batch from the state's end offset to the log's."""
    from_offset = producers.end_offset
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        segment.txn_index.truncate_to(max(from_offset, segment.base_offset))
        position = segment.locate(from_offset) if following > from_offset else None
        if position is None:
            continue
        for at, header in segment.walk(position):
            if header.has_producer_id:
                _apply(producers, segment, at, header, now_ms)
    producers.end_offset = end_offset


def _apply(producers: ProducerState, segment: Segment, position: int, header: BatchHeader, now_ms: int) -> None:
    offset = header.base_offset
    if not header.is_control:
        producers.apply_batch(header, offset, header.max_timestamp_ms, now_ms, segment.base_offset, position)
        return
    committed, coordinator_epoch = parse_end_txn_marker(segment.log.read(position, header.size_bytes))
    ended = producers.apply_marker(
        header, offset, committed=committed, coordinator_epoch=coordinator_epoch, now_ms=now_ms
    )
    if ended is not None and not committed:
        segment.txn_index.append(
            AbortedTxn(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)
        )

"""What the files of a partition say of each other where a checkpoint says nothing: so that no start is silent.

After kill -9, before the first checkpoint, no offset is known to be on the device. If a `.log` is gone or empty then,
nothing is missed by recovery. But the files beside it know of records: the leader-epoch-checkpoint has the offset of
the first one, a snapshot's name is an offset up to which there were records, and indexes lie beside each log.

A loss of power can leave the same picture, because none of these files is synced before the first flush. So this is
told, and the log goes on: it is no hole that has to be mended first.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import NamedTuple

from ottla.log.checking import ANY_OFFSET
from ottla.log.damage import OffsetRange
from ottla.log.epochs import LeaderEpochs
from ottla.log.names import LOG, file_name
from ottla.log.segment import Segment
from ottla.log.snapshot import Snapshots
from ottla.log.txn_index import AbortsSeal
from ottla.wire.batch import BatchHeader


class Outside(NamedTuple):
    """What others know of a partition: the broker's metadata, and the data directory's own files."""

    #: The partition was made before: it must have a log file.
    is_known: bool = False
    #: Where the log begins should be known, but the file that says so cannot be used.
    start_is_unknown: bool = False
    #: Only the leader epochs say it, and another offset than what was on the device for certain (`start_of`).
    start_is_newer: bool = False
    #: Nothing proves that the file that says where the log begins, and the `.txnindex` files, are as they were left.
    start_is_unproved: bool = False
    #: The stop was in order, and the leader epochs cannot begin behind the start that this file says: if they do, it is
    #: an older copy, together with all that proves it.
    start_may_be_old: bool = False
    #: Where that file says that the log begins, when it is not believed.
    wrong_start: int | None = None
    #: What is on the device should be known, but the file that says so cannot be used.
    flush_is_unknown: bool = False
    #: Somebody may have cleaned the log behind its recovery point: Apache Kafka does, and this broker never.
    may_be_cleaned_further: bool = False
    #: Where the cleaner's last pass ended; None where there was none.
    cleaned_offset: int | None = None
    #: The epoch of the partition's leader: no record has a newer one, but for those of as many as were perhaps lost.
    leader_epoch: int | None = None
    lost_epochs: int = 0
    #: Apache Kafka has written the files. It notes a leader's epoch when the leader begins, before there is a record of
    #: it; it rolls a segment for no record; and a replica that has fetched a compacted log has gaps in any segment.
    is_theirs: bool = False
    #: Offsets below may be missing in any segment: the cleaner may have been here, or Apache Kafka was.
    thinned_below: int = 0
    #: What the `.txnindex` of each segment must hold, by base offset.
    aborts: Mapping[int, AbortsSeal] = MappingProxyType({})
    #: The holes that the broker knew of when it wrote its checkpoints last.
    holes: tuple[OffsetRange, ...] = ()
    #: The base offsets of all segments that there were at the end, if that was in order; () where it is not known.
    bases: tuple[int, ...] = ()


def start_of(
    outside: Outside, epochs: LeaderEpochs, recovery_point: int, said: int | None, reached: Callable[[], int]
) -> tuple[int | None, Outside]:
    """Where the log begins, and what is known of that: `said` by the checkpoint, or as the leader epochs have it.

    Their first entry moves along. So they are asked where the checkpoint cannot be used, and believed where it says
    another offset and nothing proves it. An entry above the recovery point may be of a deletion that is newer than the
    checkpoints, or not on the device: it is believed only where nothing else says where the log begins, and told; and
    never one behind all records, which have `reached` so far. None where nothing says it. For the same reason an entry
    behind the start that the checkpoint says is nothing special after a kill; a stop in order has written both.
    """
    first_offset = epochs.entries[0][1] if epochs.entries else None
    is_newer = first_offset is not None and first_offset > recovery_point
    if outside.start_is_unknown:
        if first_offset is not None and is_newer and first_offset > reached():
            first_offset, is_newer = None, False
        return first_offset, outside._replace(start_is_unknown=first_offset is None, start_is_newer=is_newer)
    is_wrong = outside.start_is_unproved and not is_newer and first_offset not in (None, said or 0)
    is_old = outside.start_may_be_old and first_offset is not None and (said or 0) < first_offset <= reached()
    if is_wrong or is_old:
        return first_offset, outside._replace(wrong_start=said or 0)
    return said, outside


class Seen(NamedTuple):
    """What the files say before recovery changes them."""

    #: Base offsets of the log files, and of indexes without one.
    bases: Collection[int] = ()
    orphans: Collection[int] = ()
    #: Where the newest leader epoch and the newest snapshot are; -1 when there is none.
    epoch_offset: int = -1
    snapshot_offset: int = -1
    #: The newest log file, which is empty, begins behind all that was flushed; -1 when it is not so.
    empty_base: int = -1
    #: The last entry of the newest log file's offset index, if it leads beyond the file's end; else -1.
    indexed_offset: int = -1
    #: Base offsets of empty log files behind a hole, of which older copies of some batches are in front of that hole.
    emptied: Collection[int] = ()


def look(
    bases: Collection[int],
    orphans: Collection[int],
    epochs: LeaderEpochs,
    snapshots: Snapshots,
    unflushed: Sequence[Segment] | None,
    recovery_point: int,
    indexed_offset: int,
) -> Seen:
    """Look at the files. `unflushed` are the segments, after an end that was not clean."""
    empty_base, newest = -1, unflushed[-1] if unflushed else None
    # A segment is made for a batch that is then written to it; or when all before it are deleted, and then it is alone.
    behind = recovery_point if unflushed and len(unflushed) > 1 else recovery_point + 1
    if newest is not None and newest.size_bytes == 0 and newest.base_offset >= behind:
        empty_base = newest.base_offset
    epoch_offset = epochs.entries[-1][1] if epochs.entries else -1
    return Seen(bases, orphans, epoch_offset, max(snapshots.offsets(), default=-1), empty_base, indexed_offset)


def emptied_behind(
    recorded: Collection[OffsetRange], bases: Collection[int], segments: Collection[Segment]
) -> tuple[int, ...]:
    """Of the log files with these base offsets, those behind a hole that was found before which were let go: empty."""
    left = {segment.base_offset for segment in segments}
    return tuple(end for _, end in recorded if end in bases and end not in left)


def lost_segments(missing: Collection[int], log_start_offset: int, flushed_offset: int) -> frozenset[int]:
    """Of the segments that are gone, or have only indexes left, those which held flushed records that are not deleted.

    Retention and the cleaner mark what they delete (`delete_segments`, `swap`), so it is none of these.
    """
    if flushed_offset <= log_start_offset:
        return frozenset()
    return frozenset(each for each in missing if each < flushed_offset)


def losses(outside: Outside, seen: Seen, end_offset: int, holes: Collection[OffsetRange]) -> tuple[str, ...]:
    """Sentences on records that are gone, and that are no part of a hole."""
    found = []
    if outside.is_known and not seen.bases and not holes:
        found.append("there is no log file, although the partition was made before")
    found += [
        f"{file_name(base, LOG)} is gone, its indexes are there"
        for base in sorted(seen.orphans)
        if not any(first <= base < end for first, end in holes)
    ]
    found += [
        f"{file_name(base, LOG)} is empty: its records are taken from the damaged file before it, as far as that has "
        f"them, up to offset {end_offset}"
        for base in seen.emptied
    ]
    # An epoch that begins at the end of the log is nothing special: all records may have been deleted.
    of_no_record = seen.epoch_offset == end_offset and (end_offset > 0 or outside.is_theirs)
    if seen.epoch_offset >= end_offset and seen.epoch_offset >= 0 and not of_no_record:
        found.append(f"there was a record at offset {seen.epoch_offset}, and the log ends at {end_offset}")
    elif seen.snapshot_offset > end_offset:
        found.append(f"there was a record at offset {seen.snapshot_offset - 1}, and the log ends at {end_offset}")
    elif seen.indexed_offset >= end_offset:
        found.append(f"there was a record at offset {seen.indexed_offset}, and the log ends at {end_offset}")
    elif 0 < seen.empty_base == end_offset and not outside.is_theirs and not any(end == end_offset for _, end in holes):
        # An earlier start has made the file behind a hole, and perhaps nothing was written since.
        found.append(f"{file_name(end_offset, LOG)} is empty, and so the log ends at offset {end_offset}")
    return tuple(found)


def mended(
    outside: Outside,
    epochs: LeaderEpochs,
    snapshots: Snapshots,
    segments: Collection[Segment],
    extent: OffsetRange,
) -> tuple[str, ...]:
    """Mend the leader epochs. Returns sentences on all the small files that were damaged or gone."""
    start_offset, end_offset = extent
    found = []
    if outside.start_is_unknown and start_offset < end_offset:
        found.append(
            f"nothing says where the log begins: it begins at its oldest segment, offset {start_offset}; "
            "records that were deleted behind that offset can be read again"
        )
    if outside.start_is_newer:
        found.append(
            f"leader-epoch-checkpoint alone says where the log begins: at offset {start_offset}; the records before "
            "that count as deleted"
        )
    if outside.wrong_start is not None:
        found.append(
            f"log-start-offset-checkpoint says that the log begins at offset {outside.wrong_start}, and "
            f"leader-epoch-checkpoint says another one, which is believed: it begins at offset {start_offset}. If files"
            " were put back from a copy: put all of the data directory back from the same one"
        )
    if _mend_epochs(epochs, segments, start_offset, end_offset):
        found.append(f"leader-epoch-checkpoint ({epochs.fault or 'gone or wrong'}) is made again from the batches")
    if epochs.wrong is not None:
        found.append(
            f"the batch at offset {epochs.wrong[0]} says leader epoch {epochs.wrong[1]}, and that of the leader is "
            f"{epochs.newest}: it is not believed (no checksum tells whether it was changed)"
        )
    if snapshots.damaged:
        names = ", ".join(snapshots.damaged)
        found.append(f"{names}: damaged, or of another offset; the producers are read from the batches again")
    indexes = (segment.txn_index for segment in segments)
    return (*found, *(f"{index.name} is made again from the markers" for index in indexes if index.was_wrong))


def _mend_epochs(epochs: LeaderEpochs, segments: Collection[Segment], start_offset: int, end_offset: int) -> bool:
    """Read the leader epochs from the batches if the checkpoint does not know that of the first record, or is refuted.

    Returns whether that is worth telling. If it only begins too late, it may be newer than the checkpoint of starts.
    What was not flushed was read again, and then the epochs are known, but the file was gone nevertheless.
    """
    entries, has_records = epochs.entries, start_offset < end_offset
    is_whole = not has_records or (bool(entries) and entries[0][1] <= start_offset)
    is_refuted = is_whole and _are_refuted(epochs, segments, OffsetRange(start_offset, end_offset))
    was_missing = epochs.was_empty and has_records
    if is_whole and not is_refuted and epochs.fault is None:
        return was_missing
    headers = (header for segment in segments for _, header in segment.sound_headers(0, ANY_OFFSET))
    epochs.read_again(headers, start_offset)
    is_said = start_offset > 0 or bool(epochs.entries)
    epochs.begin_at(start_offset)
    epochs.save(sync=False)
    epochs.sync_or_owe()
    return epochs.fault is not None or is_refuted or (was_missing and is_said)


def _are_refuted(epochs: LeaderEpochs, segments: Collection[Segment], extent: OffsetRange) -> bool:
    """Whether the batches say other epochs. One batch alone does not: no CRC covers what it says.

    So it is the first batch of an epoch and its last one, or one beside the next epoch that says this one. A changed
    digit of the checkpoint would tell consumers of a log that was cut (OffsetForLeaderEpoch).
    """
    start_offset, end_offset = extent
    before: int | None = None
    headers = _Headers(segments)
    for (epoch, begin), following in zip_longest(epochs.entries, epochs.entries[1:]):
        begin, end = max(begin, start_offset), end_offset if following is None else following[1]
        if headers.epoch_at(begin, end) != epoch:
            said = filter(epochs.may_be, _epochs_of(segments, begin, end))
            first = next(said, epoch)
            if first != epoch and (first == before or deque((first, *said), 1)[0] != epoch):
                return True
        if following is not None and headers.epoch_at(end - 1, end) == following[0]:
            return True
        before = epoch
    return False


class _Headers:
    """The headers of all segments, asked for by ascending offsets: so each is read once, however many are asked for."""

    def __init__(self, segments: Collection[Segment]) -> None:
        self._segments = list(segments)
        self._at = 0
        self._walk: Iterator[tuple[int, BatchHeader]] | None = None
        self._position = -1
        self._header: BatchHeader | None = None

    def epoch_at(self, begin: int, end: int) -> int | None:
        """What the first batch says that has an offset from `begin` on; None where none has one below `end`."""
        header = self._reaching(begin)
        return None if header is None or header.base_offset >= end else header.partition_leader_epoch

    def _reaching(self, offset: int) -> BatchHeader | None:
        if self._is_reached(offset) or (self._walk is not None and self._step() and self._is_reached(offset)):
            return self._header
        for at in range(self._at, len(self._segments)):
            if at + 1 < len(self._segments) and self._segments[at + 1].base_offset <= offset:
                continue
            segment = self._segments[at]
            position = 0 if offset <= segment.base_offset else segment.position_to(offset)
            if self._walk is None or at != self._at or position > self._position:
                self._at, self._walk = at, segment.sound_headers(position, ANY_OFFSET)
            while self._step():
                if self._is_reached(offset):
                    return self._header
        return None

    def _is_reached(self, offset: int) -> bool:
        return self._header is not None and self._header.last_offset >= offset

    def _step(self) -> bool:
        """Go to the next header; False where the segment has no more."""
        self._position, self._header = next(self._walk or iter(()), (self._position, None))
        return self._header is not None


def _epochs_of(segments: Collection[Segment], begin: int, end: int) -> Iterator[int]:
    """What the batches with offsets from `begin` up to `end` say, in order."""
    for segment, behind in zip_longest(segments, list(segments)[1:]):
        if segment.base_offset >= end:
            return
        if behind is not None and behind.base_offset <= begin:
            continue
        position = 0 if begin <= segment.base_offset else segment.position_to(begin)
        for _, header in segment.sound_headers(position, ANY_OFFSET):
            if header.base_offset >= end:
                return
            if header.last_offset >= begin and header.partition_leader_epoch >= 0:
                yield header.partition_leader_epoch

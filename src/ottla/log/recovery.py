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

The pass (`walk`) also brings the producers' state up to date. It begins with the newest snapshot that can be trusted;
then each later batch header is applied. The entries of transactions that were aborted after it are made again.

After kill -9 alone, at most the last batch is cut, because it was written in part.

Each step returns a frozen value, and `load` hands one to the next. What stays mutable is what the log goes on with:
its segments, its producers and its leader epochs.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final

from ottla.base.errors import StorageError
from ottla.log.checking import ANY_OFFSET
from ottla.log.config import LogConfig
from ottla.log.damage import OffsetRange, read_damage, unlisted, write_damage
from ottla.log.epochs import LeaderEpochs
from ottla.log.findings import Findings
from ottla.log.flush import heed_refusals
from ottla.log.leftovers import tidy, without_failed_rolls
from ottla.log.names import DAMAGED_OFFSETS, LOG, PARTITION_METADATA, UNFINISHED_SYNC, file_name
from ottla.log.producers import ProducerState
from ottla.log.salvage import reached_in, reached_offset
from ottla.log.segment import Segment, delete_segments
from ottla.log.snapshot import Snapshots
from ottla.log.snapshot_checks import is_of_its_offset
from ottla.log.storage import Storage
from ottla.log.walk import Known, Plan, Thinned, Walk, Walked, plan_pass
from ottla.log.witnesses import Outside, Seen, emptied_behind, look, losses, lost_segments, mended, start_of


@dataclass(frozen=True, slots=True)
class Loaded:
    """A partition's directory, ready to be used."""

    segments: tuple[Segment, ...]
    producers: ProducerState
    log_start_offset: int
    end_offset: int
    recovery_point: int
    #: Everything below is on the device. Where the log begins may be known to this machine, and not to its device yet.
    synced_offset: int
    findings: Findings
    #: Below which offset some may be missing by compaction, in any segment.
    thinned_below: int = 0


_NOTHING: Final = Outside()


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
    names, checkpointed_offset = storage.names(), recovery_point
    if UNFINISHED_SYNC in names and not clean:
        storage.sync_note.stays = True  # whatever this start syncs
    reached = partial(reached_in, storage, config, now_ms, names)
    log_start_offset, outside = start_of(outside, epochs, recovery_point, log_start_offset, reached)
    # After a clean stop the checkpoint says where the log began, and not only what was deleted for certain.
    known_start = log_start_offset if clean else None
    log_start_offset = log_start_offset or 0
    recovery_point = max(recovery_point, log_start_offset)  # nobody wants what is below
    if (not names or names == [PARTITION_METADATA]) and recovery_point <= log_start_offset:
        return _new(storage, config, now_ms, log_start_offset, outside)
    found = tidy(storage, names)
    listed = read_damage(storage) if DAMAGED_OFFSETS in found.names else ()
    recorded, thinned = tuple(sorted({*listed, *outside.holes})), _thinned(config, outside)
    segments = without_failed_rolls(storage, [Segment.load(storage, base, config, now_ms) for base in found.bases])
    began = min(found.orphans, default=log_start_offset)  # where no log file is left: retention removes indexes, too
    first_offset = segments[0].base_offset if segments else max(log_start_offset, began)
    plan = plan_pass(segments, found.names, clean, recovery_point, outside, recorded, thinned)
    snapshots, unflushed = Snapshots(storage), None if clean else segments
    seen = look(found.bases, found.orphans, epochs, snapshots, unflushed, recovery_point, plan.indexed_offset)
    seen = seen._replace(emptied=emptied_behind(recorded, found.bases, segments))
    producers = _load_producers(snapshots, segments, first_offset, plan.trusted_offset, now_ms)
    # After a clean stop the last snapshot was taken at the end of the log.
    flushed_offset = trusted_offset = max(recovery_point, producers.end_offset) if clean else recovery_point
    if outside.flush_is_unknown and not clean:
        flushed_offset = max(flushed_offset, reached_offset(segments))
    lost = lost_segments(found.orphans | set(outside.bases) - set(found.bases), log_start_offset, flushed_offset)
    known = Known(log_start_offset, known_start, flushed_offset, trusted_offset, lost, recorded, thinned)
    walked = Walk(storage, config, now_ms, plan, known, producers, epochs).run(segments)
    if not walked.segments or walked.end_offset < log_start_offset >= flushed_offset:
        reached_at = max((seen.snapshot_offset, *found.orphans))
        walked, known = _begin_again(storage, config, now_ms, walked, known, OffsetRange(began, reached_at), producers)
    elif walked.end_offset < flushed_offset:
        walked = _go_on_behind_loss(storage, config, now_ms, walked, known)
    start_offset = _start(walked.segments[0].base_offset, known)
    findings = _findings(walked, plan, known, start_offset)
    findings = _witnessed(findings, outside, seen, epochs, snapshots, walked, start_offset)
    findings = _with_list(storage, findings, listed, outside)
    _say_what_is_gone(producers, walked, findings, start_offset, was_compacted=thinned.below > 0)
    _load_last(walked.segments)
    end_offset = producers.end_offset = walked.end_offset
    epochs.truncate(start_offset, end_offset)
    recovery_point = end_offset if clean else min(recovery_point, end_offset)
    synced_offset = recovery_point if clean else min(recovery_point, checkpointed_offset)
    heed_refusals(storage, names, walked.segments, synced_offset, clean=clean)
    points = start_offset, end_offset, recovery_point, synced_offset
    return Loaded(walked.segments, producers, *points, findings, _thinned_below(outside, thinned, walked))


def _thinned(config: LogConfig, outside: Outside) -> Thinned:
    below = ANY_OFFSET if config.compacts else max(outside.cleaned_offset or 0, outside.thinned_below)
    newest_below = below if outside.may_be_cleaned_further else outside.thinned_below
    if outside.is_theirs:
        newest_below = ANY_OFFSET
    may_go_on = outside.may_be_cleaned_further or outside.flush_is_unknown
    return Thinned(below, newest_below, may_go_on, outside.is_theirs)


def _thinned_below(outside: Outside, thinned: Thinned, walked: Walked) -> int:
    """For the next start: below which offset some may be missing, in the newest segment, too.

    A replica of Apache Kafka that has fetched a compacted log has gaps there. Nobody else has.
    """
    if not outside.may_be_cleaned_further:
        return outside.thinned_below
    newest, whole_bytes = walked.segments[-1], 0
    for position, header in newest.sound_headers(0, ANY_OFFSET, gaps_below=0):
        whole_bytes = position + header.size_bytes
    if whole_bytes < newest.size_bytes:
        return walked.end_offset
    return newest.base_offset if thinned.below else 0


def _say_what_is_gone(
    producers: ProducerState, walked: Walked, findings: Findings, start_offset: int, *, was_compacted: bool
) -> None:
    """Where a batch may have been that is sent again, and is not in the log any more."""
    whole = OffsetRange(0, walked.end_offset)
    has_deleted = walked.segments[0].base_offset > 0
    is_compacted = was_compacted and (has_deleted or len(walked.segments) > 1)
    producers.holes = findings.damaged
    producers.thinned_below = whole.end_offset if is_compacted or has_deleted else 0
    producers.missing = (whole,) if is_compacted else (OffsetRange(0, start_offset), *findings.unexplained)


def _load_last(segments: Sequence[Segment]) -> None:
    """Appends go to the last one; the others are loaded when somebody reads them."""
    for segment in segments[:-1]:
        segment.unload()
    segments[-1].load_indexes()


def _with_list(storage: Storage, findings: Findings, listed: tuple[OffsetRange, ...], outside: Outside) -> Findings:
    """Keep the list of holes for the next start. Tells when it did not name what the broker knew of."""
    if findings.damaged != listed:
        write_damage(storage, findings.damaged)
    return replace(findings, mended=(*findings.mended, *unlisted(findings.damaged, listed, outside.holes)))


def _new(storage: Storage, config: LogConfig, now_ms: int, start_offset: int, outside: Outside) -> Loaded:
    """A log that holds nothing yet."""
    segment = Segment.create(storage, start_offset, config, now_ms)
    findings = Findings(losses=losses(outside, Seen(), start_offset, ()))
    return Loaded((segment,), ProducerState(start_offset), *(start_offset,) * 4, findings)


def _load_producers(
    snapshots: Snapshots, segments: Sequence[Segment], first_offset: int, trusted_offset: int, now_ms: int
) -> ProducerState:
    """The producers' state, from the newest snapshot that can be trusted."""
    # A snapshot at the log's very beginning says nothing about the records that are still here, so it can be trusted.
    # Records that were deleted but are still in the first segment are replayed too: their producers are still known.
    fits = partial(is_of_its_offset, segments=segments)
    producers = snapshots.load_newest(first_offset, max(trusted_offset, first_offset), fits)
    producers = producers or ProducerState(first_offset)
    for entry in producers.producers.values():
        entry.last_seen_ms = now_ms
    return producers


def _begin_again(
    storage: Storage,
    config: LogConfig,
    now_ms: int,
    walked: Walked,
    known: Known,
    named: OffsetRange,
    producers: ProducerState,
) -> tuple[Walked, Known]:
    """An empty log, because the files are gone, or hold nothing that is wanted; and what is known then.

    It begins after everything that was deleted or flushed; and, where no log file is left, after what the names of
    other files still know (`named`). What is missing is a hole if some of it was flushed.
    """
    end_offset = max(known.log_start_offset, known.flushed_offset)
    # What was deleted has moved the recovery point, too.
    is_hole = not walked.segments and max(named.first_offset, known.log_start_offset) < known.flushed_offset
    if not walked.segments:
        end_offset = max(end_offset, named.end_offset)
    known = known._replace(known_start=named.first_offset if is_hole else end_offset)
    producers.begin_again(end_offset)
    snapshots = Snapshots(storage)
    with suppress(StorageError):  # on a full disk there is room when the files are gone
        snapshots.keep(producers)
    delete_segments(storage, list(walked.segments))
    snapshots.keep(producers)  # what they have written is gone, and must not be written again
    snapshots.delete_before(end_offset)
    begun = walked._replace(segments=(Segment.create(storage, end_offset, config, now_ms),), end_offset=end_offset)
    if not walked.segments:
        return begun, known  # told as a hole, or by `witnesses`
    told = f"the log's files end at offset {walked.end_offset}, before its start, {end_offset}"
    return begun._replace(losses=(f"{told}: if there were records from there on, they are gone",)), known


def _go_on_behind_loss(storage: Storage, config: LogConfig, now_ms: int, walked: Walked, known: Known) -> Walked:
    """Flushed batches are missing at the end of the log: it goes on after them, in a new segment."""
    return Walked(
        (*walked.segments, Segment.create(storage, known.flushed_offset, config, now_ms)),
        known.flushed_offset,
        walked.cuts,
        (*walked.damaged, OffsetRange(max(walked.end_offset, known.log_start_offset), known.flushed_offset)),
        walked.gaps,
        walked.unreadable,
    )


def _start(first_offset: int, known: Known) -> int:
    """Where the log begins: at its first segment, or at a hole before that segment."""
    before = [each for each in known.lost if each < first_offset]
    before += [each.first_offset for each in known.recorded if each.end_offset == first_offset]
    if known.known_start is not None:
        before.append(known.known_start)
    return max(known.log_start_offset, min(before, default=first_offset))


def _findings(walked: Walked, plan: Plan, known: Known, start_offset: int) -> Findings:
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
        elif gap.end_offset > known.thinned.below:
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
    walked: Walked,
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

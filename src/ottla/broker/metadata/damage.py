"""Looks at the metadata log before it is opened: damage that no crash explains stops the start.

Every change is synced before anybody sees it, and no change is ever removed. So the batches follow each other without a
gap from offset 0, and a crash leaves at most one of them in part: the last, which nobody was told of. Recovery cuts a
log at the first batch that is not whole. If it cut acknowledged changes away, the log would forget topics, and their
records would be set aside as strays; and producer ids would be given twice. So anything but such an end means damage
that a person must look at, and every file is left as it is. The end mark (`end_mark`) says which changes were
acknowledged; where all of the folder is an older copy, so is that, and the data directory's manifest says it. No CRC
covers a batch's leader epoch; but ours is 0 until Apache Kafka has led, and each of a quorum's epochs begins with a
control batch (KIP-595).

Of a log that Apache Kafka has written last, nothing says what was acknowledged. It may begin behind offset 0, if a
snapshot stands for what is gone.
"""

from collections.abc import Iterable

from ottla.base.errors import CorruptDataError, StorageError
from ottla.broker.disk import Disk, Entry
from ottla.broker.metadata.end_mark import END_MARK, EndMark
from ottla.broker.metadata.quorum import mark_of_apache_kafka
from ottla.broker.metadata.snapshots import newest_snapshot
from ottla.broker.told import Kind, Tell, Told, log_told
from ottla.log.names import LOG, OFFSET_INDEX, base_offset, file_name
from ottla.log.storage import Storage
from ottla.wire.batch import BatchHeader, check_integrity, find_whole_batch, parse_header

_PUT_BACK = "nothing was changed; put the file back from a copy"


def refuse_damage(disk: Disk, folder: str, tell: Tell = log_told, *, sealed_end: int | None = None) -> bool:
    """StorageError when the metadata log, which is in `folder`, lacks changes that were acknowledged.

    `sealed_end` is how far it must reach as files outside of the folder know; None where they do not. Without an end
    mark it does not count: a person who goes on without the last changes removes that.

    Returns whether that is certain: False when there are changes, and the end mark cannot be used.
    """
    entries = disk.entries(folder)
    if not entries:
        return True
    path, files = f"{disk}/{folder}", disk.open_folder(folder)
    is_ours = mark_of_apache_kafka(disk) is None
    bases = _bases(entries, LOG)
    _must_begin(path, entries, bases)
    names = [(base, file_name(base, LOG)) for base in bases]
    contents = [(base, f"{path}/{name}", files.read(name) or b"") for base, name in names]
    end_offset = _end(contents, bases[0] if bases else 0)
    _must_reach_snapshot(path, entries, end_offset)
    acknowledged, fault = _acknowledged(files)
    if acknowledged is None and end_offset > 0 and is_ours:
        text = (
            f"{path}/{END_MARK} {fault}: whether the last changes of the metadata log are all there cannot be checked; "
            "the file is made again"
        )
        tell(Told(Kind.MADE_AGAIN, f"{folder}/{END_MARK}", text))
    if acknowledged is not None and end_offset < acknowledged:
        # The indexes of a log file that is gone may be there.
        name = file_name(max((*bases, *_bases(entries, OFFSET_INDEX)), default=0), LOG)
        raise StorageError(
            f"{path}/{name}: the metadata log ends at offset {end_offset}, and the changes at offsets {end_offset}–"
            f"{acknowledged - 1} were acknowledged: {_PUT_BACK}. To go on without these changes, remove "
            f"{path}/{END_MARK}"
        )
    if acknowledged is not None and sealed_end is not None and end_offset < sealed_end:
        raise StorageError(
            f"{path}: the metadata log ends at offset {end_offset}, and {disk}/ottla-manifest knows the changes at "
            f"offsets {end_offset}–{sealed_end - 1}, too: the folder is an older copy. Nothing was changed; "
            "put it back from a newer one, or all of the data directory from the same one. To go on without "
            f"these changes, remove {path}/{END_MARK}"
        )
    return acknowledged is not None or end_offset == 0 or not is_ours


def _must_begin(path: str, entries: Iterable[Entry], bases: list[int]) -> None:
    """StorageError when the log's beginning is gone, and no snapshot stands for it."""
    snapshot = newest_snapshot(entry.name for entry in entries)
    if bases and bases[0] > (0 if snapshot is None else snapshot.end_offset):
        raise StorageError(f"{path} has no {file_name(0, LOG)}: the metadata's beginning is gone; {_PUT_BACK}")


def _must_reach_snapshot(path: str, entries: Iterable[Entry], end_offset: int) -> None:
    """StorageError when the log ends before its newest snapshot does."""
    snapshot = newest_snapshot(entry.name for entry in entries)
    if snapshot is not None and end_offset < snapshot.end_offset:
        raise StorageError(
            f"{path}: the metadata log ends at offset {end_offset}, and {snapshot.file_name} is a snapshot of more: "
            f"{_PUT_BACK}"
        )


def _bases(entries: Iterable[Entry], suffix: str) -> list[int]:
    return sorted(base for base in (base_offset(entry.name, suffix) for entry in entries) if base is not None)


def _acknowledged(files: Storage) -> tuple[int | None, str]:
    """What the end mark says; without it, None and why."""
    try:
        return EndMark(files).read(), "is not there"
    except CorruptDataError as damage:
        return None, str(damage)


def _end(segments: list[tuple[int, str, bytes]], next_offset: int) -> int:
    """The offset behind the last whole batch; StorageError when something whole comes after something that is not."""
    epoch = 0 if next_offset == 0 else None
    for at, (base, path, content) in enumerate(segments):
        has_more = any(later for _, _, later in segments[at + 1 :])
        if not content:
            continue  # a roll that the disk has refused leaves an empty file; the log goes on before it
        if base != next_offset:
            suspect = next((empty for _, empty, held in segments[:at] if not held), path)
            raise StorageError(
                f"{suspect}: the changes at offsets {next_offset}–{base - 1} of the metadata log are gone: {_PUT_BACK}"
            )
        position = 0
        try:
            while position < len(content):
                header = _batch_at(content, position, next_offset)
                if not _may_follow(header, epoch):
                    raise StorageError(
                        f"{path} is damaged at byte {position} (leader epoch {header.partition_leader_epoch} where "
                        f"{epoch} is due): {_PUT_BACK}"
                    )
                epoch = header.partition_leader_epoch
                position, next_offset = position + header.size_bytes, header.last_offset + 1
        except CorruptDataError as fault:
            follows = find_whole_batch(memoryview(content), position + 1, next_offset, 2**63)
            if follows is not None or has_more:
                raise StorageError(
                    f"{path} is damaged at byte {position} ({fault}), and whole batches follow: {_PUT_BACK}"
                ) from None
    return next_offset


def _batch_at(content: bytes, position: int, next_offset: int) -> BatchHeader:
    """The batch at `position`; CorruptDataError when it is not whole."""
    header = parse_header(content, position)
    check_integrity(content, position, header)
    if header.base_offset != next_offset:
        raise CorruptDataError(f"offset {header.base_offset} where {next_offset} is due")
    return header


def _may_follow(header: BatchHeader, epoch: int | None) -> bool:
    """Whether a batch may follow one of this epoch; None: of an epoch that is not known."""
    found = header.partition_leader_epoch
    return epoch is None or found == epoch or (found > epoch and header.is_control)

"""Folders in a data directory that are no partitions of the metadata: what we remove, set aside, or leave alone.

People may keep other things in a data directory too (`--data-dir .`). We only touch a folder that holds nothing but a
log's files. We only remove it if the log is empty, or if its topic was deleted for certain: the folder's name says so,
or the metadata says so of the topic id in the folder.
"""

import logging
import random
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

from ottla.base.errors import CorruptDataError, StorageError
from ottla.broker.disk import Disk, Entry
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.names import METADATA_FOLDER, METADATA_TOPIC
from ottla.broker.metadata.snapshots import newest_snapshot
from ottla.broker.told import Kind, Tell, Told, log_told
from ottla.log.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    decode_offsets,
    decode_partition_metadata,
)
from ottla.log.names import LOG, PARTITION_METADATA, SWAP, base_offset

_log = logging.getLogger(__name__)

_DELETED: Final = "-delete"
_STRAY: Final = "-stray"
#: `<partition>.<unique>-delete`, Kafka's form and ours.
_DELETED_NAME: Final = re.compile(r".+\.[0-9a-f]{32}-delete")
#: The names that a log's files have.
LOG_FILE: Final = re.compile(
    r"(\d{20}\.(log|index|timeindex|txnindex|snapshot)(\.deleted|\.cleaned|\.swap)?"
    r"|leader-epoch-checkpoint|partition\.metadata|damaged-offsets|unfinished-sync)(\.tmp)?"
)


def make_free(disk: Disk, folder: str) -> bool:
    """Remove what an attempt to make this partition has left; StorageError if the folder holds anything else.

    A disk that refuses to make a partition may also refuse to take back what was made. True if the folder itself is
    still there: then the device may still have names of files in it, and they would be there again after a loss of
    power, unless the folder's names are synced first.
    """
    entries = disk.entries(folder)
    if entries and _is_log(entries) and not _holds_records(entries):
        remove_partition(disk, folder)
        entries = disk.entries(folder)
    if entries:
        raise StorageError(
            f"{disk}/{folder} is there already, and not empty: move it away, or choose another topic name"
        )
    return entries is not None


def mark_deleted(disk: Disk, folders: Iterable[str], rng: random.Random) -> list[str]:
    """Rename partitions' folders, to be deleted. Returns their new names. May run in another thread."""
    marked = []
    for folder in folders:
        try:
            marked.append(_rename(disk, folder, _DELETED, rng))
        except StorageError as fault:  # the topic is deleted in the metadata; the next start removes this
            _log.warning("%s cannot be removed: %s", folder, fault)
    return marked


def remove_partition(disk: Disk, folder: str) -> None:
    """Remove a log's files, and then the folder (or the link to it) if it is empty. What cannot go, stays."""
    with suppress(StorageError):
        for entry in disk.entries(folder) or ():
            if entry.is_file and LOG_FILE.fullmatch(entry.name):
                disk.delete(folder, entry.name)
        disk.remove(folder)


def has_metadata(disk: Disk) -> bool:
    """Whether there is a metadata log: with anything in it, or one that goes on behind a snapshot."""
    entries = disk.entries(METADATA_FOLDER) or ()
    goes_on = any((base_offset(each.name, LOG) or 0) > 0 for each in entries)
    return goes_on or newest_snapshot(each.name for each in entries) is not None or _holds_records(entries)


def must_hold_no_partitions(disk: Disk) -> None:
    """StorageError if anything says that there was a metadata log, although there is none: then it was lost.

    No topic is made, and no broker stops in order, before the first records of that log are on the device.
    """
    found = _trace_of_metadata(disk)
    if found is not None:
        raise StorageError(
            f"{disk} {found}, but its metadata log is empty: put {METADATA_FOLDER} back from a copy; or, to begin "
            "anew, move everything else away"
        )


def _trace_of_metadata(disk: Disk) -> str | None:
    for folder in disk.folders():
        name, _, number = folder.name.rpartition("-")
        if name and name != METADATA_TOPIC and number.isdecimal():
            entries = disk.entries(folder.name) or ()
            if _holds_records(entries):
                return f"holds records ({folder.name})"
            if any(entry.name == PARTITION_METADATA for entry in entries):
                return f"holds a partition ({folder.name})"
    files = disk.own_files()
    for file in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
        with suppress(CorruptDataError):
            for tp in decode_offsets(files.read(file) or b"0\n0\n"):
                return f"had a partition ({file} names {tp})"
    if files.read(CLEAN_SHUTDOWN_MARKER) is not None:
        return f"was left by a broker that stopped in order ({CLEAN_SHUTDOWN_MARKER} is there)"
    return None


def set_strays_aside(
    disk: Disk,
    image: MetadataImage,
    deleted_ids: Collection[bytes],
    rng: random.Random,
    tell: Tell = log_told,
) -> None:
    """Rename folders of partitions that no topic has: the next topic with that name would get their records.

    `deleted_ids` are topics that the metadata says were deleted. The broker died before it removed their folders.
    """
    for folder, is_link in disk.folders():
        name, dash, number = folder.rpartition("-")
        topic = image.topics.get(name)
        if _DELETED_NAME.fullmatch(folder):
            if not is_link:
                remove_partition(disk, folder)
            continue
        if not dash or not (number.isascii() and number.isdigit()) or name == METADATA_TOPIC:
            continue
        if topic is not None and int(number) < len(topic.partitions):
            continue
        if is_link:
            tell(Told(Kind.NOTE, folder, f"{folder} is a link, and belongs to no topic: left alone"))
        else:
            try:
                _set_aside(disk, folder, deleted_ids, rng, tell)
            except StorageError as fault:
                text = f"{folder} belongs to no topic, and cannot be looked at or renamed: {fault}"
                tell(Told(Kind.STRAY, folder, text))


def _set_aside(disk: Disk, folder: str, deleted_ids: Collection[bytes], rng: random.Random, tell: Tell) -> None:
    entries = disk.entries(folder)
    if not entries:
        return
    if not _is_log(entries):
        tell(Told(Kind.NOTE, folder, f"{disk}/{folder} is no partition's directory: left as it is"))
    elif _holds_records(entries) and _topic_id(disk, folder) not in deleted_ids:
        text = f"{folder} belongs to no topic; kept as {_rename(disk, folder, _STRAY, rng)}"
        tell(Told(Kind.STRAY, folder, text))
    else:
        remove_partition(disk, folder)  # the broker was killed while it made the topic, or while it deleted it


def _topic_id(disk: Disk, folder: str) -> bytes | None:
    content = disk.open_folder(folder).read(PARTITION_METADATA)
    try:
        return None if content is None else decode_partition_metadata(content)
    except CorruptDataError:
        return None


def _is_log(entries: Iterable[Entry]) -> bool:
    """Whether there is nothing but a log's files."""
    return all(entry.is_file and LOG_FILE.fullmatch(entry.name) for entry in entries)


def _holds_records(entries: Iterable[Entry] | None) -> bool:
    # A `.swap` log may hold all records that there are (`log.cleaner.swap`, between the steps 3 and 4).
    logs = (LOG, LOG + SWAP)
    found = [entry for entry in entries or () if entry.name.endswith(logs) and LOG_FILE.fullmatch(entry.name)]
    return any(entry.size_bytes for entry in found)


def _rename(disk: Disk, folder: str, suffix: str, rng: random.Random) -> str:
    """As Kafka does: `<partition>.<unique>-delete`, cut to what a directory's name may hold."""
    name = f"{folder[:200]}.{rng.getrandbits(128):032x}{suffix}"
    disk.rename(folder, name)
    return name

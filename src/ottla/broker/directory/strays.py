"""Names in a data directory that no broker's file or folder has, and folders in the place of files.

People keep other things in a data directory, too, or leave a copy of a log beside it. A broker leaves them alone, so
they are no damage; but who looks at the directory should know that nobody reads them.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from ottla.broker.directory.foreign import partition_of
from ottla.broker.disk import Disk, Folder, InTheWayError
from ottla.broker.metadata.end_mark import END_MARK
from ottla.broker.metadata.names import META_PROPERTIES, METADATA_TOPIC
from ottla.broker.runtime.directories import LOG_FILE
from ottla.broker.runtime.manifest import MANIFEST
from ottla.broker.told import Kind, Told
from ottla.log.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)

#: How many names a sentence lists.
_MOST_NAMES: Final = 10
_OWN_FILES: Final = frozenset(
    {
        META_PROPERTIES,
        MANIFEST,
        CLEAN_SHUTDOWN_MARKER,
        CLEANER_OFFSET_CHECKPOINT,
        HIGH_WATERMARK_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
        RECOVERY_POINT_CHECKPOINT,
        "bootstrap.checkpoint",
        ".lock",
    }
)
#: Beside the log's files in the metadata log's folder: ours, and those of Apache Kafka's quorum.
_METADATA_FILE: Final = re.compile(
    rf"({END_MARK}|quorum-state|\d{{20}}-\d{{10}}\.checkpoint(\.part|\.deleted)?)(\.tmp)?"
)
#: A partition that is being deleted, or moved between directories of Apache Kafka; its cache of remote indexes; and
#: what the file system itself makes.
_OTHER_FOLDER: Final = re.compile(r".+\.[0-9a-f]{32}-(delete|future)|remote-log-index-cache|lost\+found")
_SET_ASIDE: Final = re.compile(r"(.+)\.[0-9a-f]{32}-stray")


def strays(disk: Disk) -> Iterator[Told]:
    """A note for each folder with names that are no broker's, and what stands in the way of a file.

    StorageError when the system refuses to list a folder.
    """
    unknown = [name for name in disk.own_files().names() if name.removesuffix(".tmp") not in _OWN_FILES]
    for folder in disk.folders():
        set_aside = _SET_ASIDE.fullmatch(folder.name)
        if folder.name in _OWN_FILES:
            yield _in_the_way(folder.name)
        elif set_aside is not None:
            text = (
                f"{folder.name} is a stray partition: {set_aside[1]} belonged to no topic that the metadata log knows, "
                "so it was set aside. Nobody reads it: move it away, or delete it"
            )
            yield Told(Kind.NOTE, folder.name, text)
        elif partition_of(folder) is not None:
            yield from _in_partition(disk, folder)
        elif not _OTHER_FOLDER.fullmatch(folder.name):
            unknown.append(f"{folder.name}/")
    yield from _told("", unknown)


def _in_partition(disk: Disk, folder: Folder) -> Iterator[Told]:
    is_metadata = folder.name == f"{METADATA_TOPIC}-0"
    unknown = []
    for entry in disk.entries(folder.name) or ():
        is_known = LOG_FILE.fullmatch(entry.name) or (is_metadata and _METADATA_FILE.fullmatch(entry.name))
        if not is_known:
            unknown.append(entry.name if entry.is_file else f"{entry.name}/")
        elif not entry.is_file:
            yield _in_the_way(f"{folder.name}/{entry.name}")
    yield from _told(folder.name, unknown)


def _in_the_way(path: str) -> Told:
    return Told(Kind.IN_THE_WAY, path, str(InTheWayError(path)))


def _told(folder: str, names: Iterable[str]) -> Iterator[Told]:
    found = sorted(names)
    if not found:
        return
    listed = ", ".join(found[:_MOST_NAMES])
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    are = "is no file or folder" if len(found) == 1 else "are no files or folders"
    yield Told(Kind.NOTE, folder, f"{folder or 'the directory'}: {listed}{more} {are} of a broker: left alone")

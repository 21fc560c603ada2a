"""Folders in a data directory that are no partitions of the metadata: what we remove, set aside, or leave alone.

People may keep other things in a data directory too (`--data-dir .`). We only touch a folder that holds nothing but a
log's files. We only remove it if the log is empty or if the folder's name says that it is deleted.
"""

import logging
import re
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ottla.base.errors import StorageError
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.names import METADATA_TOPIC

_log = logging.getLogger(__name__)

_DELETED: Final = "-delete"
_STRAY: Final = "-stray"
#: `<partition>.<unique>-delete`, Kafka's form and ours.
_DELETED_NAME: Final = re.compile(r".+\.[0-9a-f]{32}-delete")
_LOG_FILE: Final = re.compile(
    r"(\d{20}\.(log|index|timeindex|txnindex|snapshot)(\.deleted|\.cleaned|\.swap)?"
    r"|leader-epoch-checkpoint|partition\.metadata|damaged-offsets)(\.tmp)?"
)


def must_be_free(path: Path) -> None:
    """StorageError if a new partition's directory holds files already."""
    try:
        found = next(path.iterdir(), None)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as fault:
        raise StorageError(f"{path} is there already, and cannot be looked at: {fault.strerror}") from None
    if found is not None:
        raise StorageError(f"{path} is there already, and not empty: move it away, or choose another topic name")


def mark_deleted(paths: Iterable[Path]) -> list[Path]:
    """Rename partitions' directories, to be deleted. Returns their new paths. May run in another thread."""
    marked = []
    for path in paths:
        try:
            marked.append(_rename(path, _DELETED))
        except OSError as fault:  # the topic is deleted in the metadata; the next start sets this aside
            _log.warning("%s cannot be removed: %s", path.name, fault.strerror)
    return marked


def remove_partition(path: Path) -> None:
    """Remove a log's files, and then the directory (or the link to it) if it is empty. What cannot go, stays."""
    with suppress(OSError):
        for file in path.iterdir():
            if _LOG_FILE.fullmatch(file.name) and not file.is_dir():
                file.unlink()
        path.unlink() if path.is_symlink() else path.rmdir()


def remove_directories(paths: Iterable[Path]) -> None:
    """Remove what `mark_deleted` renamed; may run in another thread."""
    for path in paths:
        remove_partition(path)


def must_hold_no_partitions(data_dir: Path) -> None:
    """StorageError if there are partitions although the metadata is empty: then the metadata log was lost."""
    for path in _entries(data_dir):
        name, _, number = path.name.rpartition("-")
        if name and name != METADATA_TOPIC and number.isdecimal() and _holds_records(path):
            raise StorageError(
                f"{data_dir} holds records ({path.name}), but its metadata log is empty: put {METADATA_TOPIC}-0 back "
                "from a copy, or move the partitions' directories away"
            )


def set_strays_aside(data_dir: Path, image: MetadataImage) -> None:
    """Rename directories of partitions that no topic has: the next topic with that name would get their records."""
    for path in _entries(data_dir):
        if path.is_symlink() or not path.is_dir():
            continue
        name, dash, number = path.name.rpartition("-")
        topic = image.topics.get(name)
        if _DELETED_NAME.fullmatch(path.name):
            remove_partition(path)
        elif not dash or not (number.isascii() and number.isdigit()) or name == METADATA_TOPIC:
            continue
        elif topic is None or int(number) >= len(topic.partitions):
            try:
                _set_aside(path)
            except OSError as fault:
                _log.warning("%s belongs to no topic, and cannot be looked at or renamed: %s", path, fault.strerror)


def _entries(data_dir: Path) -> list[Path]:
    try:
        return sorted(data_dir.iterdir())
    except OSError as fault:
        raise StorageError(f"data directory {data_dir}: {fault.strerror}") from None


def _set_aside(path: Path) -> None:
    files = list(path.iterdir())
    if not files:
        return
    if not all(_LOG_FILE.fullmatch(file.name) and file.is_file() for file in files):
        _log.warning("%s is no partition's directory: left as it is", path)
    elif _holds_records(path):
        _log.warning("%s belongs to no topic; kept as %s", path.name, _rename(path, _STRAY).name)
    else:
        remove_partition(path)  # an empty log: the broker was killed while it made the topic


def _holds_records(path: Path) -> bool:
    return any(_LOG_FILE.fullmatch(file.name) and file.stat().st_size for file in path.glob("*.log"))


def _rename(path: Path, suffix: str) -> Path:
    """As Kafka does: `<partition>.<unique>-delete`, cut to what a directory's name may hold."""
    return path.rename(path.with_name(f"{path.name[:200]}.{uuid.uuid4().hex}{suffix}"))

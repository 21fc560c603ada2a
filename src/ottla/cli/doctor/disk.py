"""A directory that has to be written: a broker's data, or Spark's scratch files."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from ottla.base.errors import StorageError
from ottla.cli.doctor.finding import Finding, error, ok, warning

#: Less free space than this is worth a word.
_LITTLE_BYTES = 1 << 30


def check_directory(check: str, directory: Path, advice: str) -> Finding:
    """Whether files can be made, synced and renamed in `directory`, or it can be made. Nothing is left behind."""
    there = directory
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return error(check, f"{directory}: {there} is not a directory", advice)
    try:
        _try_out(there)
    except OSError as fault:
        return error(check, f"{directory} cannot be written: {fault.strerror or fault}", advice)
    free = shutil.disk_usage(there).free
    room = f"{free / (1 << 30):.1f} GiB free"
    if free < _LITTLE_BYTES:
        return warning(check, f"{directory} can be written, but there is little room: {room}", "free some space")
    return ok(check, f"{directory} can be {'written' if there == directory else 'made'}, {room}")


def _try_out(directory: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".ottla-doctor-", dir=directory) as made:
        file = Path(made, "a")
        with file.open("wb") as stream:
            stream.write(b"ottla")
            stream.flush()
            os.fsync(stream.fileno())
        file.rename(Path(made, "b"))


def check_data_directory(directory: Path) -> Finding:
    """The data directory of a broker."""
    from ottla.broker.directory.reading import ReadOnlyDisk

    check, advice = "data-dir", "choose another --data-dir, or give this user the right to write there"
    if directory.is_dir() and (directory / ".lock").exists():
        disk = ReadOnlyDisk(directory)
        try:
            disk.lock()
            disk.unlock()
        except StorageError as taken:
            return warning(check, str(taken), "that broker may be yours; a second one needs another --data-dir")
    return check_directory(check, directory, advice)

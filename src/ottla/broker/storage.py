"""Storage in files: a data directory, and the partitions' folders in it. It implements the ports `Disk` and `Storage`.

A batch is written by one `pwritev` at a position that we keep, and read by `pread`. After a file's name is deleted, the
file stays readable as long as a Slice holds it. Small files are replaced by rename. A flush syncs the directory only if
a name in it has changed since the last sync.
"""

import fcntl
import mmap
import os
import shutil
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Final, Protocol

from ottla.base.errors import StorageError
from ottla.broker.disk import Entry, Folder, InTheWayError, Space
from ottla.log.storage import Buffer, SyncNote

LOCK_FILE: Final = ".lock"

#: A file is what `fstat` says of it: its path may become that of another one, and it may be renamed.
FileId = tuple[int, int]
#: Files whose sync was refused. The system may have dropped what they held, whoever has them open.
_DROPPED: Final[set[FileId]] = set()
#: How often that was.
_REFUSALS: Final[Counter[FileId]] = Counter()
#: Held for both of these, and by who cuts a file or writes a part of it again.
_CHANGING: Final = threading.Lock()
_WRITTEN_AGAIN_BYTES: Final = 1 << 20


class DiskFile:
    """An open file; its descriptor is closed by `close`, or when nobody holds the object any more."""

    __slots__ = ("__weakref__", "_close", "_descriptor", "_has_rest", "_id", "_path", "_size_bytes", "_syncing", "made")

    def __init__(self, path: str, *, create: bool, is_writable: bool = True) -> None:
        flags = (os.O_RDWR if is_writable else os.O_RDONLY) | os.O_CLOEXEC
        #: Whether this call has created the file.
        self.made = False
        try:
            try:
                self._descriptor = os.open(path, flags)
            except FileNotFoundError:
                if not create:
                    raise
                self._descriptor = os.open(path, flags | os.O_CREAT, 0o644)
                self.made = True
        except IsADirectoryError:
            raise InTheWayError(path) from None
        except OSError as fault:
            raise StorageError(f"{path}: {fault.strerror}") from fault
        found = os.fstat(self._descriptor)
        self._id: FileId = found.st_dev, found.st_ino
        if self.made:  # what had this number before is gone
            _DROPPED.discard(self._id)
        self._path = path
        #: Held by the thread that syncs: the system tells one of two that their bytes are not on the device.
        self._syncing = threading.Lock()
        self._size_bytes = found.st_size
        #: Behind these bytes may be others, of an append that was refused in its middle.
        self._has_rest = False
        self._close = weakref.finalize(self, os.close, self._descriptor)

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def append(self, buffers: Sequence[Buffer]) -> None:
        position, wanted_bytes = self._size_bytes, sum(map(len, buffers))
        try:
            written_bytes = os.pwritev(self._descriptor, buffers, position)
            if written_bytes != wanted_bytes:
                self._write_rest(b"".join(buffers), written_bytes)
        except OSError as fault:
            self._has_rest = True
            with suppress(OSError):  # else before nothing comes behind it any more (`Segment.end`)
                self._cut(position)
            raise StorageError(f"{self._path}: {fault.strerror}") from fault
        self._size_bytes = position + wanted_bytes

    def _write_rest(self, data: bytes, written_bytes: int) -> None:
        position = self._size_bytes
        while written_bytes < len(data):
            written_bytes += os.pwrite(self._descriptor, data[written_bytes:], position + written_bytes)

    def read(self, position: int, length_bytes: int) -> bytes:
        try:
            return os.pread(self._descriptor, length_bytes, position)
        except OSError as fault:
            raise StorageError(f"{self._path}: {fault.strerror}") from fault

    @contextmanager
    def map(self) -> Iterator[memoryview]:
        if self._size_bytes == 0:
            yield memoryview(b"")
            return
        try:
            mapping = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as fault:  # ValueError: another program has emptied the file
            raise StorageError(f"{self._path}: cannot be mapped: {fault}") from fault
        with mapping as mapped:
            mapped.madvise(mmap.MADV_SEQUENTIAL)
            with memoryview(mapped) as view:
                yield view

    def truncate(self, size_bytes: int) -> None:
        if size_bytes != self._size_bytes or self._has_rest:
            try:
                with _CHANGING:
                    self._cut(size_bytes)
            except OSError as fault:
                raise StorageError(f"{self._path}: {fault.strerror}") from fault

    def _cut(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)
        self._size_bytes, self._has_rest = size_bytes, False

    def sync(self) -> None:
        with self._syncing:
            if self._descriptor < 0:
                raise StorageError(f"{self._path}: it is closed")
            refusals = _REFUSALS[self._id]
            self._must_be_written(refusals)
            try:
                os.fdatasync(self._descriptor)
            except OSError as fault:
                with _CHANGING:
                    _DROPPED.add(self._id)
                    _REFUSALS[self._id] += 1
                raise StorageError(f"{self._path}: {fault.strerror}") from fault
            self._must_be_written(refusals)  # another handle of the file may have been refused meanwhile

    def _must_be_written(self, refusals: int) -> None:
        if self._id in _DROPPED or _REFUSALS[self._id] != refusals:
            raise StorageError(f"{self._path}: a sync was refused, and the file has not been written again yet")

    def write_again(self) -> None:
        if self._id not in _DROPPED:
            return
        refusals = _REFUSALS[self._id]
        try:
            for begin in range(0, self._size_bytes, _WRITTEN_AGAIN_BYTES):
                with _CHANGING:
                    self._write_part_again(begin)
        except OSError as fault:
            raise StorageError(f"{self._path}: {fault.strerror}") from fault
        with _CHANGING:
            if _REFUSALS[self._id] == refusals:
                _DROPPED.discard(self._id)

    def _write_part_again(self, begin: int) -> None:
        """Not behind where the file ends by now, also through another handle."""
        size_bytes = min(self._size_bytes, os.fstat(self._descriptor).st_size)
        left = os.pread(self._descriptor, max(min(_WRITTEN_AGAIN_BYTES, size_bytes - begin), 0), begin)
        position = begin
        while left:
            written = os.pwrite(self._descriptor, left, position)
            left, position = left[written:], position + written

    def suspect(self) -> None:
        _DROPPED.add(self._id)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        self._close()
        self._descriptor = -1  # its number may be that of another file by now


class OpenFile(Protocol):
    """Opens a file for a DirectoryStorage: `DiskFile`, or what a test puts in its place."""

    def __call__(self, path: str, /, *, create: bool) -> DiskFile: ...


class FolderNames:
    """The folders' names in a directory: one sync of it serves all folders that were there before. Threads share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = count(1)
        self._newest = self._synced = 0
        self._syncing = threading.Lock()

    def came(self) -> int:
        """There is a folder whose name the device may not know. Its number, for `sync`."""
        self._newest = next(self._numbers)
        return self._newest

    def sync(self, number: int) -> None:
        """Return once the device knows this name. StorageError when it refuses."""
        with self._syncing:  # who waits here finds it done
            newest = self._newest
            if self._synced < number:
                sync_directory(self._path)
                self._synced = max(newest, number)

    def sync_all(self) -> None:
        """Sync the directory in any case: a name may be gone from it, or be of another folder."""
        newest = self._newest
        sync_directory(self._path)
        self._synced = max(newest, self._synced)


class DirectoryStorage:
    """A partition's directory, made when it is not there. StorageError where the system refuses."""

    def __init__(self, path: Path, open_file: OpenFile = DiskFile, names: FolderNames | None = None) -> None:
        """`names` are those of the directory that has this one: others of it share them."""
        self.path = path
        self._open_file = open_file
        # Plain strings and no Path below: the difference shows when ten thousand partitions are made at once.
        self._prefix = f"{path}/"
        #: The number of the last change of a name, and of the last change that is certainly on the device. There is one
        #: to sync at first: the process before this one may have crashed. Two threads may change names and sync them.
        self._numbers = count(2)
        self._changed, self._synced = 1, 0
        self.sync_note = SyncNote(threading.Lock())
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise StorageError(f"{path}: {fault.strerror}") from fault
        self._siblings = FolderNames(path.parent) if names is None else names
        #: Of the directory's own name, which may be missing on the device.
        self._number = self._siblings.came()

    def names(self) -> list[str]:
        try:
            with os.scandir(self._prefix) as entries:
                return sorted(entry.name for entry in entries if entry.is_file())
        except OSError as fault:
            raise StorageError(f"{self._prefix}: {fault.strerror}") from fault

    def open(self, name: str, *, create: bool = False) -> DiskFile:
        file = self._open_file(self._prefix + name, create=create)
        if file.made:
            self._changed = next(self._numbers)
        return file

    def read(self, name: str) -> bytes | None:
        try:
            with open(self._prefix + name, "rb", buffering=0) as file:  # noqa: PTH123
                return file.readall()
        except FileNotFoundError:
            return None
        except IsADirectoryError:
            raise InTheWayError(f"{self._prefix}{name}") from None
        except OSError as fault:
            raise StorageError(f"{self._prefix}{name}: {fault.strerror}") from fault

    def write(self, name: str, content: Buffer, *, sync: bool = True) -> None:
        target = self._prefix + name
        draft = f"{target}.tmp"
        try:
            with open(draft, "wb") as file:  # noqa: PTH123
                file.write(content)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(draft, target)  # noqa: PTH105
        except IsADirectoryError:
            raise InTheWayError(target) from None
        except OSError as fault:
            raise StorageError(f"{target}: {fault.strerror}") from fault
        self._changed = next(self._numbers)
        if sync:
            self.sync_names()

    def delete(self, name: str) -> None:
        self.unmark(name)
        self._changed = next(self._numbers)

    def rename(self, name: str, to: str) -> None:
        try:
            os.replace(self._prefix + name, self._prefix + to)  # noqa: PTH105
        except IsADirectoryError:
            raise InTheWayError(self._prefix + to) from None
        except OSError as fault:
            raise StorageError(f"{self._prefix}{name}: {fault.strerror}") from fault
        self._changed = next(self._numbers)

    def mark(self, name: str) -> None:
        path = self._prefix + name
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        except IsADirectoryError:
            raise InTheWayError(path) from None
        except OSError as fault:
            if not isinstance(fault, FileNotFoundError):  # the directory is gone
                raise StorageError(f"{path}: {fault.strerror}") from fault

    def unmark(self, name: str) -> None:
        try:
            os.unlink(self._prefix + name)  # noqa: PTH108
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            raise InTheWayError(f"{self._prefix}{name}") from None
        except OSError as fault:
            raise StorageError(f"{self._prefix}{name}: {fault.strerror}") from fault

    def sync_names(self) -> None:
        # It counts as synced only afterwards: another thread that wants the same must not return before.
        changed = self._changed
        if self._synced < changed:
            sync_directory(self.path)
            self._synced = changed
        self._siblings.sync(self._number)

    def modified_ms(self, name: str) -> int:
        try:
            return os.stat(self._prefix + name).st_mtime_ns // 1_000_000  # noqa: PTH116
        except OSError as fault:
            raise StorageError(f"{self._prefix}{name}: {fault.strerror}") from fault

    def set_modified_ms(self, name: str, modified_ms: int) -> None:
        try:
            os.utime(self._prefix + name, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        except OSError as fault:
            raise StorageError(f"{self._prefix}{name}: {fault.strerror}") from fault


class DirectoryDisk:
    """A data directory (the port `Disk`)."""

    def __init__(self, path: Path, open_file: OpenFile = DiskFile) -> None:
        self.path = path
        self._open_file = open_file
        self._folder_names = FolderNames(path)
        self._lock: IO[bytes] | None = None

    def __str__(self) -> str:
        return str(self.path)

    def lock(self) -> None:
        try:
            new = [path for path in (self.path, *self.path.parents) if not path.exists()]
            self.path.mkdir(0o700, parents=True, exist_ok=True)  # it has records, and what proves users' passwords
            lock = (self.path / LOCK_FILE).open("ab")
        except OSError as fault:
            raise StorageError(f"data directory {self.path}: {fault.strerror}") from None
        for path in new:
            sync_directory(path.parent)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Apache Kafka locks the same file in this way
        except OSError:
            lock.close()
            raise StorageError(f"data directory {self.path} is in use by another broker") from None
        self._lock = lock

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def own_files(self) -> DirectoryStorage:
        return DirectoryStorage(self.path, self._open_file)

    def open_folder(self, name: str) -> DirectoryStorage:
        return DirectoryStorage(self.path / name, self._open_file, self._folder_names)

    def folders(self) -> list[Folder]:
        with self._telling(""), os.scandir(self.path) as found:
            return sorted(Folder(each.name, each.is_symlink()) for each in found if each.is_dir())

    def entries(self, folder: str) -> list[Entry] | None:
        with self._telling(folder):
            try:
                with os.scandir(self.path / folder) as found:
                    return sorted(
                        Entry(each.name, each.is_file(), each.stat(follow_symlinks=False).st_size) for each in found
                    )
            except (FileNotFoundError, NotADirectoryError):
                return None

    def delete(self, folder: str, file: str) -> None:
        with self._telling(folder):
            (self.path / folder / file).unlink()

    def remove(self, folder: str) -> None:
        path = self.path / folder
        with self._telling(folder):
            path.unlink() if path.is_symlink() else path.rmdir()

    def rename(self, folder: str, name: str) -> None:
        with self._telling(folder):
            (self.path / folder).rename(self.path / name)

    def sync_names(self) -> None:
        self._folder_names.sync_all()

    def space(self) -> Space:
        with self._telling(""):
            usage = shutil.disk_usage(self.path)
        return Space(usage.total, usage.free)

    @contextmanager
    def _telling(self, folder: str) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            raise StorageError(f"{self.path / folder}: {fault.strerror}") from fault


def sync_directory(path: Path) -> None:
    """Return once every change of the directory's names is on the device."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as fault:
        raise StorageError(f"{path}: {fault.strerror}") from fault

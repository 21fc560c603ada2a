"""A disk that keeps every change to itself: recovery runs on it, and the directory below stays as it is.

Reading goes to the disk below. What is written, cut, removed or renamed is remembered here, and `changes` says what a
start would have left. Bytes that are written are in memory up to a megabyte a file, then in a temporary file outside
the directory; so a log of any size can be looked at.
"""

import mmap
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from enum import Enum
from tempfile import SpooledTemporaryFile
from typing import IO, Final, NamedTuple

from ottla.base.errors import StorageError
from ottla.broker.disk import Disk, Entry, Folder, InTheWayError, Space
from ottla.log.storage import Buffer, File, Storage, SyncNote

#: Bytes of one file that are kept in memory.
_MEMORY_BYTES: Final = 1_048_576
#: How much of two files is compared at once.
_STEP_BYTES: Final = 1_048_576


class Action(Enum):
    """What would be done to a file or a folder."""

    MADE = "made"
    REMOVED = "removed"
    CUT = "cut"
    APPENDED = "appended to"
    REPLACED = "replaced"
    RENAMED = "renamed"


class Change(NamedTuple):
    """One file or folder that would be changed."""

    action: Action
    #: Below the data directory.
    path: str
    #: The file's size before and after; 0 where there is no file.
    before_bytes: int = 0
    after_bytes: int = 0
    #: The new name of a folder.
    name: str = ""


class _Node:
    """A file as it would be: the first bytes of a file below, and what was written behind them."""

    __slots__ = ("kept_bytes", "lower", "origin", "tail", "tail_bytes")

    def __init__(self, lower: File | None, origin: str = "") -> None:
        #: The name of the file below.
        self.origin = origin
        #: A handle of the file below, for as long as some of its bytes are kept.
        self.lower = lower
        self.kept_bytes = 0 if lower is None else lower.size_bytes
        self.tail: IO[bytes] | None = None
        self.tail_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self.kept_bytes + self.tail_bytes

    def append(self, data: Buffer) -> None:
        try:
            if self.tail is None:
                self.tail = SpooledTemporaryFile(_MEMORY_BYTES)  # noqa: SIM115
            self.tail.seek(self.tail_bytes)
            self.tail.write(data)
        except OSError as fault:
            raise StorageError(f"no room for a temporary file ({fault.strerror}): set TMPDIR") from fault
        self.tail_bytes += len(data)

    def read(self, position: int, length_bytes: int) -> bytes:
        found = b""
        if self.lower is not None and position < self.kept_bytes:
            found = self.lower.read(position, min(length_bytes, self.kept_bytes - position))
        at = max(position - self.kept_bytes, 0)
        if self.tail is None or len(found) == length_bytes or at >= self.tail_bytes:
            return found
        self.tail.seek(at)
        return found + self.tail.read(min(length_bytes - len(found), self.tail_bytes - at))

    def truncate(self, size_bytes: int) -> None:
        if size_bytes < self.size_bytes:
            self.tail_bytes = max(size_bytes - self.kept_bytes, 0)
            self.kept_bytes = min(self.kept_bytes, size_bytes)


class OverlayFile:
    """A handle of one file (the port `File`)."""

    def __init__(self, node: _Node) -> None:
        self._node = node

    @property
    def size_bytes(self) -> int:
        return self._node.size_bytes

    def append(self, buffers: Sequence[Buffer]) -> None:
        for each in buffers:
            self._node.append(each)

    def read(self, position: int, length_bytes: int) -> bytes:
        return self._node.read(position, length_bytes)

    @contextmanager
    def map(self) -> Iterator[memoryview]:
        node = self._node
        if node.lower is not None and node.tail_bytes == 0:
            with node.lower.map() as view, view[: node.kept_bytes] as kept:
                yield kept
        elif node.size_bytes <= _MEMORY_BYTES:
            yield memoryview(node.read(0, node.size_bytes))
        else:
            with _one_file(node) as view:
                yield view

    def truncate(self, size_bytes: int) -> None:
        self._node.truncate(size_bytes)

    def sync(self) -> None:
        """Does nothing: nothing of this is to stay."""

    def write_again(self) -> None:
        """Does nothing, like `sync`."""

    def suspect(self) -> None:
        """Does nothing, like `sync`."""

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        """Close the handle of the file below. It is opened again when it is needed."""
        if self._node.lower is not None:
            self._node.lower.close()


@contextmanager
def _one_file(node: _Node) -> Iterator[memoryview]:
    """All bytes of a large file that has grown, in a temporary file of its own."""
    with SpooledTemporaryFile(1) as whole:
        for position in range(0, node.size_bytes, _STEP_BYTES):
            whole.write(node.read(position, _STEP_BYTES))
        whole.rollover()
        whole.flush()
        with mmap.mmap(whole.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            yield view


class _LazyFile:
    """A file below that is opened when it is read, and again after it was closed."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._name = name
        self._file: File | None = None

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._storage.open(self._name)
        return self._file

    @property
    def size_bytes(self) -> int:
        return self._opened().size_bytes

    def read(self, position: int, length_bytes: int) -> bytes:
        return self._opened().read(position, length_bytes)

    @contextmanager
    def map(self) -> Iterator[memoryview]:
        with self._opened().map() as view:
            yield view

    def append(self, buffers: Sequence[Buffer]) -> None:
        raise StorageError(f"{self._name}: nothing is written to the directory")

    def truncate(self, size_bytes: int) -> None:
        raise StorageError(f"{self._name}: nothing in the directory is cut")

    def sync(self) -> None:
        """Does nothing: nothing was written."""

    def write_again(self) -> None:
        """Does nothing, like `sync`."""

    def suspect(self) -> None:
        """Does nothing, like `sync`."""

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class OverlayStorage:
    """A folder's files, or the directory's own (the port `Storage`)."""

    def __init__(self, below: Storage | None, now_ms: int, where: str = "", occupied: Collection[str] = ()) -> None:
        """`occupied`: names below that no file has; the system would refuse them. `where`: the folder's path."""
        self._below = below
        self._where = where
        self._occupied = frozenset(occupied)
        self._now_ms = now_ms
        self.sync_note = SyncNote(nullcontext())
        #: Times that were set, or taken along.
        self._modified_ms: dict[str, int] = {}
        #: The names that are there; None for a file that nobody has opened yet.
        self._nodes: dict[str, _Node | None] = dict.fromkeys(below.names() if below is not None else ())

    def names(self) -> list[str]:
        return sorted(self._nodes)

    def open(self, name: str, *, create: bool = False) -> OverlayFile:
        self._must_be_free(name)
        if name not in self._nodes:
            if not create:
                raise StorageError(f"{name}: No such file or directory")
            self._nodes[name] = _Node(None)
        return OverlayFile(self._node(name))

    def _must_be_free(self, name: str) -> None:
        if name in self._occupied:
            raise InTheWayError(f"{self._where}/{name}")

    def _node(self, name: str) -> _Node:
        node = self._nodes[name]
        if node is None:
            assert self._below is not None
            node = self._nodes[name] = _Node(_LazyFile(self._below, name), name)
        return node

    def read(self, name: str) -> bytes | None:
        self._must_be_free(name)
        if name not in self._nodes:
            return None
        file = self.open(name)
        try:
            return file.read(0, file.size_bytes)
        finally:
            file.close()

    def write(self, name: str, content: Buffer, *, sync: bool = True) -> None:
        self.delete(name)
        node = self._nodes[name] = _Node(None)
        node.append(content)

    def delete(self, name: str) -> None:
        self._must_be_free(name)
        self._nodes.pop(name, None)
        self._modified_ms.pop(name, None)

    def rename(self, name: str, to: str) -> None:
        if name not in self._nodes:
            raise StorageError(f"{name}: No such file or directory")
        self._must_be_free(to)
        modified_ms = self.modified_ms(name)
        self._node(name)  # it goes on reading from the file that it was
        self._nodes[to] = self._nodes[name]
        self._modified_ms[to] = modified_ms
        self.delete(name)

    def mark(self, name: str) -> None:
        """Does nothing: there is no next process."""

    def unmark(self, name: str) -> None:
        self.delete(name)

    def sync_names(self) -> None:
        """Does nothing: nothing of this is to stay."""

    def modified_ms(self, name: str) -> int:
        if name in self._modified_ms:
            return self._modified_ms[name]
        node = self._nodes[name]
        if self._below is not None and (node is None or node.lower is not None):
            return self._below.modified_ms(name)
        return self._now_ms

    def set_modified_ms(self, name: str, modified_ms: int) -> None:
        self._modified_ms[name] = modified_ms

    def size_of(self, name: str) -> int:
        """Bytes in a file."""
        file = self.open(name)
        try:
            return file.size_bytes
        finally:
            file.close()

    def changes(self, prefix: str) -> Iterator[Change]:
        """What would be changed; paths begin with `prefix`."""
        before = set(self._below.names()) if self._below is not None else set()
        for name in sorted(before | self._nodes.keys()):
            path = prefix + name
            node = self._nodes.get(name)
            if name not in self._nodes:
                assert self._below is not None
                yield Change(Action.REMOVED, path, _size(self._below, name), 0)
            elif name not in before:
                yield Change(Action.MADE, path, 0, 0 if node is None else node.size_bytes)
            elif node is not None:
                assert self._below is not None
                action, size_bytes = _compared(node, self._below, name)
                if action is not None:
                    yield Change(action, path, size_bytes, node.size_bytes)


def _size(storage: Storage, name: str) -> int:
    file = storage.open(name)
    try:
        return file.size_bytes
    finally:
        file.close()


def _compared(node: _Node, below: Storage, name: str) -> tuple[Action | None, int]:
    """What has become of a file, None if it is as it was; and how large it was."""
    file = below.open(name)
    try:
        size_bytes = file.size_bytes
        common = min(size_bytes, node.size_bytes)
        same = node.kept_bytes if node.origin == name else 0
        for position in range(same, common, _STEP_BYTES):
            length = min(_STEP_BYTES, common - position)
            if file.read(position, length) != node.read(position, length):
                return Action.REPLACED, size_bytes
        if node.size_bytes == size_bytes:
            return None, size_bytes
        return (Action.CUT if node.size_bytes < size_bytes else Action.APPENDED), size_bytes
    finally:
        file.close()
        if node.lower is not None:
            node.lower.close()


class OverlayDisk:
    """A data directory (the port `Disk`). The caller holds the lock of the disk below."""

    def __init__(self, below: Disk, now_ms: int, opening: Callable[[str], None] = lambda folder: None) -> None:
        """`opening` hears each folder that is opened: recovery of a large one takes its time."""
        self._below = below
        self._opening = opening
        self._now_ms = now_ms
        folders = below.folders()
        self._own = OverlayStorage(below.own_files(), now_ms, str(below), {each.name for each in folders})
        #: The folders that are there, by name: the name below, or None for a new one.
        self._folders: dict[str, Folder | None] = {each.name: each for each in folders}
        #: The folders that were opened.
        self._opened: dict[str, OverlayStorage] = {}

    def __str__(self) -> str:
        return str(self._below)

    def lock(self) -> None:
        """Does nothing: nobody else sees this."""

    def unlock(self) -> None:
        """Does nothing."""

    def own_files(self) -> OverlayStorage:
        return self._own

    def open_folder(self, name: str) -> OverlayStorage:
        found = self._opened.get(name)
        if found is None:
            self._opening(name)
            origin = self._folders.setdefault(name, None)
            storage = None if origin is None else self._below.open_folder(origin.name)
            entries = (self._below.entries(origin.name) or []) if origin is not None else []
            occupied = {entry.name for entry in entries if not entry.is_file}
            found = self._opened[name] = OverlayStorage(storage, self._now_ms, f"{self}/{name}", occupied)
        return found

    def folders(self) -> list[Folder]:
        return sorted(Folder(name, origin is not None and origin.is_link) for name, origin in self._folders.items())

    def entries(self, folder: str) -> list[Entry] | None:
        if folder not in self._folders:
            return None
        origin, opened = self._folders[folder], self._opened.get(folder)
        there = (self._below.entries(origin.name) or []) if origin is not None else []
        if opened is None:
            return there
        others = [entry for entry in there if not entry.is_file]
        return sorted([*others, *(Entry(name, True, opened.size_of(name)) for name in opened.names())])

    def delete(self, folder: str, file: str) -> None:
        self.open_folder(folder).delete(file)

    def remove(self, folder: str) -> None:
        origin = self._folders.get(folder)
        if self.entries(folder) and not (origin is not None and origin.is_link):
            raise StorageError(f"{self}/{folder}: Directory not empty")
        self._folders.pop(folder, None)
        self._opened.pop(folder, None)

    def rename(self, folder: str, name: str) -> None:
        if folder not in self._folders:
            raise StorageError(f"{self}/{folder}: No such file or directory")
        self._folders[name] = self._folders.pop(folder)
        if folder in self._opened:
            self._opened[name] = self._opened.pop(folder)

    def sync_names(self) -> None:
        """Does nothing: nothing of this is to stay."""

    def space(self) -> Space:
        return self._below.space()

    def changes(self) -> Iterator[Change]:
        """Every file and folder that would be changed, the directory's own files first."""
        yield from self._own.changes("")
        kept = {origin.name for origin in self._folders.values() if origin is not None}
        for folder in self._below.folders():
            if folder.name not in kept:
                yield Change(Action.REMOVED, folder.name)
        for name, origin in sorted(self._folders.items()):
            if origin is None:
                yield Change(Action.MADE, name)
            elif origin.name != name:
                yield Change(Action.RENAMED, origin.name, name=name)
            if name in self._opened:
                yield from self._opened[name].changes(f"{name}/")

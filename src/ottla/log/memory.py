"""Storage in memory, for tests and the simulator: it can run full, tear a write, and die in two ways.

    storage.after_kill()                          the process died: every byte that was written is there
    storage.after_power_loss(keep, keep_name)     the machine died: `keep` says for each file how many unsynced bytes
                                                  are there. Names that were made, replaced or deleted after the last
                                                  `sync_names` are as before, unless `keep_name` says otherwise

Both give a new storage, as the next process finds it. `limit_bytes` makes writes fail like a full disk; `refuses`
makes any call fail with StorageError, as a broken disk or a missing permission does; `tear_next` makes the next append
write only that many bytes and then kill the process (CrashedError).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from ottla.base.errors import OttlaError, StorageError
from ottla.log.storage import Buffer, SyncNote


class CrashedError(OttlaError):
    """The simulated process is dead; go on with `after_kill` or `after_power_loss`."""


class MemoryFile:
    """One file: its bytes, and how many of them are on the device."""

    def __init__(
        self, owner: "MemoryStorage", name: str, content: Buffer = b"", synced_bytes: int | None = None
    ) -> None:
        self.owner = owner
        self.name = name
        self.content = bytearray(content)
        self.synced_bytes = len(content) if synced_bytes is None else synced_bytes
        #: When it was written, if somebody has said so.
        self.modified_ms: int | None = None
        #: A sync was refused, and this process knows it.
        self.has_dropped = False
        #: The system takes what it could not write for clean: no sync brings it to the device, in this process or in
        #: the next one, until it is written again.
        self.lacks_dropped = False

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    def append(self, buffers: Sequence[Buffer]) -> None:
        self.owner.check("append", self.name)
        data = b"".join(buffers)
        self.owner.check_write(self, data)
        self.content += data

    def read(self, position: int, length_bytes: int) -> bytes:
        self.owner.check("read", self.name)
        if position < 0:
            raise StorageError(f"{self.name}: Invalid argument")
        return bytes(self.content[position : position + length_bytes])

    @contextmanager
    def map(self) -> Iterator[memoryview]:
        self.owner.check("map", self.name)
        with memoryview(bytes(self.content)) as view:
            yield view

    def truncate(self, size_bytes: int) -> None:
        if size_bytes == self.size_bytes:
            return
        self.owner.check("truncate", self.name)
        del self.content[size_bytes:]
        self.synced_bytes = min(self.synced_bytes, size_bytes)

    def sync(self) -> None:
        self._must_be_written()
        try:
            self.owner.check("sync", self.name)
        except StorageError:
            self.has_dropped = self.lacks_dropped = True
            raise
        self._must_be_written()  # another thread may have been refused meanwhile
        if not self.lacks_dropped:
            self.synced_bytes = len(self.content)

    def _must_be_written(self) -> None:
        if self.has_dropped:
            raise StorageError(f"{self.name}: a sync was refused, and the file has not been written again yet")

    def write_again(self) -> None:
        if self.has_dropped:
            self.owner.check("append", self.name)
            self.has_dropped = self.lacks_dropped = False

    def suspect(self) -> None:
        self.has_dropped = True

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        """Does nothing: there is no handle to close."""


class MemoryStorage:
    """A partition's directory in memory. See the top of the file."""

    def __init__(self, *, limit_bytes: int | None = None, now_ms: int = 0) -> None:
        self.sync_note = SyncNote(nullcontext())
        self.files: dict[str, MemoryFile] = {}
        #: The names as they are on the device.
        self._synced_files: dict[str, MemoryFile] = {}
        self.limit_bytes = limit_bytes
        self.now_ms = now_ms
        #: Whether the disk refuses a call, by the method's name and the file's ("" for `names`); None: it refuses none.
        self.refuses: Callable[[str, str], bool] | None = None
        #: Bytes that the next append still writes before the process dies; None: it lives.
        self.tear_next: int | None = None

    def names(self) -> list[str]:
        self.check("names", "")
        return sorted(self.files)

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        self.check("open", name)
        file = self.files.get(name)
        if file is None:
            if not create:
                raise StorageError(f"{name}: no such file")
            file = self.files[name] = MemoryFile(self, name)
        return file

    def read(self, name: str) -> bytes | None:
        self.check("read", name)
        file = self.files.get(name)
        return None if file is None else bytes(file.content)

    def write(self, name: str, content: Buffer, *, sync: bool = True) -> None:
        self.check("write", name)
        old = self.files.get(name)
        self._check_room(len(content) - (0 if old is None else old.size_bytes))
        file = self.files[name] = MemoryFile(self, name, content)
        if sync:
            self.sync_names()
        else:
            file.synced_bytes = 0

    def delete(self, name: str) -> None:
        self.check("delete", name)
        self.files.pop(name, None)

    def rename(self, name: str, to: str) -> None:
        self.check("rename", name)
        if name not in self.files:
            raise StorageError(f"{name}: no such file")
        self.files[to] = self.files.pop(name)

    def modified_ms(self, name: str) -> int:
        self.check("modified_ms", name)
        if name not in self.files:
            raise StorageError(f"{name}: no such file")
        modified_ms = self.files[name].modified_ms
        return self.now_ms if modified_ms is None else modified_ms

    def set_modified_ms(self, name: str, modified_ms: int) -> None:
        self.check("set_modified_ms", name)
        self.open(name).modified_ms = modified_ms

    def mark(self, name: str) -> None:
        self.check("mark", name)
        if name not in self.files:
            self.files[name] = MemoryFile(self, name)

    def unmark(self, name: str) -> None:
        self.check("unmark", name)
        self.files.pop(name, None)

    def sync_names(self) -> None:
        self.check("sync_names", "")
        self._synced_files = dict(self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes in all files."""
        return sum(file.size_bytes for file in self.files.values())

    def check(self, action: str, name: str) -> None:
        """For the files: fail as was asked for."""
        if self.refuses is not None and self.refuses(action, name):
            raise StorageError(f"{name}: the disk refuses to {action}")

    def check_write(self, file: MemoryFile, data: bytes) -> None:
        """For the files: fail, or die, as was asked for."""
        if self.tear_next is not None:
            file.content += data[: self.tear_next]
            raise CrashedError(f"died after {self.tear_next} of {len(data)} bytes")
        self._check_room(len(data))

    def _check_room(self, more_bytes: int) -> None:
        if self.limit_bytes is not None and self.size_bytes + more_bytes > self.limit_bytes:
            raise StorageError(f"no space left: {self.size_bytes} of {self.limit_bytes} bytes are used")

    def adopt(self, other: "MemoryStorage") -> None:
        """Take over the files of `other`, which is not used any more."""
        self.files, self._synced_files = other.files, other._synced_files
        for file in {*self.files.values(), *self._synced_files.values()}:
            file.owner = self

    def after_kill(self) -> "MemoryStorage":
        """What the next process finds after kill -9. Bytes that are not on the device can be lost by a later loss of
        power."""
        copies: dict[MemoryFile, MemoryFile] = {}
        left = MemoryStorage(limit_bytes=self.limit_bytes, now_ms=self.now_ms)
        for mine, its in ((self.files, left.files), (self._synced_files, left._synced_files)):
            for name, file in mine.items():
                copied = its[name] = copies.setdefault(file, MemoryFile(left, name, file.content, file.synced_bytes))
                copied.lacks_dropped = file.lacks_dropped
        return left

    def after_power_loss(
        self, keep: Callable[[str, int, int], int], keep_name: Callable[[str], bool] = lambda name: False
    ) -> "MemoryStorage":
        """What the next process finds after a loss of power.

        `keep(name, synced, size)` is a length between the two. `keep_name` is asked about each name that has changed
        since the last `sync_names`.
        """
        left = MemoryStorage(limit_bytes=self.limit_bytes, now_ms=self.now_ms)
        renamed = self._renamed(keep_name)
        for name in sorted(self.files.keys() | self._synced_files.keys()):
            file, before = self.files.get(name), self._synced_files.get(name)
            as_renamed = renamed.get(name)
            if file is not before and not (keep_name(name) if as_renamed is None else as_renamed):
                file = before
            if file is not None:
                kept_bytes = keep(name, file.synced_bytes, file.size_bytes)
                left.files[name] = MemoryFile(left, name, file.content[:kept_bytes])
        left._synced_files = dict(left.files)
        return left

    def _renamed(self, keep_name: Callable[[str], bool]) -> dict[str, bool]:
        """Whether the device has a rename: it is one change, of two names."""
        places = {file: name for name, file in self.files.items()}
        kept = {}
        for name, file in sorted(self._synced_files.items()):
            to = places.get(file, name)
            if to != name:
                kept[name] = kept[to] = keep_name(to)
        return kept

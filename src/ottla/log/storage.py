"""The port to one partition's directory: the log decides, a Storage holds the bytes.

`broker/storage.py` implements it with files, `log/memory.py` in memory with crashes. A File is only ever appended to or
cut; nothing is overwritten, so a reader that holds a Slice sees the same bytes until it lets go.

To a disk, a file's bytes and its name are two things. After `File.sync` the bytes are on the device. That there is a
file with this name is certain only after `Storage.sync_names`. So before the recovery point may move, both are needed.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import NamedTuple, Protocol

from ottla.base.errors import StorageError
from ottla.log.names import UNFINISHED_SYNC

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """One open file. After its name is deleted it stays readable as long as somebody holds it.

    Every method raises StorageError where the system refuses.
    """

    @property
    def size_bytes(self) -> int:
        """Bytes in the file, the next append's position."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write `buffers` one after the other at the end, as one write where the system can.

        StorageError when not all of them could be written; the file is then as long as before.
        """
        ...

    def read(self, position: int, length_bytes: int) -> bytes:
        """Up to `length_bytes` from `position`; shorter at the end of the file."""
        ...

    def map(self) -> AbstractContextManager[memoryview]:
        """The whole file as memory, for a scan; invalid once the context is left."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to `size_bytes`."""
        ...

    def sync(self) -> None:
        """Return once everything written is on the device. May be called from another thread, and from several.

        StorageError when the system refuses; and from then on until `write_again`, also to who was about to sync.
        """
        ...

    def write_again(self) -> None:
        """After a sync that was refused, and before the next: write what the system may have dropped. Else a no-op.

        Linux takes pages that it could not write for clean: the next sync would succeed without them, in whichever
        thread. May be called from another thread: what the file's owner appends or cuts meanwhile stays as it is.
        """
        ...

    def suspect(self) -> None:
        """An earlier process may have been refused a sync: have `write_again` write the file."""
        ...

    def fileno(self) -> int:
        """Descriptor for os.sendfile, or -1 where there is none."""
        ...

    def close(self) -> None:
        """Close the file: it can be neither read nor written any more. No-op when it is closed already."""
        ...


class Storage(Protocol):
    """The files of one partition, by name (no folders). Every method raises StorageError where the system refuses."""

    @property
    def sync_note(self) -> "SyncNote":
        """Around every sync of a file."""
        ...

    def names(self) -> list[str]:
        """Every file's name, sorted."""
        ...

    def open(self, name: str, *, create: bool = False) -> File:
        """Open a file; one that is missing and not to be created is refused."""
        ...

    def read(self, name: str) -> bytes | None:
        """A small file's whole content, or None when there is no such file."""
        ...

    def write(self, name: str, content: Buffer, *, sync: bool = True) -> None:
        """Replace a small file. After a crash of the process it has either its old or its new content, as a whole.

        With `sync` the same holds after a loss of power, and the new content is on the device when this returns.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove a file; no-op when there is none. Open handles stay readable."""
        ...

    def rename(self, name: str, to: str) -> None:
        """Give a file another name, in the place of a file that has it. Open handles stay those of the same file."""
        ...

    def mark(self, name: str) -> None:
        """Make an empty file for the next process, if it is not there; the device need not know of it.

        May be called from another thread. No-op when the directory is gone: no process will look there.
        """
        ...

    def unmark(self, name: str) -> None:
        """Remove such a file; the device need not know of that. May be called from another thread."""
        ...

    def sync_names(self) -> None:
        """Return once the device knows every name that was made, replaced or deleted, and the directory itself.

        No-op when nothing changed since the last call. May be called from another thread.
        """
        ...

    def modified_ms(self, name: str) -> int:
        """When the file was last written, milliseconds since the epoch."""
        ...

    def set_modified_ms(self, name: str, modified_ms: int) -> None:
        """Let the file have been written then."""
        ...


class Slice(NamedTuple):
    """Bytes of a log file: whole batches, except that a size limit may have cut the last one."""

    file: File
    position: int
    length_bytes: int

    def read(self) -> bytes:
        """The bytes themselves."""
        return self.file.read(self.position, self.length_bytes)


class Changing:
    """Of a file that a log writes: whether the device has what it says. A flush leaves out one that it has."""

    __slots__ = ("_synced_changes", "changes")

    def __init__(self) -> None:
        #: How often it was written. Nobody knows what the process before this one has brought to the device.
        self.changes = 1
        self._synced_changes = 0

    @property
    def is_unsynced(self) -> bool:
        """Whether the device may have something else."""
        return self.changes > self._synced_changes

    def is_made(self) -> None:
        """The file was made by this process, and nothing is in it. Of its name this says nothing."""
        self.changes = self._synced_changes = 0

    def reached(self, changes: int) -> None:
        """The device has the first so many changes."""
        self._synced_changes = max(self._synced_changes, changes)


class SyncNote:
    """A file that is there while other files are synced, and for good when the system has refused that.

    Linux takes pages that the device has refused for clean, and tells only one process of it. When that one is killed,
    the next one must know which files to write again (`flush.heed_refusals`). So the note comes before the sync; after
    a refusal it could be refused, too. A loss of power may take it: what the files hold then is from the device.
    """

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        """`lock` is for the threads that sync, and for those that write a small file of the directory."""
        #: Nobody removes it before the next clean start.
        self.stays = False
        self.lock = lock
        self._under_way = 0

    def leave(self) -> None:
        """The directory is to go, and its name may be given to another: touch no note there any more."""
        with self.lock:
            self.stays = True

    @contextmanager
    def around(self, storage: Storage) -> Iterator[None]:
        """Syncs of the storage's files. StorageError, before the first one, when the note cannot be made."""
        with self.lock:
            if not (self._under_way or self.stays):
                storage.mark(UNFINISHED_SYNC)
            self._under_way += 1
        try:
            yield
        except BaseException:
            self.stays = True
            raise
        finally:
            with self.lock:
                self._under_way -= 1
                if not (self._under_way or self.stays):
                    with suppress(StorageError):  # a start that finds it does too much
                        storage.unmark(UNFINISHED_SYNC)


def sync_whole(storage: Storage, files: Sequence[File]) -> None:
    """Have these files of the storage on the device, also after a sync that was refused. StorageError."""
    if files:
        with storage.sync_note.around(storage):
            for file in files:
                file.write_again()
                file.sync()

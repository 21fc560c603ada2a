"""The port to one partition's directory: the log decides, a Storage holds the bytes.

`broker/storage.py` implements it with files, `log/memory.py` in memory with crashes. A File is only ever appended to or
cut; nothing is overwritten, so a reader that holds a Slice sees the same bytes until it lets go.

To a disk, a file's bytes and its name are two things. After `File.sync` the bytes are on the device. That there is a
file with this name is certain only after `Storage.sync_names`. So before the recovery point may move, both are needed.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple, Protocol

from ottla.base.errors import StorageError
from ottla.log.names import REFUSED_SYNC

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
        thread. Nobody may write to the file meanwhile.
        """
        ...

    def suspect(self) -> None:
        """An earlier process may have been refused a sync: have `write_again` write the file."""
        ...

    def fileno(self) -> int:
        """Descriptor for os.sendfile, or -1 where there is none."""
        ...

    def close(self) -> None:
        """Close the file. No-op when it is closed already."""
        ...


class Storage(Protocol):
    """The files of one partition, by name (no folders). Every method raises StorageError where the system refuses."""

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


def sync_whole(file: File, storage: Storage) -> None:
    """Have a file on the device to which nobody writes any more, also after a sync that was refused. StorageError."""
    file.write_again()
    sync_noted(file, storage)


def sync_noted(file: File, storage: Storage) -> None:
    """Sync it. StorageError when the system refuses, which the next process is told then (`flush.heed_refusals`)."""
    try:
        file.sync()
    except StorageError:
        with suppress(StorageError):
            storage.write(REFUSED_SYNC, b"", sync=False)
        raise

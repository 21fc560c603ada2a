"""The port to one partition's directory: the log room decides, a Storage holds the bytes.

`broker/storage.py` implements it with files, `log/memory.py` in memory with crashes. A File is only ever appended to or
cut; nothing is overwritten, so a reader that holds a Slice sees the same bytes until it lets go.

A file and its name are two things to a disk. `File.sync` sees the bytes to the device; that there is a file of this
name is only sure after `Storage.sync_names`. So whatever says "this is on the device" (the recovery point) needs both.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """One open file. It stays readable after its name was deleted, for as long as somebody holds it.

    Every method raises StorageError where the system refuses.
    """

    @property
    def size_bytes(self) -> int:
        """Bytes in the file, the next append's position."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write `buffers` one after the other at the end, as one write where the system can.

        StorageError when they could not all be written; the file is then as long as before.
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
        """Return once everything written is on the device. May be called from another thread."""
        ...

    def fileno(self) -> int:
        """Descriptor for os.sendfile, or -1 where there is none."""
        ...

    def close(self) -> None:
        """Let go of the file. No-op when it is closed."""
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
        """Replace a small file: after a crash of the process it has the old content or the new, whole.

        With `sync` that holds after a loss of power too, and the new content is on the device on return.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove a file; no-op when there is none. Open handles stay readable."""
        ...

    def sync_names(self) -> None:
        """Return once every name that was made, replaced or deleted is so on the device, and the directory itself is.

        No-op when nothing changed since the last time. May be called from another thread.
        """
        ...

    def modified_ms(self, name: str) -> int:
        """When the file was last written, milliseconds since the epoch."""
        ...


class Slice(NamedTuple):
    """A run of a log file's bytes: whole batches, but for the last one, which a size limit may have cut."""

    file: File
    position: int
    length_bytes: int

    def read(self) -> bytes:
        """The bytes themselves."""
        return self.file.read(self.position, self.length_bytes)

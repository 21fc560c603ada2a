"""A data directory that is only read: nothing in it is made, written, locked for others' reading, or removed.

Its owner may have mounted it read-only, or it may be somebody else's.
"""

import fcntl
from typing import IO

from ottla.base.errors import StorageError
from ottla.broker.storage import LOCK_FILE, DirectoryDisk, DirectoryStorage, DiskFile


class ReadOnlyStorage(DirectoryStorage):
    """A folder's files. The system refuses every change."""

    def open(self, name: str, *, create: bool = False) -> DiskFile:
        """`create` is refused: a file that is not there is a StorageError."""
        return DiskFile(str(self.path / name), create=False, is_writable=False)


class ReadOnlyDisk(DirectoryDisk):
    """A data directory (the port `Disk`). The overlay above it keeps every change."""

    def lock(self) -> None:
        """Keep brokers out while the directory is read. Others may read it meanwhile.

        StorageError when a broker has it, ours or Apache Kafka: they lock the same file, each in its own way.
        """
        self.must_be_there()
        try:
            path = self.path / LOCK_FILE
            if not path.exists():
                return  # no broker has it: each makes the file first, and leaves it there
            lock: IO[bytes] = path.open("rb")
        except OSError as fault:
            raise StorageError(f"data directory {self.path}: {fault.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise StorageError(f"data directory {self.path} is in use by a broker: stop it first") from None
        self._lock = lock

    def must_be_there(self) -> None:
        """StorageError when there is no such directory."""
        if not self.path.is_dir():
            raise StorageError(f"{self.path}: there is no such directory")

    def own_files(self) -> ReadOnlyStorage:
        return ReadOnlyStorage(self.path)

    def open_folder(self, name: str) -> ReadOnlyStorage:
        return ReadOnlyStorage(self.path / name)

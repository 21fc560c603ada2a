"""The port to a data directory: a folder for each partition, and a few files of the directory's own.

`broker/storage.py` implements it with real files. The simulator implements it in memory, with losses of power.
"""

from typing import NamedTuple, Protocol

from ottla.base.errors import StorageError
from ottla.log.storage import Storage


class InTheWayError(StorageError):
    """Something that is no file has a name that a file must have."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is a folder, and a file must have this name: move the folder away")


class Folder(NamedTuple):
    """A folder of the data directory. An operator may have moved it to another disk, and left a link."""

    name: str
    is_link: bool


class Entry(NamedTuple):
    """What lies in a folder."""

    name: str
    is_file: bool
    size_bytes: int


class Space(NamedTuple):
    """How large the device is, and what is left."""

    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """One data directory. `str()` gives its path. Every method raises StorageError where the system refuses."""

    def lock(self) -> None:
        """Make the directory if it is not there, and keep other brokers out until `unlock`.

        StorageError when another broker has it.
        """
        ...

    def unlock(self) -> None:
        """Let others in. No-op when it is not locked."""
        ...

    def own_files(self) -> Storage:
        """The directory's own files, which belong to no partition."""
        ...

    def open_folder(self, name: str) -> Storage:
        """A folder's files. The folder is made when it is not there."""
        ...

    def folders(self) -> list[Folder]:
        """Every folder, sorted by name."""
        ...

    def entries(self, folder: str) -> list[Entry] | None:
        """What a folder holds, sorted by name; None when there is no such folder."""
        ...

    def delete(self, folder: str, file: str) -> None:
        """Remove a file of a folder that nobody has opened."""
        ...

    def remove(self, folder: str) -> None:
        """Remove an empty folder, or the link to it."""
        ...

    def rename(self, folder: str, name: str) -> None:
        """Give a folder another name."""
        ...

    def sync_names(self) -> None:
        """Return once the device knows which folders and own files there are. Another thread may call it."""
        ...

    def space(self) -> Space:
        """How much room there is."""
        ...

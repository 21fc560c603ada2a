"""A simulated disk: a data directory in memory, which knows what the device has and what only the system's memory has.

    disk.after_kill()          the process died: everything that it wrote is there
    disk.after_power_loss(rng) the machine died: what was not synced may be there or not, names of files and folders too

Both give the disk that the next process finds. `full` and `broken` make it refuse. With `fuse` the process dies at one
of the calls that change it (`sim.steps`).
"""

import random

from ottla.base.errors import StorageError
from ottla.broker.disk import Entry, Folder, Space
from ottla.log.memory import MemoryFile, MemoryStorage
from ottla.log.storage import Buffer
from sim.steps import CHANGES, Fuse

_SIZE_BYTES = 64 * 1024 * 1024


class SimFolder(MemoryStorage):
    """A folder's files. With its names it syncs its own name, as the real one does."""

    def __init__(self, disk: "SimDisk") -> None:
        super().__init__()
        self.disk = disk
        self.refuses = self._refuses

    def _refuses(self, action: str, name: str) -> bool:
        if self.disk.refuses(action, name):
            return True
        if action in CHANGES and not (action == "open" and name in self.files):
            self.disk.comes_to(action, name)
        return False

    def sync_names(self) -> None:
        super().sync_names()
        self.disk.sync_names()

    def write(self, name: str, content: Buffer, *, sync: bool = True) -> None:
        self.disk.check_room(len(content))
        super().write(name, content, sync=sync)
        self.disk.is_behind()

    def delete(self, name: str) -> None:
        super().delete(name)
        self.disk.is_behind()

    def rename(self, name: str, to: str) -> None:
        super().rename(name, to)
        self.disk.is_behind()

    def mark(self, name: str) -> None:
        super().mark(name)
        self.disk.is_behind()

    def unmark(self, name: str) -> None:
        super().unmark(name)
        self.disk.is_behind()

    def check_write(self, file: MemoryFile, data: bytes) -> None:
        super().check_write(file, data)
        fuse = self.disk.fuse
        if fuse is not None and fuse.call:
            file.content += data[: fuse.written(len(data))]
            fuse.is_behind()


class SimDisk:
    """See the module (the port `Disk`)."""

    def __init__(self) -> None:
        self._own = SimFolder(self)
        self._folders: dict[str, SimFolder] = {}
        #: The folders' names as the device has them, and after each change since then.
        self._names: list[dict[str, SimFolder]] = [{}]
        self._locked = False
        #: No write has room; every call is refused with this chance.
        self.full = False
        self.broken = 0.0
        self.rng = random.Random(0)
        #: Burns with each call that changes something.
        self.fuse: Fuse | None = None

    def __str__(self) -> str:
        return "/disk"

    # the port

    def lock(self) -> None:
        if self._locked:
            raise StorageError("data directory /disk is in use by another broker")
        self._locked = True

    def unlock(self) -> None:
        self._locked = False

    def own_files(self) -> SimFolder:
        return self._own

    def open_folder(self, name: str) -> SimFolder:
        found = self._folders.get(name)
        if found is None:
            self._check("mkdir", name)
            self.check_room(0)
            found = self._folders[name] = SimFolder(self)
            self._changed()
        return found

    def folders(self) -> list[Folder]:
        self._check("names", "")
        return [Folder(name, False) for name in sorted(self._folders)]

    def entries(self, folder: str) -> list[Entry] | None:
        self._check("names", folder)
        found = self._folders.get(folder)
        if found is None:
            return None
        return [Entry(name, True, file.size_bytes) for name, file in sorted(found.files.items())]

    def delete(self, folder: str, file: str) -> None:
        self._folders[folder].delete(file)

    def remove(self, folder: str) -> None:
        self._check("rmdir", folder)
        if folder not in self._folders:
            raise StorageError(f"/disk/{folder}: No such file or directory")
        if self._folders[folder].files:
            raise StorageError(f"/disk/{folder}: Directory not empty")
        del self._folders[folder]
        self._changed()

    def rename(self, folder: str, name: str) -> None:
        self._check("rename", folder)
        if folder not in self._folders:
            raise StorageError(f"/disk/{folder}: No such file or directory")
        self._folders[name] = self._folders.pop(folder)
        self._changed()

    def sync_names(self) -> None:
        self._check("sync_names", "")
        self._names = [dict(self._folders)]

    def space(self) -> Space:
        used = self._own.size_bytes + sum(folder.size_bytes for folder in self._folders.values())
        return Space(_SIZE_BYTES, max(_SIZE_BYTES - used, 0))

    # a person, or the device, changes files while no process runs

    def files(self) -> list[tuple[str, str]]:
        """Every file, by folder ("" for the directory's own files) and name."""
        folders = {"": self._own, **self._folders}
        return [(folder, name) for folder in sorted(folders) for name in sorted(folders[folder].files)]

    def sizes(self, folder: str) -> dict[str, int]:
        """The files of a folder, and how many bytes each has."""
        files = self._folders[folder].files if folder in self._folders else {}
        return {name: file.size_bytes for name, file in files.items()}

    def content(self, folder: str, name: str) -> bytes:
        """What a file holds."""
        return bytes(self._of(folder).files[name].content)

    def change(self, folder: str, name: str, content: bytes | None) -> None:
        """Give a file other content, or remove it (None); it is on the device at once."""
        files = self._of(folder)
        if content is None:
            files.delete(name)
        else:
            MemoryStorage.write(files, name, content)
        MemoryStorage.sync_names(files)

    def _of(self, folder: str) -> SimFolder:
        return self._folders[folder] if folder else self._own

    # faults

    def refuses(self, action: str, name: str) -> bool:
        """Whether this call fails."""
        if self.full and action == "append":
            return True
        return self.broken > 0.0 and self.rng.random() < self.broken

    def comes_to(self, action: str, name: str) -> None:
        """Something is about to be changed."""
        if self.fuse is not None:
            self.fuse.comes_to(action, name)

    def is_behind(self) -> None:
        """It was changed."""
        if self.fuse is not None:
            self.fuse.is_behind()

    def check_room(self, more_bytes: int) -> None:
        """StorageError while the disk is full."""
        if self.full:
            raise StorageError("/disk: No space left on device")

    def after_kill(self) -> "SimDisk":
        """What the next process finds when this one was killed."""
        left = SimDisk()
        left.rng = self.rng
        copies: dict[SimFolder, SimFolder] = {}

        def copy(folder: SimFolder) -> SimFolder:
            if folder not in copies:
                copies[folder] = left._adopt(folder.after_kill())
            return copies[folder]

        left._own = copy(self._own)
        left._folders = {name: copy(folder) for name, folder in self._folders.items()}
        left._names = [{name: copy(folder) for name, folder in names.items()} for names in self._names]
        return left

    def after_power_loss(self, rng: random.Random) -> "SimDisk":
        """What the next process finds when the machine has lost its power."""
        left = SimDisk()
        left.rng = self.rng

        def lose(folder: SimFolder) -> SimFolder:
            return left._adopt(
                folder.after_power_loss(
                    keep=lambda name, synced, size: rng.choice((synced, size, rng.randint(synced, size))),
                    keep_name=lambda name: rng.random() < 0.5,
                )
            )

        left._own = lose(self._own)
        left._folders = {name: lose(folder) for name, folder in rng.choice(self._names).items()}
        left._names = [dict(left._folders)]
        return left

    def _adopt(self, storage: MemoryStorage) -> SimFolder:
        folder = SimFolder(self)
        folder.adopt(storage)
        return folder

    def _check(self, action: str, name: str) -> None:
        if self.refuses(action, name):
            raise StorageError(f"/disk/{name}: Input/output error")
        if action in CHANGES:
            self.comes_to(action, name)

    def _changed(self) -> None:
        self._names.append(dict(self._folders))

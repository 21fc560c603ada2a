"""What makes a log durable, apart from the log: it waits for the device, and may do so in another thread."""

from typing import NamedTuple

from ottla.log.storage import File, Storage


class FlushPlan(NamedTuple):
    """What makes the log durable up to an offset: `sync`, perhaps in another thread, and then `mark_flushed`."""

    offset: int
    files: tuple[File, ...]
    storage: Storage

    def sync(self) -> None:
        """Return when every file and its name is on the device. StorageError when the system refuses."""
        for file in self.files:
            file.sync()
        if self.files:
            self.storage.sync_names()

"""A disk that takes its time, for tests."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ottla.broker.storage import DirectoryDisk, DiskFile
from ottla.log.storage import Buffer
from ottla.testing.arguments import seconds


class SlowDisk(DirectoryDisk):
    """A data directory in which each write to a log, and each sync of it, takes `delay_s` longer."""

    def __init__(self, path: Path, delay_s: float = 0.0) -> None:
        super().__init__(path, self._open_slowly)
        self.delay_s = delay_s

    def _open_slowly(self, path: str, /, *, create: bool) -> DiskFile:
        return _SlowFile(path, self._pause, create=create)

    def _pause(self) -> None:
        if self.delay_s:
            time.sleep(self.delay_s)


class _SlowFile(DiskFile):
    __slots__ = ("_pause",)

    def __init__(self, path: str, pause: Callable[[], None], *, create: bool) -> None:
        super().__init__(path, create=create)
        self._pause = pause

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._pause()
        super().append(buffers)

    def sync(self) -> None:
        self._pause()
        super().sync()


def checked_s(delay_s: float) -> float:
    """The number of seconds. TypeError for what is no number, ValueError for one that cannot be."""
    return seconds("slow_disk:", delay_s, "a disk takes some seconds longer, or 0")

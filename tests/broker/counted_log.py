"""How often a partition is read."""

from typing import Any

from ottla.log.partition import PartitionLog


class CountedLog:
    """A partition's log that writes down each read; everything else is the log's own."""

    def __init__(self, log: PartitionLog, reads: list[int]) -> None:
        self._log = log
        self._reads = reads

    def read(self, offset: int, max_bytes: int, **options: Any) -> Any:
        self._reads.append(self._log.tp.partition)
        return self._log.read(offset, max_bytes, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

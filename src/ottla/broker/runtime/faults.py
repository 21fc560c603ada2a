"""Faults of the disk, told to the operator: one line when they begin and one every while, however many there are."""

import logging
from typing import Final

from ottla.base.clock import Clock
from ottla.base.errors import CorruptDataError, StorageError
from ottla.wire.errors import ErrorCode

_log = logging.getLogger(__name__)

#: A full disk fails every request of every client; one line in so many milliseconds is enough to see that it goes on.
_QUIET_MS: Final = 10_000


class DiskFaults:
    """What the disk refuses. `report` is called for each fault and gives the error that clients are answered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_ms: int | None = None
        self._untold = 0

    def report(self, what: object, fault: StorageError | CorruptDataError) -> ErrorCode:
        """Log the fault of `what` (a partition, an action), unless another was logged just before."""
        now_ms = self._clock.monotonic_ms()
        if self._told_ms is not None and now_ms - self._told_ms < _QUIET_MS:
            self._untold += 1
        else:
            more = f" ({self._untold} more since the last such line)" if self._untold else ""
            advice = "" if isinstance(fault, CorruptDataError) else "; requests fail until the disk takes them again"
            _log.error("%s: %s%s%s", what, fault, advice, more)
            self._told_ms, self._untold = now_ms, 0
        return ErrorCode.CORRUPT_MESSAGE if isinstance(fault, CorruptDataError) else ErrorCode.KAFKA_STORAGE_ERROR

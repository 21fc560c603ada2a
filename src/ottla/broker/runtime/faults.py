"""Reports faults of the disk to the operator: a line in the log at the first one, and then at most one in a while."""

import logging
from typing import Final

from ottla.base.clock import Clock
from ottla.base.errors import CorruptDataError, StorageError
from ottla.wire.errors import ErrorCode

_log = logging.getLogger(__name__)

#: The shortest time between two lines. A full disk fails every request of every client.
_QUIET_MS: Final = 10_000


class DiskFaults:
    """Counts what the disk refuses. `report` is called for each fault and returns the error code for the client."""

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

"""Reports faults of the disk to the operator: a line in the log at the first one, and then at most one in a while."""

import logging

from ottla.base.clock import Clock
from ottla.base.errors import CorruptDataError, StorageError
from ottla.broker.quiet import Quiet
from ottla.wire.errors import ErrorCode

_log = logging.getLogger(__name__)


class DiskFaults:
    """Counts what the disk refuses. `report` is called for each fault and returns the error code for the client."""

    def __init__(self, clock: Clock) -> None:
        self._quiet = Quiet(clock)

    def report(self, what: object, fault: StorageError | CorruptDataError) -> ErrorCode:
        """Log the fault of `what` (a partition, an action), unless another was logged just before.

        A full disk fails every request of every client.
        """
        more = self._quiet.turn("faults of the disk")
        if more is not None:
            advice = "" if isinstance(fault, CorruptDataError) else "; requests fail until the disk takes them again"
            _log.error("%s: %s%s%s", what, fault, advice, more)
        return ErrorCode.CORRUPT_MESSAGE if isinstance(fault, CorruptDataError) else ErrorCode.KAFKA_STORAGE_ERROR

"""What background tasks have found wrong and the next poll() raises, oldest first."""

from collections import deque

from ottla.client.errors import LogTruncatedError, NoOffsetForPartitionError, OffsetOutOfRangeError

#: Faults of positions, which a seek mends.
_OF_POSITIONS = (NoOffsetForPartitionError, OffsetOutOfRangeError, LogTruncatedError)


class Failures:
    """Faults that wait for poll. One that goes on is told once a poll, however often it was found meanwhile."""

    def __init__(self) -> None:
        self._waiting: deque[Exception] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, error: Exception) -> None:
        """Have `error` raised."""
        if all((type(known), str(known)) != (type(error), str(error)) for known in self._waiting):
            self._waiting.append(error)

    def positions_chosen(self) -> None:
        """The user said where to go on: that it was not known is past. What still holds will be found again."""
        self._waiting = deque(error for error in self._waiting if not isinstance(error, _OF_POSITIONS))

    def raise_next(self) -> None:
        """Raise the oldest, if there is one."""
        if self._waiting:
            raise self._waiting.popleft()

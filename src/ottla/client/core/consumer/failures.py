"""Errors that were found in the background. The next calls of poll() raise them, the oldest first."""

from collections import deque

from ottla.client.errors import LogTruncatedError, NoOffsetForPartitionError, OffsetOutOfRangeError

#: Errors of positions, which a seek mends.
_OF_POSITIONS = (NoOffsetForPartitionError, OffsetOutOfRangeError, LogTruncatedError)


class Failures:
    """Errors that wait for poll. An error that is found several times between two polls is raised once."""

    def __init__(self) -> None:
        self._waiting: deque[Exception] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, error: Exception) -> None:
        """Let poll raise `error`, unless the same error waits already."""
        if all((type(known), str(known)) != (type(error), str(error)) for known in self._waiting):
            self._waiting.append(error)

    def positions_chosen(self) -> None:
        """The user has set positions: drop the errors about positions. One that still holds will be found again."""
        self._waiting = deque(error for error in self._waiting if not isinstance(error, _OF_POSITIONS))

    def raise_next(self) -> None:
        """Raise the oldest, if there is one."""
        if self._waiting:
            raise self._waiting.popleft()

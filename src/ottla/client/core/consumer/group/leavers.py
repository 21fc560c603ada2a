"""The calls that leave a group: `unsubscribe` and `close`."""

from ottla.client.core import intents
from ottla.client.core.consumer.shared import Shared


class Leavers:
    """Who waits until this member has left, and how it leaves."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._calls: list[object] = []
        self._error: Exception | None = None
        self.reason = ""
        #: Whether the coordinator is told that the member leaves.
        self.told = True

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, call: object, reason: str, *, told: bool) -> None:
        """Another call waits."""
        self._calls.append(call)
        self.reason, self.told = reason, told

    def callback_raised(self, error: Exception | None) -> None:
        """A callback has raised `error`, or nothing. The call that leaves raises it, else poll. Leaving goes on."""
        if error is not None and self._calls:
            self._error = self._error or error
        elif error is not None:
            self._shared.fail(error)

    def settle(self) -> None:
        """The member has left: end the calls that wait."""
        calls, self._calls = self._calls, []
        error, self._error = self._error, None
        for call in calls:
            self._shared.intend(intents.Finish(call, error=error))

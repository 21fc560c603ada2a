"""How a handler of a consumer group refuses a request."""

from __future__ import annotations

from ottla.base.words import cut
from ottla.coordinator.decision import ReportFault
from ottla.wire.errors import ErrorCode


class RefusedError(Exception):
    """The request is answered with this error and message; nothing has changed. It never leaves the coordinator.

    `effects` has the fault of ours, if that is why.
    """

    def __init__(self, error: ErrorCode, message: str, effects: tuple[ReportFault, ...] = ()) -> None:
        super().__init__(message)
        self.error = error
        self.message = cut(message)
        self.effects = effects

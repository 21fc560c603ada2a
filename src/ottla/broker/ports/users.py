"""Users with SCRAM credentials: changes, one after the other, each as one batch of metadata."""

from typing import Protocol

from ottla.broker.runtime.decided import DecidedChanges


class HasUsers(Protocol):
    """Needs to change users."""

    @property
    def users(self) -> DecidedChanges: ...

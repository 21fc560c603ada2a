"""Fetch sessions (KIP-227)."""

from typing import Protocol

from ottla.broker.fetch_sessions import FetchSessions


class HasSessions(Protocol):
    """Needs fetch sessions."""

    @property
    def sessions(self) -> FetchSessions: ...

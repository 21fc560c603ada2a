"""Searches in logs that may take long, while others are served."""

from typing import Protocol

from ottla.broker.runtime.searches import Searches


class HasSearches(Protocol):
    """Needs to search logs by time."""

    @property
    def searches(self) -> Searches: ...

"""Bugs that only a loss of power shows."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ottla.broker.runtime.partitions import Partitions
from ottla.log.flush import Synced


@contextmanager
def acknowledges_before_the_sync() -> Iterator[None]:
    """`flush.messages` has no effect."""
    with patch.object(Synced, "is_due", property(lambda self: False)):
        yield


@contextmanager
def keeps_its_leaders() -> Iterator[None]:
    """Behind a loss of power each leader epoch is what it was."""
    with patch.object(Partitions, "doubtful", lambda self: iter(())):
        yield

"""Bugs that only a loss of power shows."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ottla.log.flush import Synced


@contextmanager
def acknowledges_before_the_sync() -> Iterator[None]:
    """`flush.messages` has no effect."""
    with patch.object(Synced, "is_due", property(lambda self: False)):
        yield

"""What the tests of the simulator share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """What the clients log of faults is no news."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    yield
    logging.disable(before)

"""The fixture `ottla_broker` for every test suite that has Ottla installed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing import Broker


@pytest.fixture(scope="session")
def ottla_broker() -> "Iterator[Broker]":
    """A broker of the session's own, on a free port with a directory of its own."""
    from ottla.testing import Broker  # a suite that does not use the fixture pays nothing

    with Broker() as broker:
        yield broker

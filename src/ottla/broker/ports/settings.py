"""What the broker was started with: its configuration and its clock."""

from typing import Protocol

from ottla.base.clock import Clock
from ottla.broker.config import BrokerConfig


class HasConfig(Protocol):
    """Needs the configuration."""

    @property
    def config(self) -> BrokerConfig: ...


class HasClock(Protocol):
    """Needs the time."""

    @property
    def clock(self) -> Clock: ...

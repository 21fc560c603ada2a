"""Partition assignment: the assignors, and the protocol to write one (SPEC A). Pure.

`BUILT_IN` maps the names accepted in `partition.assignment.strategy` to the classes; `find` looks one up.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.assign.range import RangeAssignor
from ottla.assign.round_robin import RoundRobinAssignor
from ottla.assign.types import (
    Assignment,
    Assignor,
    BaseAssignor,
    Cluster,
    PartitionInfo,
    RebalanceProtocol,
    Subscription,
)
from ottla.base.errors import ConfigError

#: Every assignor that can be named in a configuration, by its name.
BUILT_IN: dict[str, Callable[[], Assignor]] = {
    RangeAssignor.name: RangeAssignor,
    RoundRobinAssignor.name: RoundRobinAssignor,
}


def find(name: str) -> Assignor:
    """A new instance of the built-in assignor called `name`, else ConfigError with the names there are."""
    factory = BUILT_IN.get(name)
    if factory is None:
        raise ConfigError(f"partition.assignment.strategy: no assignor {name!r}; there are {', '.join(BUILT_IN)}")
    return factory()


__all__ = [
    "BUILT_IN",
    "Assignment",
    "Assignor",
    "BaseAssignor",
    "Cluster",
    "PartitionInfo",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "Subscription",
    "find",
]

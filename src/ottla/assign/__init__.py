"""Partition assignment: the assignors, and the protocol to write one (SPEC A). Pure.

`BUILT_IN` maps the names accepted in `partition.assignment.strategy` to the classes; `find` looks one up.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.assign.checking import InvalidAssignmentError, Wrong
from ottla.assign.cooperative import hold_back
from ottla.assign.range import RangeAssignor
from ottla.assign.round_robin import RoundRobinAssignor
from ottla.assign.sticky import CooperativeStickyAssignor, StickyAssignor
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
    StickyAssignor.name: StickyAssignor,
    CooperativeStickyAssignor.name: CooperativeStickyAssignor,
}


#: The classes of Apache Kafka's Java client, which a configuration made for it names, and what they are called here.
JAVA_CLASSES: dict[str, str] = {
    "org.apache.kafka.clients.consumer.RangeAssignor": RangeAssignor.name,
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": RoundRobinAssignor.name,
    "org.apache.kafka.clients.consumer.StickyAssignor": StickyAssignor.name,
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": CooperativeStickyAssignor.name,
}


def find(name: str) -> Assignor:
    """A new instance of the built-in assignor called `name`, else ConfigError with the names there are.

    `name` is Kafka's short name (`range`), or the name of Apache Kafka's Java class.
    """
    factory = BUILT_IN.get(JAVA_CLASSES.get(name, name))
    if factory is None:
        raise ConfigError(f"partition.assignment.strategy: no assignor {name!r}; there are {', '.join(BUILT_IN)}")
    return factory()


__all__ = [
    "BUILT_IN",
    "JAVA_CLASSES",
    "Assignment",
    "Assignor",
    "BaseAssignor",
    "Cluster",
    "CooperativeStickyAssignor",
    "InvalidAssignmentError",
    "PartitionInfo",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "Wrong",
    "find",
    "hold_back",
]

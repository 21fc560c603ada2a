"""The group coordinators of this node."""

from typing import Protocol

from ottla.broker.runtime.coordinators import Coordinators
from ottla.coordinator.group.shard import GroupShard


class HasGroups(Protocol):
    """Needs group coordinators."""

    @property
    def groups(self) -> Coordinators[GroupShard]: ...

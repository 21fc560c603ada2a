"""Assignors of the server's side (KIP-848): the group coordinator runs them, see `types`. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.assign.server.range import RangeServerAssignor
from ottla.assign.server.types import (
    AssignorError,
    GroupSpec,
    MemberSpec,
    Partitions,
    ServerAssignor,
    SubscriptionType,
    TopicSpec,
    checked,
    unfit,
)
from ottla.assign.server.uniform import UniformAssignor

#: Every assignor that `group.consumer.assignors` can name by a short name.
BUILT_IN: Final[dict[str, Callable[[], ServerAssignor]]] = {
    UniformAssignor.name: UniformAssignor,
    RangeServerAssignor.name: RangeServerAssignor,
}

__all__ = [
    "BUILT_IN",
    "AssignorError",
    "GroupSpec",
    "MemberSpec",
    "Partitions",
    "RangeServerAssignor",
    "ServerAssignor",
    "SubscriptionType",
    "TopicSpec",
    "UniformAssignor",
    "checked",
    "unfit",
]

"""The kinds of groups that a consumer can be a member of, by the value of `group.protocol`."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ottla.base.types import topic_id_text
from ottla.client.core.consumer.group.classic.membership import ClassicMembership
from ottla.client.core.consumer.group.consumer.membership import ConsumerMembership
from ottla.client.core.consumer.group.membership import Membership
from ottla.client.core.consumer.shared import Shared

#: Makes a membership, of what the core's parts share, and of what it calls when it needs metadata of other topics.
Make: TypeAlias = Callable[[Shared, Callable[[], None]], Membership[Any]]
MEMBERSHIPS: Mapping[str, Make] = {"classic": ClassicMembership, "consumer": ConsumerMembership}


def new_member_id(protocol: str, random_bytes: Callable[[int], bytes]) -> str:
    """A name for a member that names itself, printed like the UUIDs of Kafka's own consumers; "" for a classic one."""
    name = topic_id_text(random_bytes(16)) if protocol == "consumer" else ""
    return name.replace("-", "_", 1) if name.startswith("-") else name  # a tool would take it for an option

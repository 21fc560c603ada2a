"""The kinds of groups that a consumer can be a member of, by the value of `group.protocol`."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ottla.client.core.consumer.group.classic.membership import ClassicMembership
from ottla.client.core.consumer.group.membership import Membership
from ottla.client.core.consumer.shared import Shared

#: Makes a membership, of what the core's parts share, and of what it calls when it needs metadata of other topics.
Make: TypeAlias = Callable[[Shared, Callable[[], None]], Membership[Any]]
MEMBERSHIPS: Mapping[str, Make] = {"classic": ClassicMembership}

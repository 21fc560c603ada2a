"""How a group becomes one of another kind (KIP-848): above both rooms, which do not know each other."""

from __future__ import annotations

from ottla.coordinator.group.classic.records import group_tombstone
from ottla.coordinator.group.classic.state import Group
from ottla.coordinator.group.consumer.errors import RefusedError
from ottla.coordinator.group.consumer.room import Draft
from ottla.coordinator.group.kinds import AnyGroup
from ottla.wire.errors import ErrorCode


def make_room(group: AnyGroup, draft: Draft) -> None:
    """Records that put the consumer group of `draft` in the place of `group`; RefusedError when it may not be."""
    if isinstance(group, Group) and group.is_empty:
        draft.records.append(group_tombstone(group.group_id))
        return
    raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")

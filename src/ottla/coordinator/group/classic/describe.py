"""What ListGroups and DescribeGroups say about a classic group (G18)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.coordinator.group.classic.state import Group, GroupState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.wire.messages.list_groups import ListedGroup

#: KIP-848's name for groups of this kind.
CLASSIC: Final = "classic"
#: What a group that does not exist is said to be.
_DEAD: Final = "Dead"


def describe(group: Group) -> DescribedGroup:
    """A group as it is now. Subscriptions and assignments mean something in a stable generation only."""
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=tuple(
            DescribedGroupMember(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                member_metadata=m.metadata(group.protocol) if stable else b"",
                member_assignment=m.assignment if stable else b"",
            )
            for m in group.members.values()
        ),
    )


def describe_missing(group_id: str, *, report_missing: bool) -> DescribedGroup:
    """A group that does not exist: an error for clients that understand it (v6+, KIP-1043), else a dead group."""
    if not report_missing:
        return DescribedGroup(group_id=group_id, group_state=_DEAD)
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} not found.",
        group_id=group_id,
        group_state=_DEAD,
    )


def listed(groups: Iterable[Group], states: Iterable[str], types: Iterable[str]) -> tuple[ListedGroup, ...]:
    """The groups in one of `states` and of one of `types`, in upper or lower case. An empty filter accepts all."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {kind.lower() for kind in types}
    if wanted_types and CLASSIC.lower() not in wanted_types:
        return ()
    return tuple(
        ListedGroup(group.group_id, group.protocol_type or "", group.state.value, CLASSIC)
        for group in groups
        if not wanted_states or group.state.value.lower() in wanted_states
    )

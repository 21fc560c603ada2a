"""What ListGroups and DescribeGroups say about a classic group (G18)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from ottla.coordinator.group.classic.state import Group, GroupState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember

#: Members that are described in one step.
_AT_ONCE: Final = 50
#: What a group that does not exist is said to be.
_DEAD: Final = "Dead"


def describe(group: Group) -> Generator[None, None, DescribedGroup]:
    """A group as it is at the first step. Subscriptions are told in a stable generation only.

    Assignments are told in every state, as Kafka does: until the next generation has its own, these are the last ones.
    """
    stable, protocol, there = group.state is GroupState.STABLE, group.protocol, group.members
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(protocol or "") if stable else "",
    )
    members = []
    for number, m in enumerate(there.values(), 1):
        members.append(
            DescribedGroupMember(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                member_metadata=m.metadata(protocol) if stable else b"",
                member_assignment=m.assignment,
            )
        )
        if number % _AT_ONCE == 0:
            yield
    return described._replace(members=tuple(members))


def describe_missing(group_id: str, *, exists: bool, report_missing: bool) -> DescribedGroup:
    """A group that does not exist, or is of another kind: an error for clients that understand it, else a dead group.

    Those are clients of version 6 and later (KIP-1043).
    """
    if not report_missing:
        return DescribedGroup(group_id=group_id, group_state=_DEAD)
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} is not a classic group." if exists else f"Group {group_id} not found.",
        group_id=group_id,
        group_state=_DEAD,
    )

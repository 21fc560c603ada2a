"""Heartbeat (v0–4), and what happens to a member that is silent (G8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.coordinator.facts import Why
from ottla.coordinator.group.classic.draft import Draft
from ottla.coordinator.group.classic.members import Member
from ottla.coordinator.group.classic.rebalance import members_removed
from ottla.coordinator.group.classic.state import Group, GroupState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest

#: The answer to a heartbeat of the right generation, by the group's state. In CompletingRebalance the answer is NONE:
#: members send heartbeats as soon as they have joined.
ANSWERS: Final[Mapping[GroupState, ErrorCode]] = {
    GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupState.COMPLETING_REBALANCE: ErrorCode.NONE,
    GroupState.STABLE: ErrorCode.NONE,
}


def check_heartbeat(group: Group, request: HeartbeatRequest) -> ErrorCode:
    """NONE or REBALANCE_IN_PROGRESS when the member is alive and of this generation, else why it is refused (G12)."""
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ANSWERS[group.state]


def is_excused(member: Member) -> bool:
    """Whether a member may be silent: while it waits for an answer it cannot send heartbeats.

    This does not hold for a member's first join: there the member's timer limits how long the join may wait (see
    `join`).
    """
    return not member.is_new and (member.join_token is not None or member.sync_token is not None)


def session_ended(draft: Draft, member_id: str) -> None:
    """The heartbeat timer of a member, or of a member id that was given out, has fired."""
    group = draft.group
    if member_id in group.pending_members:
        draft.drop((member_id,), Why.SESSION_TIMEOUT)
        # Only a rebalance can have waited for this member id; a generation goes on without it.
        if draft.group.state is GroupState.PREPARING_REBALANCE:
            members_removed(draft, f"{member_id} never joined")
    elif member_id in group.members and not is_excused(group.members[member_id]):
        draft.drop((member_id,), Why.SESSION_TIMEOUT, "no heartbeat in time")
        members_removed(draft, f"no heartbeat in time from {member_id}")

"""LeaveGroup (v0–5): members that go by themselves, or are removed by an administrator (G10, G18).

From version 3 (KIP-345) a request names several members; a static one may be named by its instance id alone.
"""

from __future__ import annotations

from ottla.base.words import listing
from ottla.coordinator.facts import Why
from ottla.coordinator.group.classic.draft import Draft
from ottla.coordinator.group.classic.rebalance import complete_if_possible, prepare
from ottla.coordinator.group.classic.state import Group, GroupState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse


def leave(draft: Draft, token: int, request: LeaveGroupRequest) -> None:
    """Remove the named members, answer for each, and rebalance once if any was removed."""
    answers: list[MemberResponse] = []
    leaving: dict[str, str] = {}
    for identity in identities(request):
        member_id, error = _resolve(draft.group, identity)
        if member_id in leaving:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is ErrorCode.NONE:
            leaving[member_id] = identity.reason or ""
        answers.append(MemberResponse(identity.member_id, identity.group_instance_id, error))
    draft.drop(leaving, Why.LEFT, leaving)
    gone = [answer for answer in answers if answer.error_code == ErrorCode.NONE]
    if gone:
        match draft.group.state:
            case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
                prepare(draft, f"left: {listing([each.member_id or str(each.group_instance_id) for each in gone])}")
            case GroupState.PREPARING_REBALANCE:
                complete_if_possible(draft)
            case _:
                pass
    draft.reply(token, response(request, answers))


def response(request: LeaveGroupRequest, answers: list[MemberResponse]) -> LeaveGroupResponse:
    """The answer in the request's form: one member's error at the top, or one answer a member."""
    if _is_single(request):
        return LeaveGroupResponse(error_code=answers[0].error_code)
    return LeaveGroupResponse(members=tuple(answers))


def refused(request: LeaveGroupRequest, error: ErrorCode) -> LeaveGroupResponse:
    """The whole request is refused."""
    return LeaveGroupResponse(error_code=error)


def _is_single(request: LeaveGroupRequest) -> bool:
    return not request.members and request.member_id != ""


def identities(request: LeaveGroupRequest) -> tuple[MemberIdentity, ...]:
    """The members that the request names."""
    return (MemberIdentity(member_id=request.member_id),) if _is_single(request) else request.members


def _resolve(group: Group, identity: MemberIdentity) -> tuple[str, ErrorCode]:
    """The member that the request means, and an error if it cannot be removed."""
    if identity.member_id == "":
        current = (
            None if identity.group_instance_id is None else group.members.static_member_id(identity.group_instance_id)
        )
        return ("", ErrorCode.UNKNOWN_MEMBER_ID) if current is None else (current, ErrorCode.NONE)
    if identity.member_id in group.pending_members:
        return identity.member_id, ErrorCode.NONE
    return identity.member_id, group.check_member(identity.member_id, identity.group_instance_id)

"""SyncGroup (v0–5): the leader sends the assignment, and each member fetches its own part (G7).

Before any member is answered, the generation is written to the log with its members, subscriptions and assignments.
Only then is the group Stable. After a crash in between, the log still has the generation before, and all rejoin.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.base.errors import OttlaError
from ottla.coordinator.decision import ReportFault
from ottla.coordinator.group.classic.draft import SYNC, Draft, sync_error
from ottla.coordinator.group.classic.members import Member
from ottla.coordinator.group.classic.rebalance import prepare
from ottla.coordinator.group.classic.records import generation_record, member_pieces
from ottla.coordinator.group.classic.state import Group, GroupState
from ottla.coordinator.group.errors import append_error
from ottla.wire.codec import Buffer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync(draft: Draft, token: int, request: SyncGroupRequest, max_record_bytes: int) -> None:
    """Carry out one SyncGroup; leaves a record in the draft when it was the leader's."""
    error = _check(draft.group, request)
    if error is not ErrorCode.NONE:
        draft.reply(token, sync_error(error))
        return
    _received(draft, request.member_id)
    match draft.group.state:
        case GroupState.COMPLETING_REBALANCE if draft.group.leader == request.member_id:
            draft.then(_lead(draft, token, request, max_record_bytes))
        case GroupState.COMPLETING_REBALANCE:
            wait(draft, token, request.member_id)
        case _:
            draft.reply(token, _assignment(draft.group, draft.group.members[request.member_id]))


def _check(group: Group, request: SyncGroupRequest) -> ErrorCode:
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    # v5+ (KIP-559): if the client names the elected protocol, it must name the right one.
    for said, elected in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol)):
        if said is not None and elected is not None and said != elected:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _received(draft: Draft, member_id: str) -> None:
    draft.group = draft.group._replace(pending_sync=draft.group.pending_sync - {member_id})
    if not draft.group.pending_sync:
        draft.stop(SYNC)


def wait(draft: Draft, token: int, member_id: str) -> None:
    """Let the request wait for the assignment. The client has given up an earlier one of this member (see Draft)."""
    member = draft.group.members[member_id]
    draft.reply(member.sync_token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    draft.update(member._replace(sync_token=token))


def _lead(draft: Draft, token: int, request: SyncGroupRequest, max_record_bytes: int) -> Iterator[None]:
    """The leader has sent the assignment. A member that is not in it gets an empty one.

    A generation that the log would refuse is not made: to write tens of megabytes together would keep the event loop.
    """
    group, leader = draft.group, request.member_id
    assignments = {each.member_id: each.assignment for each in request.assignments}
    pieces, size_bytes = list[Buffer](), 0
    for part in group.members.parts():
        for member in part:
            encoded = member_pieces(member, group.protocol, assignments.get(member.member_id, b""))
            size_bytes += sum(map(len, encoded))
            if size_bytes <= max_record_bytes:
                pieces += encoded
        yield
    if size_bytes > max_record_bytes:
        draft.reports.append(_too_large(group, size_bytes, max_record_bytes))
        append_failed(draft, token, leader, append_error(ErrorCode.MESSAGE_TOO_LARGE))
        return
    draft.records.append(generation_record(group, pieces))
    wait(draft, token, leader)
    for part in draft.group.members.parts():
        for member in part:
            assigned = member._replace(assignment=assignments.get(member.member_id, b""))
            if member.sync_token is None:
                draft.update(assigned)
            else:
                draft.answer_sync(assigned, _assignment(group, assigned))
        yield
    draft.group = draft.group.with_state(GroupState.STABLE, draft.now_ms)
    draft.settled()


def _assignment(group: Group, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def _too_large(group: Group, size_bytes: int, max_record_bytes: int) -> ReportFault:
    return ReportFault(
        f"the generation {group.generation} of group {group.group_id!r} cannot be written",
        OttlaError(
            f"its {len(group.members)} members take {size_bytes} bytes, with what they say of themselves and their "
            f"assignments, and a record of the log {max_record_bytes} at most (max.message.bytes of __consumer_offsets)"
        ),
    )


def append_failed(draft: Draft, token: int, member_id: str, error: ErrorCode) -> None:
    """The generation could not be written: all waiting members, and the leader, get the error, and all rejoin."""
    wait(draft, token, member_id)
    prepare(draft, f"{error.name} when the assignment was written", error)

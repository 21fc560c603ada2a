"""SyncGroup (v0–5): the leader sends the assignment, and each member fetches its own part (G7).

Before any member is answered, the generation is written to the log with its members, subscriptions and assignments.
Only then is the group Stable. After a crash in between, the log still has the generation before, and all rejoin.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.base.errors import OttlaError
from ottla.coordinator.decision import ReportFault
from ottla.coordinator.group.classic.draft import SYNC, Draft, sync_error
from ottla.coordinator.group.classic.members import Member
from ottla.coordinator.group.classic.rebalance import answer_all_syncs, prepare
from ottla.coordinator.group.classic.records import generation_bytes, group_record
from ottla.coordinator.group.classic.state import Group, GroupState
from ottla.coordinator.group.errors import append_error
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync(draft: Draft, token: int, request: SyncGroupRequest, max_record_bytes: int) -> None:
    """Carry out one SyncGroup; leaves a record in the draft when it was the leader's.

    One that the log would refuse is not made: to write tens of megabytes together would keep the event loop.
    """
    error = _check(draft.group, request)
    if error is not ErrorCode.NONE:
        draft.reply(token, sync_error(error))
        return
    _received(draft, request.member_id)
    match draft.group.state:
        case GroupState.COMPLETING_REBALANCE if draft.group.leader == request.member_id:
            assignments = {a.member_id: a.assignment for a in request.assignments}
            size_bytes = generation_bytes(draft.group, assignments)
            if size_bytes > max_record_bytes:
                draft.reports.append(_too_large(draft.group, size_bytes, max_record_bytes))
                append_failed(draft, token, request.member_id, append_error(ErrorCode.MESSAGE_TOO_LARGE))
                return
            wait(draft, token, request.member_id)
            _stabilize(draft, assignments)
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
    draft.group = replace(draft.group, pending_sync=draft.group.pending_sync - {member_id})
    if not draft.group.pending_sync:
        draft.stop(SYNC)


def wait(draft: Draft, token: int, member_id: str) -> None:
    """Let the request wait for the assignment. The client has given up an earlier one of this member (see Draft)."""
    member = draft.group.members[member_id]
    draft.reply(member.sync_token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    draft.update(member._replace(sync_token=token))


def _stabilize(draft: Draft, assignments: dict[str, bytes]) -> None:
    """The leader has sent the assignment. A member that is not in it gets an empty one."""
    draft.records.append(group_record(draft.group, assignments))
    group = draft.group
    for member in list(group.members.values()):
        assigned = member._replace(assignment=assignments.get(member.member_id, b""))
        if member.sync_token is None:
            draft.update(assigned)
        else:
            draft.answer_sync(assigned, _assignment(group, assigned))
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
            f"its {len(group.members)} members have {size_bytes} bytes of metadata and assignments, and a record of "
            f"the log {max_record_bytes} at most (max.message.bytes of __consumer_offsets)"
        ),
    )


def append_failed(draft: Draft, token: int, member_id: str, error: ErrorCode) -> None:
    """The generation could not be written: all waiting members, and the leader, get the error, and all rejoin."""
    wait(draft, token, member_id)
    answer_all_syncs(draft, error)
    prepare(draft, f"{error.name} when the assignment was written")

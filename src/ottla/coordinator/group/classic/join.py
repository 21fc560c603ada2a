"""JoinGroup (v0–9). KIP-394: two-step joins; KIP-345: static members; KIP-800: reasons; KIP-814: skipping assignment.

A member without an id gets one. A dynamic member must then come again with that id (MEMBER_ID_REQUIRED), so that a
client that gave up leaves no member behind. A static member, and a client that does not know MEMBER_ID_REQUIRED, joins
at once. A known member rejoins: what that means depends on the group's state, see `_REJOIN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from ottla.base.limits import MAX_GROUP_METADATA_BYTES
from ottla.base.require import require
from ottla.coordinator.facts import Joined, Why
from ottla.coordinator.group.classic.draft import Draft, join_error, join_success, sync_error, who
from ottla.coordinator.group.classic.members import Member
from ottla.coordinator.group.classic.rebalance import complete_if_possible, prepare, rebalance
from ottla.coordinator.group.classic.records import group_record_in_steps, new_group_record, subscribed_topics_in_steps
from ottla.coordinator.group.classic.state import CONSUMER_PROTOCOL_TYPE, Group, GroupState
from ottla.coordinator.group.context import RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest


class Join(NamedTuple):
    """One JoinGroup on its way. `new_member_id` is used when the request has none."""

    token: int
    request: JoinGroupRequest
    context: RequestContext
    new_member_id: str
    #: v4+: the client understands MEMBER_ID_REQUIRED.
    member_id_required: bool
    #: v9+: the client understands `skip_assignment`.
    skip_assignment: bool


#: Characters of a member id that are a client's: the whole must fit into a record (MAX_STRING_BYTES).
_LONGEST_PREFIX: Final = 1_000


def new_member_id(request: JoinGroupRequest, context: RequestContext, unique: str) -> str:
    """G3: the client id, or the instance id of a static member, a dash, and something unique (Kafka: a UUID).

    Of a very long one it is the beginning.
    """
    prefix = context.client_id if request.group_instance_id is None else request.group_instance_id
    return f"{prefix[:_LONGEST_PREFIX]}-{unique}"


def join(draft: Draft, asked: Join, *, is_new_group: bool) -> None:
    """Carry out one JoinGroup on a group that exists, or that this request makes."""
    request = asked.request
    if not _accepts(draft, request.member_id):
        draft.gone((request.member_id,), Why.GROUP_MAX_SIZE, "the group has group.max.size members")
        draft.remove((request.member_id,))
        draft.reply(asked.token, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
    elif has_said_too_much(draft.group, request):
        _refuse(draft, asked)
    elif not draft.group.supports(request.protocol_type, request.protocols):
        draft.reply(asked.token, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif request.member_id == "":
        _join_unknown(draft, asked)
    else:
        _join_known(draft, asked)
    if is_new_group and not draft.records:
        # The group exists from now on, so that the member id that was given out stays valid after a restart.
        draft.records.append(new_group_record(draft.group))


def has_said_too_much(group: Group, request: JoinGroupRequest) -> bool:
    """Whether what all members say of themselves, in all their protocols, would be too much with this request."""
    room = MAX_GROUP_METADATA_BYTES - group.members.metadata_bytes
    return more_is_said(None, request) > room and more_is_said(group, request) > room


def more_is_said(group: Group | None, request: JoinGroupRequest) -> int:
    """How many bytes more, or less, members say of themselves with this request."""
    before = None if group is None else _said_before(group, request)
    size_bytes = sum(len(each.name) + len(each.metadata) for each in request.protocols)
    return size_bytes - (0 if before is None else before.metadata_bytes)


def _said_before(group: Group, request: JoinGroupRequest) -> Member | None:
    """The member whose protocols the request takes the place of: a static one that restarts has another id."""
    holder = None
    if request.group_instance_id is not None:
        holder = group.members.static_member_id(request.group_instance_id)
    return group.members.get(request.member_id if holder is None else holder)


def _refuse(draft: Draft, asked: Join) -> None:
    """The request says too much. A member stays as it is, with what it said before, and what it waits for.

    It is not removed, because the others would have to rebalance each time it asks. Like any other member it goes when
    it leaves, or with its session. An id that was only given out is given up, so that no rebalance waits for it.
    """
    request = asked.request
    if request.member_id in draft.group.pending_members and request.group_instance_id is None:
        draft.expect_no_heartbeat(request.member_id)
        draft.remove((request.member_id,))
        complete_if_possible(draft)
    draft.reply(asked.token, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))


def _accepts(draft: Draft, member_id: str) -> bool:
    """Whether `group.max.size` allows this member. In a rebalance only waiting members count: the last are refused."""
    group, limit = draft.group, draft.config.group_max_size
    member = group.members.get(member_id)
    match group.state:
        case GroupState.EMPTY:
            return True
        case GroupState.PREPARING_REBALANCE:
            return (member is not None and member.join_token is not None) or group.members.joins_waiting < limit
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member is not None or len(group.members) < limit


def _join_unknown(draft: Draft, asked: Join) -> None:
    request = asked.request
    if request.group_instance_id is not None:
        current = draft.group.members.static_member_id(request.group_instance_id)
        if current is not None:
            _replace_static(draft, asked, current)
        else:
            _add(draft, asked, asked.new_member_id)
    elif asked.member_id_required and len(draft.group.pending_members) >= draft.config.max_pending_members:
        # Kafka has no bound. Clients come again after this answer, when sessions of ids that nobody took are over.
        draft.reply(asked.token, join_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ""))
    elif asked.member_id_required:
        pending = draft.group.pending_members | {asked.new_member_id}
        draft.group = draft.group._replace(pending_members=pending)
        draft.expect_heartbeat(asked.new_member_id, request.session_timeout_ms)
        draft.reply(asked.token, join_error(ErrorCode.MEMBER_ID_REQUIRED, asked.new_member_id))
    else:
        _add(draft, asked, asked.new_member_id)


def _join_known(draft: Draft, asked: Join) -> None:
    request = asked.request
    if request.member_id in draft.group.pending_members:
        # Ids are only given out to dynamic members, so a static member with such an id is somebody else.
        if request.group_instance_id is not None:
            draft.reply(asked.token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        else:
            _add(draft, asked, request.member_id)
        return
    error = draft.group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        draft.reply(asked.token, join_error(error, request.member_id))
        return
    _REJOIN[draft.group.state](draft, asked, draft.group.members[request.member_id])


# -- a member that is known, by the state of the group


def _rejoin_preparing(draft: Draft, asked: Join, member: Member) -> None:
    _update_and_rebalance(draft, asked, member, "rejoined")


def _rejoin_completing(draft: Draft, asked: Join, member: Member) -> None:
    if member.protocols == asked.request.protocols:
        # The member's first answer was lost. Nothing has changed, so it gets the same answer again.
        draft.reply(asked.token, join_success(draft.group, member.member_id))
    else:
        _update_and_rebalance(draft, asked, member, "changed its subscription")


def _rejoin_stable(draft: Draft, asked: Join, member: Member) -> None:
    if member.protocols != asked.request.protocols:
        _update_and_rebalance(draft, asked, member, "changed its subscription")
    elif member.member_id == draft.group.leader:
        # The leader rejoins when something else than the members has changed, such as partitions or topics (G11).
        _update_and_rebalance(draft, asked, member, "is the leader and rejoined")
    else:
        draft.reply(asked.token, join_success(draft.group, member.member_id))


def _rejoin_never(draft: Draft, asked: Join, member: Member) -> None:
    require(False, f"group {draft.group.group_id} is {draft.group.state.value} and has member {member.member_id}")


_REJOIN: Final[Mapping[GroupState, Callable[[Draft, Join, Member], None]]] = {
    GroupState.EMPTY: _rejoin_never,
    GroupState.PREPARING_REBALANCE: _rejoin_preparing,
    GroupState.COMPLETING_REBALANCE: _rejoin_completing,
    GroupState.STABLE: _rejoin_stable,
}


# -- steps


def _add(draft: Draft, asked: Join, member_id: str) -> None:
    """A new member: it waits for the next generation."""
    request = asked.request
    group = draft.group
    if group.initial_delay is not None:
        group = group._replace(initial_delay=group.initial_delay._replace(member_added=True))
    if not group.members:
        group = group._replace(protocol_type=request.protocol_type)
    member = Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=asked.context.client_id,
        client_host=asked.context.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
        join_token=asked.token,
        is_new=True,
    )
    draft.group = group
    draft.add(member)
    _note_topics(draft, member)
    # A member cannot send heartbeats before it is answered. If its client has gone, this limit removes it.
    draft.expect_heartbeat(member_id, draft.config.new_member_join_timeout_ms)
    rebalance(draft, _reason(asked, f"{member_id} joined"))


def _updated(draft: Draft, asked: Join, member: Member) -> Member:
    request = asked.request
    changed = member._replace(
        protocols=request.protocols,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
    )
    waiting = draft.wait_for_join(changed, asked.token)
    _note_topics(draft, waiting)
    return waiting


def _note_topics(draft: Draft, member: Member) -> None:
    """Read what a consumer subscribes to now: a generation would read it for all its members at once."""
    if draft.group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        draft.group.members.subscriptions.note(member.member_id, (each.metadata for each in member.protocols))


def _update_and_rebalance(draft: Draft, asked: Join, member: Member, what: str) -> None:
    _updated(draft, asked, member)
    rebalance(draft, _reason(asked, f"{member.member_id} {what}"))


def _reason(asked: Join, what: str) -> str:
    return f"{what}; client's reason: {asked.request.reason or 'not provided'}"


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """The time to rejoin. Version 0 does not have it; there it is the session timeout."""
    return request.session_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms


# -- static members that come back (G15)


def _replace_static(draft: Draft, asked: Join, old_member_id: str) -> None:
    """A static member has restarted, or a second one has the same instance id: the newcomer takes its place.

    The former holder is fenced from now on. In a stable group nobody else notices, if the elected protocol stays.
    """
    old = draft.group.members[old_member_id]
    former_leader = draft.group.leader
    draft.answer_join(old, join_error(ErrorCode.FENCED_INSTANCE_ID, old_member_id))
    draft.reply(old.sync_token, sync_error(ErrorCode.FENCED_INSTANCE_ID))
    renamed = old._replace(member_id=asked.new_member_id, join_token=None, sync_token=None, is_new=False)
    draft.gone((old_member_id,), Why.INSTANCE_REPLACED, f"{renamed.member_id} has its group.instance.id now")
    draft.facts.append(Joined(who(renamed), old_member_id))
    draft.rename(old_member_id, renamed)
    draft.expect_no_heartbeat(old_member_id)
    draft.expect_heartbeat(renamed.member_id, asked.request.session_timeout_ms)
    member = _updated(draft, asked, renamed)
    match draft.group.state:
        case GroupState.STABLE if draft.group.elected_protocol() == draft.group.protocol:
            draft.then(_keep_assignment(draft, asked, member, former_leader))
        case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
            # The leader may be assigning partitions to the old member id at this moment.
            prepare(draft, _reason(asked, f"{member.member_id} took the place of {old_member_id}"))
        case _:
            complete_if_possible(draft)


def _keep_assignment(draft: Draft, asked: Join, member: Member, former_leader: str | None) -> Iterator[None]:
    """The generation goes on with the new member id, once that is in the log."""
    topics = yield from subscribed_topics_in_steps(draft.group)
    draft.group = draft.group._replace(subscribed_topics=topics)
    record = yield from group_record_in_steps(draft.group)
    draft.records.append(record)
    answer = join_success(draft.group, member.member_id)
    if asked.skip_assignment:
        answer = answer._replace(skip_assignment=draft.group.leader == member.member_id)
    else:
        # An old client that is told that it leads would assign again, so it is told the former leader's id.
        answer = answer._replace(leader=former_leader or "", members=())
    draft.answer_join(member, answer)

"""Members that go: by themselves, for a while as static members, or because they are silent or do not let go."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from dataclasses import replace

from ottla.base.limits import MAX_NAMES_AT_ONCE
from ottla.coordinator.facts import Why
from ottla.coordinator.group.consumer.errors import RefusedError
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import Assigned, Member
from ottla.coordinator.group.consumer.records import (
    current_record,
    epoch_record,
    member_tombstones,
    regex_record,
)
from ottla.coordinator.group.consumer.room import CLASSIC_JOIN, CLASSIC_SYNC, REVOKE, SESSION, Draft
from ottla.coordinator.group.consumer.states import STATIC_LEAVE_EPOCH
from ottla.coordinator.group.consumer.subscriptions import after
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


def leave(
    draft: Draft, request: ConsumerGroupHeartbeatRequest
) -> Generator[None, None, ConsumerGroupHeartbeatResponse]:
    """A heartbeat with epoch -1 or -2: the member leaves, for good or for a while."""
    member = leaving_member(draft.group, request.member_id, request.instance_id)
    if request.instance_id is not None and request.member_epoch == STATIC_LEAVE_EPOCH:
        draft.gone(member, Why.LEFT, "for a while: its instance id keeps its partitions")
        draft.records.append(current_record(draft.group.group_id, _gone_for_a_while(member)))
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=STATIC_LEAVE_EPOCH)
    yield from fence(draft, (member,), Why.LEFT)
    return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)


def leaving_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """The member that a request means; RefusedError when it is not there, or another one has its instance id."""
    if instance_id is None:
        return known_member(group, member_id)
    member = known_static_member(group, instance_id)
    check_not_fenced(member, member_id, instance_id)
    return member


def known_member(group: ConsumerGroup, member_id: str) -> Member:
    """The member with this id, or RefusedError."""
    member = group.members.get(member_id)
    if member is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
        )
    return member


def known_static_member(group: ConsumerGroup, instance_id: str) -> Member:
    """The member with this instance id, or RefusedError."""
    member = group.static_member(instance_id)
    if member is None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    return member


def check_not_fenced(member: Member, member_id: str, instance_id: str) -> None:
    """RefusedError when another member has taken the instance id."""
    if member.member_id != member_id:
        raise RefusedError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )


def _gone_for_a_while(member: Member) -> Member:
    """The member keeps its part, since epoch 0: who comes back with the instance id has it from its own first epoch."""
    since_zero: Assigned = {topic_id: dict.fromkeys(numbers, 0) for topic_id, numbers in member.assigned.items()}
    return replace(member, member_epoch=STATIC_LEAVE_EPOCH, assigned=since_zero, revoking={})


def fence(
    draft: Draft, members: Collection[Member], why: Why, text: str = "", reasons: Mapping[str, str] | None = None
) -> Generator[None, None, None]:
    """Remove members, and raise the group's epoch so that others get what they had. In steps for very many topics.

    When only members of the classic protocol stay, the group may become a classic one instead. `reasons` has, by member
    id, what was said of single ones; `text` is said of the others.
    """
    for member in members:
        draft.gone(member, why, (reasons or {}).get(member.member_id, text))
        draft.soft.joining.discard(member.member_id)
    if not members or (yield from draft.room.downgrade(draft, members)):
        return
    group = draft.group
    for member in members:
        draft.records += member_tombstones(group.group_id, member.member_id)
    if any(len(member.assigned) > MAX_NAMES_AT_ONCE for member in members):
        yield
    left = after(group, members)
    for regex in group.regexes.keys() | group.regex_members.keys():
        if group.regex_members[regex] and regex not in left.regex_members:
            draft.records.append(regex_record(group.group_id, regex, None))
    metadata_hash = yield from draft.room.hashes.steps_of_group(left.topics())
    draft.began(f"{', '.join(member.member_id for member in members)} {'left' if why is Why.LEFT else 'expelled'}")
    draft.records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
    for member in members:
        draft.stop(member.member_id, SESSION, REVOKE, CLASSIC_JOIN, CLASSIC_SYNC)

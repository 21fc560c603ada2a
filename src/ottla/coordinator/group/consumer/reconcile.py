"""One member's next step towards its part of the target (KIP-848, "member reconciliation").

A member first gives up what is not in its target, and stays in its epoch until it says that it has. Then it moves to
the target's epoch and gets what is free. So a partition is never with two members: it is free only when its last
holder has said that it gave it up, or is gone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from ottla.base.limits import MAX_NAMES_AT_ONCE
from ottla.coordinator.group.consumer.errors import RefusedError
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import Assigned, Member, Target
from ottla.coordinator.group.consumer.states import MemberState
from ottla.wire.errors import ErrorCode


class Goal(NamedTuple):
    """Where a member shall go."""

    epoch: int
    target: Target
    #: Those topics of the target and of what the member has that it subscribes to just now, and that exist.
    subscribed: Set[bytes]
    #: The subscription has changed with this request: what is outside it must go even without a new target.
    subscription_changed: bool
    #: What the member says it has; None when it did not say.
    owned: Mapping[bytes, Iterable[int]] | None


def reconcile(group: ConsumerGroup, member: Member, goal: Goal) -> Generator[None, None, Member]:
    """The member after its next step, or the same one when there is nothing to do. In steps for very many topics.

    RefusedError (FENCED_MEMBER_EPOCH) for a member whose state only a later version knows: it must begin anew.
    """
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch != goal.epoch:
                return (yield from _next(group, member, goal, member.member_epoch))
            return _shrink(member, goal) if goal.subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(member.revoking, goal):
                return _shrink(member, goal) if goal.subscription_changed else member
            return (yield from _next(group, member, goal, member.member_epoch))
        case MemberState.UNRELEASED_PARTITIONS:
            return (yield from _next(group, member, goal, member.member_epoch))
        case MemberState.UNKNOWN:
            if goal.owned is None or goal.owned:
                raise RefusedError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return (yield from _next(group, member, goal, goal.epoch))


def _still_owns(partitions: Assigned, goal: Goal) -> bool:
    """Whether the member may still have one of `partitions`: it said so, or it did not say."""
    if goal.owned is None:
        return True
    return any(number in partitions.get(topic_id, {}) for topic_id, numbers in goal.owned.items() for number in numbers)


def _shrink(member: Member, goal: Goal) -> Member:
    """Take away topics that the member does not subscribe to any more, within its epoch."""
    gone = {topic_id: numbers for topic_id, numbers in member.assigned.items() if topic_id not in goal.subscribed}
    if not gone:
        return member
    kept = {topic_id: numbers for topic_id, numbers in member.assigned.items() if topic_id in goal.subscribed}
    revoking = dict(member.revoking)
    for topic_id, numbers in gone.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **numbers}
    if _still_owns(revoking, goal):
        return member.moved(MemberState.UNREVOKED_PARTITIONS, member.member_epoch, kept, revoking)
    return replace(member, previous_epoch=member.member_epoch, assigned=kept)


def _next(group: ConsumerGroup, member: Member, goal: Goal, epoch: int) -> Generator[None, None, Member]:
    """Towards the target: give up first, then get what is free."""
    kept: dict[bytes, Mapping[int, int]] = {}
    revoking: dict[bytes, Mapping[int, int]] = {}
    free: dict[bytes, list[int]] = {}
    waits = False
    for at, topic_id in enumerate(dict.fromkeys((*goal.target, *member.assigned))):
        if at and at % MAX_NAMES_AT_ONCE == 0:
            yield
        wanted = goal.target.get(topic_id, frozenset()) if topic_id in goal.subscribed else frozenset()
        has = member.assigned.get(topic_id, {})
        stays = {number: since for number, since in has.items() if number in wanted}
        goes = {number: since for number, since in has.items() if number not in wanted}
        missing = sorted(wanted - stays.keys())
        own = member.revoking.get(topic_id, {})  # what the member itself gives up is no other's
        gets = [number for number in missing if number in own or group.partition_epoch(topic_id, number) == -1]
        waits = waits or len(gets) < len(missing)
        for found, where in ((stays, kept), (goes, revoking)):
            if found:
                where[topic_id] = found
        if gets:
            free[topic_id] = gets
    if revoking and _still_owns(revoking, goal):
        return member.moved(MemberState.UNREVOKED_PARTITIONS, epoch, kept, revoking)
    for at, (topic_id, gets) in enumerate(free.items()):
        if at and at % MAX_NAMES_AT_ONCE == 0:
            yield
        kept[topic_id] = {**kept.get(topic_id, {}), **dict.fromkeys(gets, goal.epoch)}
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return member.moved(state, goal.epoch, kept, {})

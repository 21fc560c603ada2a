"""ConsumerGroupHeartbeat (v0–1, KIP-848): a member joins, stays, changes its subscription, or leaves.

A heartbeat does three things in turn:
1. the member is made or updated; when what the group subscribes to changes with it, the group's epoch rises;
2. when the group's epoch is beyond the target's, a new target is computed;
3. the member takes its next step towards its part of the target.

What the group subscribes to also changes when topics do. That is seen here, at the next heartbeat of any member.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from ottla.assign.server import SubscriptionType
from ottla.base.limits import MAX_NAMES_AT_ONCE, MAX_SUBSCRIBED_NAMES
from ottla.coordinator.group.consumer.errors import RefusedError
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.leave import check_not_fenced, known_member, known_static_member
from ottla.coordinator.group.consumer.member import Assigned, Member
from ottla.coordinator.group.consumer.pace import heartbeat_interval_ms
from ottla.coordinator.group.consumer.reconcile import Goal, reconcile
from ottla.coordinator.group.consumer.records import (
    current_record,
    current_record_steps,
    epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    target_record,
)
from ottla.coordinator.group.consumer.regexes import RegexChange, update_regex
from ottla.coordinator.group.consumer.room import REVOKE, Draft
from ottla.coordinator.group.consumer.states import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, MemberState
from ottla.coordinator.group.consumer.subscriptions import Subscriptions, after, topic_names
from ottla.coordinator.group.consumer.target import MemberTarget, update_target
from ottla.coordinator.group.context import RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


class Heartbeat(NamedTuple):
    """One heartbeat on its way; `member_id` is the request's, or a new one where version 0 left it out."""

    request: ConsumerGroupHeartbeatRequest
    context: RequestContext
    member_id: str

    @property
    def joins(self) -> bool:
        return self.request.member_epoch == JOIN_EPOCH

    @property
    def owned(self) -> Mapping[bytes, tuple[int, ...]] | None:
        """What the member says it has; None when it does not say."""
        topics = self.request.topic_partitions
        return None if topics is None else {topic.topic_id: topic.partitions for topic in topics}


def check_request(
    request: ConsumerGroupHeartbeatRequest, assignors: Collection[str], *, member_id_required: bool
) -> None:
    """RefusedError (INVALID_REQUEST, UNSUPPORTED_ASSIGNOR) for a request that makes no sense in any group.

    `member_id_required`: version 1 and later make their member ids themselves (KIP-1082).
    """
    epoch = request.member_epoch
    if member_id_required or epoch > 0 or epoch == LEAVE_EPOCH:
        _check_text(request.member_id, "MemberId can't be empty.")
    _check_text(request.group_id, "GroupId can't be empty.")
    _check_text(request.instance_id, "InstanceId can't be empty.")
    _check_text(request.rack_id, "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        _check(request.topic_partitions == (), "TopicPartitions must be empty when (re-)joining.")
        _check(
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == STATIC_LEAVE_EPOCH:
        _check(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _check(epoch > STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
    _check(
        len(request.subscribed_topic_names or ()) <= MAX_SUBSCRIBED_NAMES,
        f"SubscribedTopicNames has more than {MAX_SUBSCRIBED_NAMES} names; a SubscribedTopicRegex can mean more.",
    )
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check(good: bool, message: str) -> None:
    if not good:
        raise RefusedError(ErrorCode.INVALID_REQUEST, message)


def _check_text(text: str | None, message: str) -> None:
    _check(text is None or text.strip() != "", message)


def check_room(group: ConsumerGroup, member_id: str, limit: int) -> None:
    """RefusedError (GROUP_MAX_SIZE_REACHED) when a new member does not fit into the group."""
    if len(group.members) >= limit and member_id not in group.members:
        raise RefusedError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def heartbeat(draft: Draft, asked: Heartbeat) -> Generator[None, None, ConsumerGroupHeartbeatResponse]:
    """Carry out one heartbeat of a member that joins or stays: in steps if it names or has very many topics, or if the
    target of very many members is due.

    In between topics may come and go. The next heartbeat sees that, as it does behind this one.
    """
    group, request = draft.group, asked.request
    check_room(group, request.member_id, draft.room.config.consumer_max_size)
    member = _member(draft, asked)
    updated = _updated(member, asked)
    draft.joined(updated)
    names_changed = write_member(draft, member, updated)
    regex = update_regex(draft, member, updated, asked.context.sees)
    has_many = names_changed and len(updated.topic_names) > MAX_NAMES_AT_ONCE
    if has_many:
        yield
    bump = names_changed or regex is RegexChange.KNOWN
    changed = yield from update_subscriptions(draft, member, updated, bump=bump)
    if has_many:
        yield
    target = yield from update_target(draft, changed.epoch, updated, changed.kind)
    subscription_changed = names_changed or regex is not RegexChange.NONE
    updated = yield from step(draft, updated, target, owned=asked.owned, subscription_changed=subscription_changed)
    draft.expect_heartbeat(updated.member_id)
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    tells = asked.joins or is_full or member.assigned != updated.assigned
    is_wide = has_many or (tells and len(updated.assigned) > MAX_NAMES_AT_ONCE)
    if is_wide:
        yield
    assignment = _assignment(updated.assigned) if tells else None
    if is_wide:
        yield  # they are written and read now
    return ConsumerGroupHeartbeatResponse(
        member_id=updated.member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=heartbeat_interval_ms(draft, updated, epoch=changed.epoch, target_epoch=target.epoch),
        assignment=assignment,
    )


# -- the member


def _member(draft: Draft, asked: Heartbeat) -> Member:
    """The member as it is before this heartbeat: known, new, or in the place of a static one."""
    group, request = draft.group, asked.request
    if request.instance_id is None:
        member = group.members.get(asked.member_id)
        if member is None:
            return Member(asked.member_id) if asked.joins else known_member(group, asked.member_id)
        check_epoch(member, request.member_epoch, asked.owned)
        return member
    if asked.joins:
        return static_member(draft, asked.member_id, request.instance_id, is_classic=False)
    member = known_static_member(group, request.instance_id)
    check_not_fenced(member, asked.member_id, request.instance_id)
    check_epoch(member, request.member_epoch, asked.owned)
    return member


def static_member(draft: Draft, member_id: str, instance_id: str, *, is_classic: bool) -> Member:
    """A static member joins: new, or in the place of the one that had its instance id.

    RefusedError (UNRELEASED_INSTANCE_ID) while the other is still there; a member of the classic protocol gives way.
    A member that has a part already gets the other's instead, as in Kafka: nobody has its own until the group's epoch
    rises (`static_after_dynamic`). No client of Kafka's does so.
    As in Kafka the other may be the same member, whose first answer was lost: it then waits for the end of its session
    (`static_out_of_order` in the talks).
    """
    group = draft.group
    before = group.static_member(instance_id)
    if before is None:
        return group.members.get(member_id, Member(member_id))
    if not is_classic and not before.is_classic and before.member_epoch != STATIC_LEAVE_EPOCH:
        raise RefusedError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {before.member_id} member.",
        )
    draft.soft.joining.discard(before.member_id)
    member = replace(before, member_id=member_id, member_epoch=0, previous_epoch=0)
    draft.records += member_tombstones(group.group_id, before.member_id)
    draft.records.append(member_record(group.group_id, member))
    draft.records.append(target_record(group.group_id, member_id, group.target.get(before.member_id, {})))
    draft.records.append(current_record(group.group_id, member))
    return member


def check_epoch(member: Member, epoch: int, owned: Mapping[bytes, Iterable[int]] | None) -> None:
    """RefusedError (FENCED_MEMBER_EPOCH) for an epoch that is neither the member's nor the one before it.

    A member that did not hear of its new epoch still says the one before; it must then have no more than it should.
    """
    if epoch == JOIN_EPOCH or epoch == member.member_epoch:
        return
    size = "greater" if epoch > member.member_epoch else "smaller"
    if size == "smaller" and epoch == member.previous_epoch and _is_subset(owned, member.assigned):
        return
    raise RefusedError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: Mapping[bytes, Iterable[int]] | None, assigned: Assigned) -> bool:
    return owned is not None and all(
        topic_id in assigned and assigned[topic_id].keys() >= set(numbers) for topic_id, numbers in owned.items()
    )


def _updated(member: Member, asked: Heartbeat) -> Member:
    """The member with what the request says; what it does not say stays."""
    request = asked.request
    names = request.subscribed_topic_names
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=member.topic_regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
        client_id=asked.context.client_id,
        client_host=asked.context.client_host,
        classic=None,
    )


# -- steps that members of both protocols share


def write_member(draft: Draft, member: Member, updated: Member) -> bool:
    """Write the member if it has changed; whether the topics have that it names."""
    if member == updated:
        return False
    draft.records.append(member_record(draft.group.group_id, updated))
    return member.topic_names != updated.topic_names


class Subscribed(NamedTuple):
    """The group's epoch after a heartbeat's first step, and how its members subscribe."""

    epoch: int
    #: Looks at all topics, so it is asked only when there is a target to compute.
    kind: Callable[[], SubscriptionType]


def update_subscriptions(
    draft: Draft, member: Member, updated: Member, *, bump: bool
) -> Generator[None, None, Subscribed]:
    """Raise the group's epoch when the member's subscription has changed (`bump`), or topics of the group have.

    In steps where these are very many; what changes in between is seen next time.
    """
    group, version = draft.group, draft.room.topics.version
    seen = (version, group.epoch)
    replaced = group.static_member(updated.instance_id)
    gone = replaced if replaced is not None else group.members.get(member.member_id)

    @cache
    def now() -> Subscriptions:
        return after(group, () if gone is None else (gone,), (updated,))

    def kind() -> SubscriptionType:
        return now().kind(len(group.members) + (gone is None))

    if not bump and draft.soft.seen == seen:
        return Subscribed(group.epoch, kind)
    metadata_hash = yield from draft.room.hashes.steps_of_group(now().topics())
    epoch = group.epoch
    if bump or metadata_hash != group.metadata_hash:
        epoch += 1
        draft.began(_why(group, updated, bump=bump))
        draft.records.append(epoch_record(group.group_id, epoch, metadata_hash))
    if group.has_partition_metadata:
        draft.records.append(partition_metadata_tombstone(group.group_id))
    draft.soft.seen = (version, epoch)
    return Subscribed(epoch, kind)


def _why(group: ConsumerGroup, member: Member, *, bump: bool) -> str:
    if not bump:
        return "the topics have changed"
    verb = "changed its subscription" if member.member_id in group.members else "joined"
    return f"{member.member_id} {verb}"


def step(
    draft: Draft,
    member: Member,
    target: MemberTarget,
    *,
    owned: Mapping[bytes, Iterable[int]] | None,
    subscription_changed: bool,
) -> Generator[None, None, Member]:
    """The member's next step towards its part of the target, written when there is one. Of very many topics in parts.

    A topic that goes meanwhile is one that has gone behind it.
    """
    group = draft.group
    if not subscription_changed and member.is_reconciled_to(target.epoch):
        return member
    names = topic_names(member, group.regexes)
    subscribed: set[bytes] = set()
    for number, topic_id in enumerate(target.target.keys() | member.assigned.keys()):
        if number and number % MAX_NAMES_AT_ONCE == 0:
            yield
        topic = draft.room.topics.find_id(topic_id)
        if topic is not None and topic.name in names:
            subscribed.add(topic_id)
    goal = Goal(target.epoch, target.target, subscribed, subscription_changed, owned)
    updated = yield from reconcile(group, member, goal)
    if updated == member:
        return member
    draft.records.append((yield from current_record_steps(group.group_id, updated)))
    draft.stepped(member, updated, target.target)
    if not updated.is_classic:
        if updated.state is MemberState.UNREVOKED_PARTITIONS:
            draft.start(REVOKE, updated.member_id, updated.rebalance_timeout_ms)
        else:
            draft.stop(updated.member_id, REVOKE)
    return updated


def _assignment(assigned: Assigned) -> Assignment:
    return Assignment(tuple(TopicPartitions(topic_id, tuple(numbers)) for topic_id, numbers in assigned.items()))

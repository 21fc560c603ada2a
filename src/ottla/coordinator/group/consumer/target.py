"""The target assignment: which member shall have what in the end. An assignor of the server's side computes it.

Apache Kafka's own assignors run at once for groups of usual size, so the heartbeat that changed the group gets its
answer from the new target. Others, and large groups, are computed beside the event loop (`AssignPartitions`); meanwhile
heartbeats go on with the target before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.assign.java_hash import string_hash
from ottla.assign.server import (
    AssignorError,
    GroupSpec,
    MemberSpec,
    Partitions,
    RangeServerAssignor,
    ServerAssignor,
    SubscriptionType,
    TopicSpec,
    UniformAssignor,
    order,
)
from ottla.base.clock import lasts
from ottla.base.limits import INLINE_COST_OF_MEMBER, MAX_INLINE_ASSIGNMENT, MAX_NAMES_AT_ONCE, MEMBERS_PER_STEP
from ottla.coordinator.decision import AssignPartitions, LogRecord, ReportFault
from ottla.coordinator.group.consumer.errors import RefusedError
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import NO_TARGET, Member, Target
from ottla.coordinator.group.consumer.records import target_epoch_record, target_record
from ottla.coordinator.group.consumer.room import Draft, Room
from ottla.coordinator.group.consumer.subscriptions import topic_names
from ottla.wire.errors import ErrorCode


class MemberTarget(NamedTuple):
    """A member's part of the target, and the epoch of that target."""

    epoch: int
    target: Target


def update_target(
    draft: Draft, epoch: int, member: Member, kind: Callable[[], SubscriptionType]
) -> Generator[None, None, MemberTarget]:
    """The target for `member`, computed anew when the group's epoch has gone beyond the target's; in steps.

    RefusedError (UNKNOWN_SERVER_ERROR) when one of Kafka's assignors finds no assignment, or has a fault.
    """
    group = draft.group
    last = MemberTarget(group.target_epoch, group.target_of(member))
    if group.target_epoch >= epoch or not is_due(draft, epoch):
        return last
    name = preferred_assignor(draft.room, group, member)
    assignor = draft.room.assignors[name]
    spec = yield from group_spec(draft.room, group, member, kind())
    if not _runs_inline(assignor, spec):
        draft.soft.assigning = object()
        draft.effects.append(AssignPartitions(group.group_id, epoch, assignor, spec, draft.soft.assigning))
        return last
    try:
        computed = assignor.assign(spec)
    except AssignorError as fault:
        raise _not_computed(epoch, fault) from None
    except Exception as fault:  # noqa: BLE001 - the operator is told; the member hears as much as of the other
        report = ReportFault(f"assignor {name} failed on epoch {epoch} of group {group.group_id}", fault)
        raise _not_computed(epoch, fault, report) from None
    written = target_records(group, spec.members, computed, epoch, draft.now_ms)
    draft.records += (record for record in written if record is not None)
    return MemberTarget(epoch, _frozen(computed.get(member.member_id, {})))


def _not_computed(epoch: int, fault: Exception, *reports: ReportFault) -> RefusedError:
    text = f"Failed to compute a new target assignment for epoch {epoch}: {fault}"
    return RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, text, reports)


def is_due(draft: Draft, epoch: int) -> bool:
    """Whether a new target may be computed now: not too soon after the last one (KIP-1263), and not twice."""
    soft = draft.soft
    if soft.assigning is not None:
        return False
    if soft.failed is not None and soft.failed.epoch >= epoch:
        retry_ms = draft.room.config.assignor_retry_ms
        if lasts(soft.failed.until_ms - retry_ms, retry_ms, draft.now_ms):
            return False
    interval_ms = draft.room.settings.assignment_interval_ms(draft.group.group_id)
    last_ms = draft.group.target_timestamp_ms
    return last_ms == 0 or not lasts(last_ms, interval_ms, draft.now_ms)


def preferred_assignor(room: Room, group: ConsumerGroup, member: Member | None = None) -> str:
    """The assignor that most members ask for, with `member` as it will be; else the broker's first."""
    counts = dict(group.assignors)
    if member is not None:
        before = group.static_member(member.instance_id) or group.members.get(member.member_id)
        if before is not None and before.server_assignor is not None:
            counts[before.server_assignor] -= 1
        if member.server_assignor is not None:
            counts[member.server_assignor] = counts.get(member.server_assignor, 0) + 1
    known = [name for name in order.member_ids(counts) if counts[name] > 0 and name in room.assignors]
    best = max((counts[name] for name in known), default=0)
    return next((name for name in known if counts[name] == best), room.default_assignor)


def _runs_inline(assignor: ServerAssignor, spec: GroupSpec) -> bool:
    if not isinstance(assignor, UniformAssignor | RangeServerAssignor):
        return False
    cost = INLINE_COST_OF_MEMBER * len(spec.members) + sum(topic.partitions for topic in spec.topics.values())
    if isinstance(assignor, RangeServerAssignor) or spec.subscription_type is SubscriptionType.HETEROGENEOUS:
        cost += sum(len(member.topic_ids) for member in spec.members.values())
    return cost <= MAX_INLINE_ASSIGNMENT


def group_spec(
    room: Room, group: ConsumerGroup, member: Member | None, kind: SubscriptionType
) -> Generator[None, None, GroupSpec]:
    """The group as an assignor sees it, with `member` as it will be. It takes steps where there are many members."""
    members = dict(group.members)
    targets = dict(group.target)
    if member is not None:
        before = group.static_member(member.instance_id)
        if before is not None and before.member_id != member.member_id:
            members.pop(before.member_id, None)
            targets[member.member_id] = group.target.get(before.member_id, NO_TARGET)
        members[member.member_id] = member
    topics: dict[bytes, TopicSpec] = {}
    ids: dict[tuple[frozenset[str], str | None], list[bytes]] = {}
    specs: dict[str, MemberSpec] = {}
    hashes: dict[str, int] = {}
    for number, member_id in enumerate(members, 1):
        hashes[member_id] = string_hash(member_id)
        if number % MEMBERS_PER_STEP == 0:
            yield
    topics_of_all = max(1, sum(map(len, targets.values())))
    at_once = max(1, min(MEMBERS_PER_STEP, MAX_NAMES_AT_ONCE * len(members) // topics_of_all))
    for number, member_id in enumerate(order.member_ids(members, hashes.__getitem__), 1):
        if number % at_once == 0:
            yield
        each = members[member_id]
        subscribed = each.topic_names, each.topic_regex
        if subscribed not in ids:
            ids[subscribed] = yield from _topic_ids(room, topic_names(each, group.regexes), topics)
        assigned = order.part(targets.get(member_id, NO_TARGET))
        specs[member_id] = MemberSpec(ids[subscribed], assigned, each.instance_id, each.rack_id)
    return GroupSpec(specs, topics, kind)


def _topic_ids(room: Room, names: Iterable[str], topics: dict[bytes, TopicSpec]) -> Generator[None, None, list[bytes]]:
    """The ids of those topics that exist; what an assignor may know of them goes into `topics`."""
    found = []
    for number, name in enumerate(names):
        if number and number % MAX_NAMES_AT_ONCE == 0:
            yield
        topic = room.topics.find(name)
        if topic is not None:
            topics[topic.topic_id] = TopicSpec(name, topic.partitions, topic.racks)
            found.append(topic.topic_id)
    if len(found) <= MAX_NAMES_AT_ONCE:
        return order.subscription(found)
    yield
    ordered = order.subscription(found)
    yield
    return ordered


def holders(group: ConsumerGroup, members: Mapping[str, MemberSpec]) -> dict[str, str | None]:
    """Who has the place of each of these members now; None for one that is gone.

    A static member may have come back with another id meanwhile, which raises no epoch. Who was one of these itself has
    its own place alone.
    """
    found: dict[str, str | None] = {}
    for member_id, each in members.items():
        heir = None if each.instance_id is None else group.static_members.get(each.instance_id)
        found[member_id] = member_id if member_id in group.members else None if heir in members else heir
    return found


def target_records(
    group: ConsumerGroup,
    member_ids: Iterable[str],
    computed: Mapping[str, Partitions],
    epoch: int,
    now_ms: int,
) -> Iterator[LogRecord | None]:
    """A record for each member whose part has changed, and at the end the target's epoch. None between two steps on the
    way to those of very many topics."""
    topics = 0
    for member_id in member_ids:
        target = _frozen(computed.get(member_id, {}))
        if (topics := topics + len(target)) > MAX_NAMES_AT_ONCE:
            topics = 0
            yield None
        if group.target.get(member_id) != target:
            yield target_record(group.group_id, member_id, target)
    yield target_epoch_record(group.group_id, epoch, now_ms)


def _frozen(partitions: Partitions) -> Target:
    return {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items() if len(numbers)}

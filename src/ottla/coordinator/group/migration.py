"""How a group becomes one of another kind (KIP-848, `group.consumer.migration.policy`). Above both rooms.

Up: a member of the consumer protocol joins a classic group that has members. The group is converted first: generation
and assignment stay, all members are now members of a consumer group that use the classic protocol (`mixed`).
Down: the last member of the consumer protocol leaves, or comes back as one of the classic protocol, and the others all
use the classic one. Then the group is a classic group again, and rebalances. A group without members simply gives way.
Either way a member takes along all that it may still have, not only what it shall have: nobody else gets that before.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import replace
from typing import Final

from ottla.base.errors import CorruptDataError
from ottla.base.limits import MAX_NAMES_AT_ONCE, MAX_REQUEST_ELEMENTS, MEMBERS_PER_STEP
from ottla.base.steps import Pace
from ottla.coordinator.facts import Converted
from ottla.coordinator.group.classic import rebalance
from ottla.coordinator.group.classic.draft import Draft as ClassicDraft
from ottla.coordinator.group.classic.draft import join_error, sync_error
from ottla.coordinator.group.classic.members import Member as ClassicMember
from ottla.coordinator.group.classic.members import Members
from ottla.coordinator.group.classic.records import group_record_in_steps, group_tombstone, subscribed_topics_in_steps
from ottla.coordinator.group.classic.state import CONSUMER_PROTOCOL_TYPE, Group, GroupState
from ottla.coordinator.group.consumer.errors import RefusedError
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import Member, in_epoch
from ottla.coordinator.group.consumer.records import (
    current_record_steps,
    epoch_record,
    group_tombstones,
    member_record,
    target_epoch_record,
    target_record,
)
from ottla.coordinator.group.consumer.room import CLASSIC_JOIN, CLASSIC_SYNC, REVOKE, SESSION, Draft, Room
from ottla.coordinator.group.consumer.states import MemberState
from ottla.coordinator.group.kinds import AnyGroup
from ottla.wire.codec_errors import TooManyElementsError
from ottla.wire.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from ottla.wire.consumer_protocol import decode_assignment, decode_subscription, encode_assignment
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic
from ottla.wire.messages.join_group import JoinGroupRequestProtocol

#: What a member costs beside its topics, in topics.
_MEMBER: Final = 20


def make_room(group: AnyGroup, draft: Draft) -> Generator[None, None, None]:
    """Records that put the consumer group of `draft` in the place of `group`; RefusedError when it may not be.

    In steps where a member has very many topics.
    """
    if isinstance(group, Group) and group.is_empty:
        draft.records.append(group_tombstone(group.group_id))
    elif isinstance(group, Group):
        yield from _upgrade(group, draft)
    else:
        raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")


# -- up


def _upgrade(group: Group, draft: Draft) -> Generator[None, None, None]:
    """The classic group as a consumer group: in `draft.group`, which nobody knows yet, and as records."""
    _check_upgrade(group, draft)
    for waiting in group.members.values():
        draft.reply(waiting.join_token, join_error(ErrorCode.REBALANCE_IN_PROGRESS, waiting.member_id))
        draft.reply(waiting.sync_token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    new, epoch = draft.group, group.generation
    new.apply_epoch(epoch, 0)
    new.apply_target_epoch(epoch, 0)
    owned: list[tuple[int, Member, dict[bytes, set[int]]]] = []
    pace = Pace(MAX_NAMES_AT_ONCE)
    for each in group.members.values():
        subscription, assignment = _decoded(group, each)
        cost = _cost(subscription, assignment)
        if pace.is_over(cost):
            yield
        member = _consumer_member(group, each, subscription, _partitions(draft.room, assignment.assigned_partitions))
        if pace.is_over(cost):
            yield
        owned.append((subscription.generation_id, member, _partitions(draft.room, subscription.owned_partitions)))
        if pace.is_over(cost):
            yield
        if any(new.partition_epoch(topic, number) != -1 for topic, has in member.assigned.items() for number in has):
            raise _cannot_upgrade(group, "its assignor gives a partition to several members")
        new.apply_target(member.member_id, {topic: frozenset(numbers) for topic, numbers in member.assigned.items()})
        if pace.is_over(cost):
            yield
        new.apply_member(member)
        draft.expect_heartbeat(each.member_id, each.session_timeout_ms)
        if pace.is_over(cost):
            yield
    for _, member, has in sorted(owned, key=lambda each: -each[0]):  # who is behind has lost what others claim
        _keep(new, member, has)
        if pace.is_over(_MEMBER + sum(map(len, has.values()))):
            yield
    if group.state is GroupState.STABLE:
        metadata_hash = yield from draft.room.hashes.steps_of_group(frozenset(new.topics()))
        if (yield from _is_settled(new, draft.room)):
            new.apply_epoch(epoch, metadata_hash)
    draft.facts.append(Converted(new.kind))
    yield from _records(new, draft)


def _cost(subscription: ConsumerProtocolSubscription, assignment: ConsumerProtocolAssignment) -> int:
    """What a member is, in topics: each that it names, and each partition that it has."""
    named = (assignment.assigned_partitions, subscription.owned_partitions)
    return _MEMBER + len(subscription.topics) + sum(1 + len(each.partitions) for part in named for each in part)


def _records(new: ConsumerGroup, draft: Draft) -> Generator[None, None, None]:
    """The group's records, those of so many topics in each step."""
    group_id, pace = new.group_id, Pace(MAX_NAMES_AT_ONCE)
    draft.records.append(group_tombstone(group_id))
    for member in new.members.values():
        draft.records.append(member_record(group_id, member))
        if pace.is_over(_MEMBER + len(member.topic_names)):
            yield
    draft.records.append(epoch_record(group_id, new.epoch, new.metadata_hash))
    for member_id, target in new.target.items():
        draft.records.append(target_record(group_id, member_id, target))
        if pace.is_over(_MEMBER + sum(1 + len(numbers) for numbers in target.values())):
            yield
    draft.records.append(target_epoch_record(group_id, new.target_epoch, 0))
    for member in new.members.values():
        draft.records.append((yield from current_record_steps(group_id, member)))
        if pace.is_over(_MEMBER + sum(1 + len(numbers) for numbers in member.assigned.values())):
            yield


def _keep(new: ConsumerGroup, member: Member, owned: Mapping[bytes, Collection[int]]) -> None:
    """Let the member keep what it owned when it joined last and is nobody's now, until it says that it gave it up.

    A cooperative member joins with all that it has (KIP-429), and revokes some of it when it knows its assignment.
    """
    still = {
        topic_id: free
        for topic_id, numbers in owned.items()
        if (free := [number for number in numbers if new.partition_epoch(topic_id, number) == -1])
    }
    if still:
        revoking = in_epoch(still, member.member_epoch)
        new.apply_member(replace(member, state=MemberState.UNREVOKED_PARTITIONS, revoking=revoking))


def _is_settled(new: ConsumerGroup, room: Room) -> Generator[None, None, bool]:
    """Whether the assignment of the classic group can be the target: every partition is with somebody. In steps.

    Else the hash of the topics is left open, so that the next step raises the epoch and computes a target. In Kafka
    the member that comes does so, because it subscribes anew. A static member need not: it may take the place of one
    whose group was rebalancing, subscribe as that did, and nobody would ever get the partitions.

    It is asked behind the hash: of what changes between the two the hash may know, and this does. What changes later
    is not in the hash, and the next heartbeat sees it.
    """
    given: dict[bytes, set[int]] = {}
    pace = Pace(MAX_NAMES_AT_ONCE)
    for target in new.target.values():
        for topic_id, numbers in target.items():
            if room.topics.find_id(topic_id) is None:
                return False
            given.setdefault(topic_id, set()).update(numbers)
            if pace.is_over(1 + len(numbers)):
                yield
    for name in new.topics():
        topic = room.topics.find(name)
        if topic is not None and len(given.get(topic.topic_id, ())) < topic.partitions:
            return False
        if pace.is_over(1):
            yield
    return True


def _check_upgrade(group: Group, draft: Draft) -> None:
    why = None
    if not draft.room.config.upgrade:
        why = "online upgrade is disabled"
    elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        why = "the group does not use the consumer embedded protocol"
    elif len(group.members) > draft.room.config.consumer_max_size:
        why = "the group size exceeds the consumer group maximum size"
    if why is not None:
        raise _cannot_upgrade(group, why)


def _cannot_upgrade(group: Group, why: str) -> RefusedError:
    text = f"Cannot upgrade classic group {group.group_id} to consumer group because {why}."
    return RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _decoded(group: Group, member: ClassicMember) -> tuple[ConsumerProtocolSubscription, ConsumerProtocolAssignment]:
    """What the member said when it joined, and was given then; RefusedError for what a consumer group cannot have."""
    try:
        subscription = decode_subscription(_metadata(group, member), MAX_REQUEST_ELEMENTS)
        assignment = decode_assignment(member.assignment, MAX_REQUEST_ELEMENTS)
    except TooManyElementsError:
        why = f"a member's subscription or assignment has more than {MAX_REQUEST_ELEMENTS} elements"
        raise _cannot_upgrade(group, why) from None
    except CorruptDataError:
        raise _cannot_upgrade(group, "the embedded consumer protocol is malformed") from None
    if assignment.user_data:
        raise _cannot_upgrade(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade",
        )
    return subscription, assignment


def _consumer_member(
    group: Group,
    member: ClassicMember,
    subscription: ConsumerProtocolSubscription,
    assigned: Mapping[bytes, Collection[int]],
) -> Member:
    return Member(
        member_id=member.member_id,
        member_epoch=group.generation,
        previous_epoch=group.generation,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        assigned=in_epoch(assigned, group.generation),
        classic=ClassicMemberMetadata(
            member.session_timeout_ms, tuple(ClassicProtocol(each.name, each.metadata) for each in member.protocols)
        ),
    )


def _metadata(group: Group, member: ClassicMember) -> bytes:
    """The member's subscription: under the group's assignor, unless it has dropped that and nobody is elected yet.

    Apache Kafka fails then (IllegalArgumentException).
    """
    offered = {each.name: each.metadata for each in reversed(member.protocols)}
    return offered.get(group.protocol or "", member.protocols[0].metadata)


def _partitions(room: Room, named: Iterable[TopicPartition | OwnedTopic]) -> dict[bytes, set[int]]:
    """What is named and is there. A topic may have been made again, with fewer partitions."""
    found: dict[bytes, set[int]] = {}
    for each in named:
        topic = room.topics.find(each.topic)
        numbers = () if topic is None else [number for number in each.partitions if 0 <= number < topic.partitions]
        if topic is not None and numbers:
            found.setdefault(topic.topic_id, set()).update(numbers)
    return found


# -- down


def downgrade_without(draft: Draft, leaving: Collection[Member]) -> Generator[None, None, bool]:
    """Make the group a classic one if all that stay use the classic protocol; whether it was done. In steps, if it is
    long work."""
    group, config = draft.group, draft.room.config
    staying = len(group.members) - len(leaving)
    classic = group.classic_members - sum(member.is_classic for member in leaving)
    if not config.downgrade or not 0 < staying <= config.group_max_size or classic != staying:
        return False
    gone = {member.member_id for member in leaving}
    members = [member for member in group.members.values() if member.member_id not in gone]
    if not frozenset.intersection(*(member.classic_protocols for member in members)):
        return False  # an earlier version let such members in; no classic group could have them
    draft.records += group_tombstones(group)
    if len(group.members) > MEMBERS_PER_STEP:
        yield
    yield from _become_classic(
        draft, members, f"Downgrade group {group.group_id} from consumer to classic for member leaving."
    )
    return True


def may_downgrade_by(draft: Draft, replaced: Member | None) -> bool:
    """Whether the group becomes a classic one when a member of the classic protocol takes the place of `replaced`."""
    group, config = draft.group, draft.room.config
    return (
        replaced is not None
        and config.downgrade
        and not replaced.is_classic
        and group.classic_members == len(group.members) - 1
        and len(group.members) <= config.group_max_size
    )


def downgrade_by(draft: Draft, replaced: Member, joining: Member) -> Generator[None, None, int]:
    """Make the group a classic one: `joining` has taken the place of `replaced`. Returns its generation.

    It rebalances. (Apache Kafka's is stable with the target as its assignment, unless that is an old one: others may
    still have what this member gets, or never hear of what they get, and nobody leads.)
    """
    group = draft.group
    ids = [joining.member_id if each == replaced.member_id else each for each in group.members]
    members = [member for member in group.members.values() if member.member_id != replaced.member_id]
    draft.records += group_tombstones(group, ids)
    reason = f"Downgrade group {group.group_id} from consumer to classic for static member replacement."
    return (yield from _become_classic(draft, [*members, joining], reason))


def _become_classic(draft: Draft, members: Collection[Member], reason: str) -> Generator[None, None, int]:
    """A classic group with these members that rebalances for a reason, and until then has what they may still have.
    Returns its generation."""
    group = Group(
        draft.group.group_id,
        state=GroupState.STABLE,
        generation=draft.group.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        state_timestamp_ms=draft.now_ms,
        members=Members(_classic_member(each) for each in members),
        leader=next(iter(members)).member_id,
    )
    group = group._replace(protocol=group.elected_protocol())
    having = {member.member_id: member for member in members}
    assigned: list[ClassicMember] = []
    pace = Pace(MAX_NAMES_AT_ONCE)
    for each in group.members.values():
        member = having[each.member_id]
        cost = _MEMBER + sum(1 + len(numbers) for has in (member.assigned, member.revoking) for numbers in has.values())
        if pace.is_over(cost):
            yield
        has = _all_that(member)
        if pace.is_over(cost):
            yield
        assigned.append(each._replace(assignment=assignment_bytes(draft.room, has, each.metadata(group.protocol))))
    group = group._replace(members=Members(assigned))
    if len(assigned) > MEMBERS_PER_STEP:
        yield
    subscribed = yield from subscribed_topics_in_steps(group)
    classic = ClassicDraft(group._replace(subscribed_topics=subscribed), draft.room.config, draft.now_ms)
    # A load takes a group with members for a stable one. Without a timestamp it goes on with the rebalance.
    record = yield from group_record_in_steps(classic.group._replace(state_timestamp_ms=None))
    draft.records.append(record)
    for each in assigned:
        classic.expect_heartbeat(each.member_id, each.session_timeout_ms)
    classic.facts.append(Converted(classic.group.kind))
    rebalance.prepare(classic, reason)
    for member_id in draft.group.members:  # what they had to do here is no classic group's business
        draft.stop(member_id, SESSION, REVOKE, CLASSIC_JOIN, CLASSIC_SYNC)
    draft.facts += classic.facts
    draft.target = classic.group
    draft.timers += classic.timers
    return group.generation


def _classic_member(member: Member) -> ClassicMember:
    metadata = member.classic or ClassicMemberMetadata()
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=metadata.session_timeout_ms,
        protocols=tuple(JoinGroupRequestProtocol(each.name, each.metadata) for each in metadata.supported_protocols),
    )


def _all_that(member: Member) -> dict[bytes, list[int]]:
    """All that the member may have."""
    has: dict[bytes, list[int]] = {}
    for partitions in (member.assigned, member.revoking):
        for topic_id, numbers in partitions.items():
            has.setdefault(topic_id, []).extend(numbers)
    return {topic_id: sorted(numbers) for topic_id, numbers in has.items()}


def assignment_bytes(room: Room, partitions: Mapping[bytes, Collection[int]], metadata: bytes) -> bytes:
    """Partitions as a member of the classic protocol reads them, in the version of its own subscription."""
    found = ((room.topics.find_id(topic_id), numbers) for topic_id, numbers in partitions.items())
    topics = tuple(TopicPartition(topic.name, tuple(numbers)) for topic, numbers in found if topic is not None)
    version = int.from_bytes(metadata[:2], "big", signed=True) if len(metadata) > 1 else 0
    return encode_assignment(ConsumerProtocolAssignment(topics), min(max(version, 0), 3))

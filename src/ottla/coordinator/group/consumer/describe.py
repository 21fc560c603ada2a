"""What ConsumerGroupDescribe (v0–1, KIP-848) says about a consumer group."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from ottla.base.limits import MAX_NAMES_AT_ONCE
from ottla.coordinator.group.consumer.member import NO_TARGET, Member, Target
from ottla.coordinator.group.consumer.room import Draft
from ottla.coordinator.group.consumer.target import preferred_assignor
from ottla.coordinator.group.consumer.topics import Topics
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import Assignment, DescribedGroup, TopicPartitions
from ottla.wire.messages.consumer_group_describe import Member as DescribedMember

_CLASSIC, _CONSUMER = 0, 1


def describe(draft: Draft) -> Generator[None, None, DescribedGroup]:
    """A group as it is at the first step; what a member has is told in each: it may be of thousands of topics."""
    group, topics = draft.group, draft.room.topics
    there = [(member, group.target.get(member.member_id, NO_TARGET)) for member in group.members.values()]
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(draft.room, draft.group),
    )
    members = []
    for member, target in there:
        members.append((yield from _member(member, target, topics)))
        yield
    return described._replace(members=tuple(members))


def describe_missing(group_id: str, *, exists: bool) -> DescribedGroup:
    """A group that is not there, or is of another kind."""
    message = f"Group {group_id} is not a consumer group." if exists else f"Group {group_id} not found."
    return DescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message, group_id=group_id)


def _member(member: Member, target: Target, topics: Topics) -> Generator[None, None, DescribedMember]:
    has: dict[bytes, list[int]] = {}
    for part in (member.assigned, member.revoking):  # until it has given them up, the member still answers for these
        for topic_id, numbers in part.items():
            has.setdefault(topic_id, []).extend(numbers)
    assignment = yield from _assignment(has, topics)
    target_assignment = yield from _assignment(target, topics)
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topic_names)),
        subscribed_topic_regex=member.topic_regex,
        assignment=assignment,
        target_assignment=target_assignment,
        member_type=_CLASSIC if member.is_classic else _CONSUMER,
    )


def _assignment(partitions: Mapping[bytes, Iterable[int]], topics: Topics) -> Generator[None, None, Assignment]:
    """Partitions of topics that are there; those that were deleted are not told. Very many topics in steps."""
    told: list[TopicPartitions] = []
    for number, (topic_id, numbers) in enumerate(partitions.items()):
        if number and number % MAX_NAMES_AT_ONCE == 0:
            yield
        topic = topics.find_id(topic_id)
        if topic is not None:
            told.append(TopicPartitions(topic.topic_id, topic.name, tuple(sorted(numbers))))
    return Assignment(tuple(told))

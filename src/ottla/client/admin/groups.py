"""Admin calls about groups and their members, of both group protocols (SPEC G18)."""

from collections.abc import Iterable
from functools import partial
from typing import NoReturn

from ottla.base.types import TopicPartition
from ottla.client.admin.base import AdminBase
from ottla.client.admin.types import CLASSIC, CONSUMER, GroupDescription, GroupListing, MemberDescription
from ottla.client.core.intents import CoordinatorKind
from ottla.client.core.offsets import checked_group_ids
from ottla.client.core.several import several
from ottla.client.errors import KafkaError, UnsupportedVersionError, raise_for
from ottla.client.net.requests import only, together
from ottla.wire.apis import ApiKey
from ottla.wire.codec import WireError
from ottla.wire.consumer_protocol import decode_assignment, decode_subscription
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_describe as described
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

_GROUP = CoordinatorKind.GROUP
#: The member epoch with which a member of a consumer group leaves for good (KIP-848).
_LEAVES = -1
#: What ConsumerGroupDescribe says of members: they speak the classic protocol, or the consumer protocol (KIP-1099).
_IS_CLASSIC = {0: True, 1: False}


class GroupCalls(AdminBase):
    """Groups."""

    async def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """Groups of all coordinators, sorted by id. Only those of the given states and types, if any are given.

        Raises UnsupportedVersionError if `types` are given and a broker is older than 3.7 (KIP-848).
        """

        request = ListGroupsRequest(tuple(several(states, "states")), tuple(several(types, "types")))

        async def attempt() -> list[GroupListing]:
            found = []
            answer: ListGroupsResponse
            for answer in await self._requests.ask_all_brokers(ApiKey.LIST_GROUPS, request):
                raise_for(answer.error_code)
                found += [GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups]
            return sorted(found)

        return await self._requests.repeat(attempt, "list_groups")

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Groups of either type, with their members. For a group that does not exist an older broker answers the state
        Dead; a newer one answers GROUP_ID_NOT_FOUND, which is raised as KafkaError."""
        ids = checked_group_ids(group_ids)
        calls = (self._requests.repeat(partial(self._describe, i), f"describe_groups({i})") for i in ids)
        return dict(zip(ids, await together(calls), strict=True))

    async def _describe(self, group_id: str) -> GroupDescription:
        """A coordinator describes a group of another type as one that it does not know. So ask about both types."""
        try:
            found = await self._describe_classic(group_id)
        except KafkaError as error:
            newer = await self._describe_consumer(group_id) if error.code == ErrorCode.GROUP_ID_NOT_FOUND else None
            if newer is None:
                raise
            return newer
        return found if found.exists else await self._describe_consumer(group_id) or found

    async def _describe_classic(self, group_id: str) -> GroupDescription:
        answer: DescribeGroupsResponse = await self._requests.ask_coordinator(
            _GROUP, group_id, ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest((group_id,))
        )
        group = only(answer.groups, f"group {group_id}")
        self._requests.coordinators.check(_GROUP, group_id, group.error_code, group.error_message or group_id)
        return GroupDescription(
            group_id,
            group.group_state,
            group.protocol_type,
            group.protocol_data,
            tuple(_member(member) for member in group.members),
            CLASSIC,
            coordinator=await self._requests.coordinators.find(_GROUP, group_id),
        )

    async def _describe_consumer(self, group_id: str) -> GroupDescription | None:
        """A group of KIP-848; None if there is none, or if the broker is too old to have one."""
        try:
            answer: described.ConsumerGroupDescribeResponse = await self._requests.ask_coordinator(
                _GROUP, group_id, ApiKey.CONSUMER_GROUP_DESCRIBE, described.ConsumerGroupDescribeRequest((group_id,))
            )
        except UnsupportedVersionError:
            return None
        group = only(answer.groups, f"group {group_id}")
        if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return None
        self._requests.coordinators.check(_GROUP, group_id, group.error_code, group.error_message or group_id)
        return GroupDescription(
            group_id,
            group.group_state,
            "consumer",
            group.assignor_name,
            tuple(_consumer_member(member) for member in group.members),
            CONSUMER,
            group.group_epoch,
            group.assignment_epoch,
            await self._requests.coordinators.find(_GROUP, group_id),
        )

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups without members, and their offsets. Raises KafkaError of the first group that is refused
        (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND)."""

        async def delete(group_id: str) -> None:
            answer: DeleteGroupsResponse = await self._requests.ask_coordinator(
                _GROUP, group_id, ApiKey.DELETE_GROUPS, DeleteGroupsRequest((group_id,))
            )
            result = only(answer.results, f"group {group_id}")
            self._requests.coordinators.check(_GROUP, group_id, result.error_code, group_id)

        for group_id in checked_group_ids(group_ids):
            await self._requests.repeat(partial(delete, group_id), f"delete_groups({group_id})")

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[str] | None = None,
        *,
        instances: Iterable[str] = (),
        reason: str = "",
    ) -> list[str]:
        """Remove members from a group: those with these ids, and those with these `group.instance.id`s (KIP-345).

        Without `members` and `instances` all are removed. Returns the ids of those that were. A member that lives
        learns of it, and joins again: stop it first. `reason` goes into the coordinator's log. Raises KafkaError: with
        UNKNOWN_MEMBER_ID for the first one that is not in the group; then the others are removed. With
        GROUP_ID_NOT_FOUND if there is no such group.
        """
        group = (await self.describe_groups([group_id]))[group_id]
        if not group.exists:
            raise KafkaError.of(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")
        instances = set(instances)
        everybody = members is None and not instances
        wanted = set(members or ())
        leaving = [
            each
            for each in group.members
            if everybody or each.member_id in wanted or each.group_instance_id in instances
        ]
        if leaving:
            remove = self._remove_consumer if group.type == CONSUMER else self._remove_classic
            await self._requests.repeat(lambda: remove(group_id, leaving, reason), f"remove_members({group_id})")
        missing = wanted - {each.member_id for each in leaving}
        missing |= instances - {each.group_instance_id for each in leaving if each.group_instance_id is not None}
        if missing:
            _unknown(group_id, min(missing))
        return [each.member_id for each in leaving]

    async def _remove_classic(self, group_id: str, leaving: list[MemberDescription], reason: str) -> None:
        identities = tuple(MemberIdentity(each.member_id, each.group_instance_id, reason or None) for each in leaving)
        answer: LeaveGroupResponse = await self._requests.ask_coordinator(
            _GROUP, group_id, ApiKey.LEAVE_GROUP, LeaveGroupRequest(group_id, identities)
        )
        self._requests.coordinators.check(_GROUP, group_id, answer.error_code, f"group {group_id}")
        for each in answer.members:
            self._left(group_id, each.member_id, each.error_code)

    async def _remove_consumer(self, group_id: str, leaving: list[MemberDescription], reason: str) -> None:
        """The coordinator takes LeaveGroup only of members that speak the classic protocol. A member that speaks the
        new one leaves by a heartbeat, which has no place for a reason."""
        classic = [each for each in leaving if each.is_classic]
        if classic:
            await self._remove_classic(group_id, classic, reason)
        for each in leaving:
            if not each.is_classic:
                request = ConsumerGroupHeartbeatRequest(
                    group_id, each.member_id, _LEAVES, each.group_instance_id, topic_partitions=None
                )
                answer: ConsumerGroupHeartbeatResponse = await self._requests.ask_coordinator(
                    _GROUP, group_id, ApiKey.CONSUMER_GROUP_HEARTBEAT, request
                )
                self._left(group_id, each.member_id, answer.error_code)

    def _left(self, group_id: str, member_id: str, error_code: int) -> None:
        """One that is not in the group any more has left by itself meanwhile."""
        if error_code != ErrorCode.UNKNOWN_MEMBER_ID:
            what = f"group {group_id}, member {member_id}"
            self._requests.coordinators.check(_GROUP, group_id, error_code, what)


def _unknown(group_id: str, member: str) -> NoReturn:
    raise KafkaError.of(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id} has no member {member}")


def _member(member: DescribedGroupMember) -> MemberDescription:
    partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    rack_id: str | None = None
    try:
        assigned = decode_assignment(member.member_assignment).assigned_partitions
        partitions = tuple(sorted(TopicPartition(t.topic, p) for t in assigned for p in t.partitions))
        if member.member_metadata:
            said = decode_subscription(member.member_metadata)
            topics, rack_id = tuple(sorted(said.topics)), said.rack_id or None
    except WireError:
        pass  # not a group of consumers: these bytes mean something else
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        partitions,
        topics,
        rack_id=rack_id,
    )


def _consumer_member(member: described.Member) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        tuple(sorted(member.subscribed_topic_names)),
        member.subscribed_topic_regex or None,
        member.member_epoch,
        _partitions(member.target_assignment),
        _IS_CLASSIC.get(member.member_type),
        member.rack_id or None,
    )


def _partitions(assignment: described.Assignment) -> tuple[TopicPartition, ...]:
    found = (
        TopicPartition(each.topic_name, number) for each in assignment.topic_partitions for number in each.partitions
    )
    return tuple(sorted(found))

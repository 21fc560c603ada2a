"""Admin calls about consumer groups and their offsets (SPEC G18)."""

from collections.abc import Iterable, Mapping
from functools import partial

from ottla.base.types import TopicPartition
from ottla.client.admin.base import AdminBase
from ottla.client.admin.types import GroupDescription, GroupListing, MemberDescription
from ottla.client.core.intents import CoordinatorKind
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.errors import raise_for
from ottla.client.net.group_offsets import commit_offsets, fetch_committed
from ottla.client.net.requests import only, together
from ottla.wire.apis import ApiKey
from ottla.wire.codec import WireError
from ottla.wire.consumer_protocol import decode_assignment
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

_GROUP = CoordinatorKind.GROUP


class GroupCalls(AdminBase):
    """Consumer groups."""

    async def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """Groups of all coordinators, sorted by id. Only those of the given states and types, if any are given."""

        async def attempt() -> list[GroupListing]:
            found = []
            answer: ListGroupsResponse
            for answer in await self._requests.ask_all_brokers(
                ApiKey.LIST_GROUPS, ListGroupsRequest(tuple(states), tuple(types))
            ):
                raise_for(answer.error_code)
                found += [GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups]
            return sorted(found)

        return await self._requests.repeat(attempt, "list_groups")

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Groups with their members. For a group that does not exist an older broker answers the state Dead; a newer
        one answers GROUP_ID_NOT_FOUND, which is raised as KafkaError."""

        async def describe(group_id: str) -> GroupDescription:
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
            )

        ids = list(group_ids)
        calls = (self._requests.repeat(partial(describe, i), f"describe_groups({i})") for i in ids)
        return dict(zip(ids, await together(calls), strict=True))

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups without members, and their offsets. Raises KafkaError of the first group that is refused
        (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND)."""

        async def delete(group_id: str) -> None:
            answer: DeleteGroupsResponse = await self._requests.ask_coordinator(
                _GROUP, group_id, ApiKey.DELETE_GROUPS, DeleteGroupsRequest((group_id,))
            )
            result = only(answer.results, f"group {group_id}")
            self._requests.coordinators.check(_GROUP, group_id, result.error_code, group_id)

        for group_id in list(group_ids):
            await self._requests.repeat(partial(delete, group_id), f"delete_groups({group_id})")

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """A group's committed offsets: of `partitions`, or (None) of all partitions."""
        wanted = None if partitions is None else list(partitions)
        return await self._requests.repeat(
            lambda: fetch_committed(self._requests.coordinators, self._cluster.snapshot, group_id, wanted),
            f"list_group_offsets({group_id})",
        )

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Set the committed offsets of a group without members. If it has members, raises KafkaError with
        UNKNOWN_MEMBER_ID."""
        member = ConsumerGroupMetadata(group_id)
        await self._requests.repeat(
            lambda: commit_offsets(self._requests.coordinators, member, offsets), f"alter_group_offsets({group_id})"
        )


def _member(member: DescribedGroupMember) -> MemberDescription:
    partitions: tuple[TopicPartition, ...] = ()
    if member.member_assignment:
        try:
            assigned = decode_assignment(member.member_assignment).assigned_partitions
        except WireError:  # not a group of consumers: these bytes mean something else
            assigned = ()
        partitions = tuple(sorted(TopicPartition(t.topic, p) for t in assigned for p in t.partitions))
    return MemberDescription(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, partitions
    )

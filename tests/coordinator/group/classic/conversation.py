"""A talk with a broker about one group of the classic protocol: each request by its fields, each answer whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.wire.apis import ApiKey
from ottla.wire.consumer_protocol import encode_subscription
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.group.talking import GroupTalk

#: What a member of these talks supports: a protocol type that no broker knows, so that it reads no metadata.
_PROTOCOLS: Final = {"a": b"1", "b": b"2"}
#: From which version on LeaveGroup names several members, OffsetCommit and OffsetFetch topics by id, or several groups.
_LEAVE_MEMBERS: Final = 3
_TOPIC_IDS: Final = 10
_FETCH_GROUPS: Final = 8
_LIST_STATES: Final = 4
#: What a classic group is asked for.
APIS: Final = (
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
)


class Conversation(GroupTalk):
    """A talk whose members name themselves; `by` is the connection over which a request goes, when it may wait."""

    def joining(
        self, member: str, *, version: int = 9, protocols: Mapping[str, bytes] = _PROTOCOLS, by: str = "", **fields: Any
    ) -> Any:
        """JoinGroup, whose answer comes later."""
        usual = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            protocol_type="work",
            protocols=tuple(JoinGroupRequestProtocol(*each) for each in _PROTOCOLS.items()),
        )
        supported = tuple(JoinGroupRequestProtocol(*each) for each in protocols.items())
        request = usual._replace(**{"member_id": self.full(member), "protocols": supported, **fields})
        return self.start(ApiKey.JOIN_GROUP, version, request, usual, by=by)

    def join(self, member: str, **more: Any) -> Any:
        """JoinGroup."""
        return self.hear(self.joining(member, **more))

    def syncing(
        self, member: str, generation: int, gives: Mapping[str, bytes], *, version: int = 5, by: str = "", **fields: Any
    ) -> Any:
        """SyncGroup, whose answer comes later."""
        brought = tuple(SyncGroupRequestAssignment(self.full(each), has) for each, has in gives.items())
        usual = SyncGroupRequest(self.group_id, 0, "", None, "work", "a")
        request = usual._replace(
            **{"generation_id": generation, "member_id": self.full(member), "assignments": brought, **fields}
        )
        return self.start(ApiKey.SYNC_GROUP, version, request, usual, by=by)

    def sync(self, member: str, generation: int, gives: Mapping[str, bytes] | None = None, **more: Any) -> Any:
        """SyncGroup; `gives` is what a leader brings."""
        return self.hear(self.syncing(member, generation, gives or {}, **more))

    def beat(self, member: str, generation: int, *, version: int = 4, **fields: Any) -> Any:
        """Heartbeat."""
        request = HeartbeatRequest(self.group_id, generation, self.full(member))
        return self.ask(ApiKey.HEARTBEAT, version, request._replace(**fields))

    def leave(self, *members: str, version: int = 5, **fields: Any) -> Any:
        """LeaveGroup of members by their ids, `id/instance id`, or `/instance id`."""
        if version < _LEAVE_MEMBERS:
            request = LeaveGroupRequest(self.group_id, (), self.full(members[0]))
        else:
            request = LeaveGroupRequest(self.group_id, tuple(map(self._identity, members)))
        return self.ask(ApiKey.LEAVE_GROUP, version, request._replace(**fields))

    def _identity(self, member: str) -> MemberIdentity:
        member_id, slash, instance_id = member.partition("/")
        return MemberIdentity(self.full(member_id), instance_id if slash else None)

    def commit(
        self,
        member: str,
        generation: int,
        *partitions: int,
        offset: int = 5,
        metadata: str | None = "",
        topic: str = "t",
        version: int = 9,
        **fields: Any,
    ) -> Any:
        """OffsetCommit."""
        asked = tuple(OffsetCommitRequestPartition(each, offset, 0, metadata) for each in partitions)
        topics = (OffsetCommitRequestTopic(*self._topic(topic, version), asked),)
        request = OffsetCommitRequest(self.group_id, generation, self.full(member), None, -1, topics)
        return self.ask(ApiKey.OFFSET_COMMIT, version, request._replace(**fields))

    def fetch(
        self,
        *partitions: int,
        topic: str | None = "t",
        version: int = 9,
        member: str | None = None,
        epoch: int = -1,
        group: str | None = None,
        **fields: Any,
    ) -> Any:
        """OffsetFetch of one topic, or of all when there is none."""
        group_id = self.group_id if group is None else group
        if version < _FETCH_GROUPS:
            old = None if topic is None else (OffsetFetchRequestTopic(self.name(topic), partitions),)
            request = OffsetFetchRequest(group_id=group_id, topics=old)
        else:
            topics = None if topic is None else (OffsetFetchRequestTopics(*self._topic(topic, version), partitions),)
            full = None if member is None else self.full(member)
            request = OffsetFetchRequest((OffsetFetchRequestGroup(group_id, full, epoch, topics),))
        return self.ask(ApiKey.OFFSET_FETCH, version, request._replace(**fields))

    def _topic(self, topic: str, version: int) -> tuple[bytes, str]:
        return (self._ids.get(topic, b"?" * 16), "") if version >= _TOPIC_IDS else (bytes(16), self.name(topic))

    def delete_offsets(self, topic: str, *partitions: int, **fields: Any) -> Any:
        """OffsetDelete."""
        asked = tuple(map(OffsetDeleteRequestPartition, partitions))
        request = OffsetDeleteRequest(self.group_id, (OffsetDeleteRequestTopic(self.name(topic), asked),))
        return self.ask(ApiKey.OFFSET_DELETE, 0, request._replace(**fields))

    def describe(self, *others: str, version: int = 6, operations: bool = False) -> Any:
        """DescribeGroups of this group, and of others."""
        return self.ask(ApiKey.DESCRIBE_GROUPS, version, DescribeGroupsRequest((self.group_id, *others), operations))

    def list_groups(self, *states: str, types: tuple[str, ...] = (), version: int = 5) -> Any:
        """ListGroups."""
        return self.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest(states, types))

    def delete_group(self, *others: str, version: int = 2) -> Any:
        """DeleteGroups of this group, and of others."""
        return self.ask(ApiKey.DELETE_GROUPS, version, DeleteGroupsRequest((self.group_id, *others)))

    def harmless(self, key: ApiKey, version: int) -> Any:
        """A request that changes nothing, whether it is understood or not."""
        group, who = self.group_id, "nobody"
        offsets = (OffsetCommitRequestTopic(bytes(16), self.name("t"), (OffsetCommitRequestPartition(0, 1, -1, ""),)),)
        return {
            ApiKey.JOIN_GROUP: JoinGroupRequest(group, 10_000, 10_000, who, None, "w", (JoinGroupRequestProtocol(),)),
            ApiKey.SYNC_GROUP: SyncGroupRequest(group, 1, who, None, "w", "a", (SyncGroupRequestAssignment(who),)),
            ApiKey.HEARTBEAT: HeartbeatRequest(group, 1, who),
            ApiKey.LEAVE_GROUP: LeaveGroupRequest(group, (MemberIdentity(who),), who),
            ApiKey.OFFSET_COMMIT: OffsetCommitRequest(group, 1, who, None, -1, offsets),
            ApiKey.OFFSET_FETCH: OffsetFetchRequest((OffsetFetchRequestGroup(group, who, 1),), group),
            ApiKey.OFFSET_DELETE: OffsetDeleteRequest(group, (OffsetDeleteRequestTopic("x"),)),
            ApiKey.DESCRIBE_GROUPS: DescribeGroupsRequest((group,)),
            ApiKey.LIST_GROUPS: ListGroupsRequest((group,) if version >= _LIST_STATES else ()),
            ApiKey.DELETE_GROUPS: DeleteGroupsRequest((group,)),
        }[key]

    def alone(self, member: str = "M0") -> None:
        """A member that is given the id `member`, until it leads a stable group of generation 1 and has `x`."""
        self.join("")
        self.join(member)
        self.sync(member, 1, {member: b"x"})

    def subscription(self, *topics: str) -> bytes:
        """What a consumer of these topics tells its group's leader."""
        return encode_subscription(ConsumerProtocolSubscription(tuple(map(self.name, topics)), None, ()))

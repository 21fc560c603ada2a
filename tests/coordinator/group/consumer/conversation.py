"""A conversation with a broker about one consumer group, over a plain socket: raw requests, no client's opinions.

Every request and its answer become one line of a transcript, with ids and names that differ from run to run replaced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.wire.apis import ApiKey
from ottla.wire.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_assignment import TopicPartition as AssignedPartition
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
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
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.group.talking import READY_TIMEOUT_S, GroupTalk

Owned = Mapping[str, Iterable[int]]


class Conversation(GroupTalk):
    """A talk about a consumer group: each request in a few words, and what its answer says."""

    # -- consumer groups

    def beat(self, member: str, epoch: int, *topics: str, version: int = 1, quiet: bool = False, **more: Any) -> Any:
        """One heartbeat. `owned`, `regex`, `instance`, `rack`, `assignor`, `rebalance_ms` are what it says beside."""
        request, said = self._request(member, epoch, topics, **more)
        answer = self.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, request)
        if not quiet:
            self._note(f"beat {said}{'' if version == 1 else f' v{version}'}", self._told(answer))
        return answer

    def join(self, member: str, *topics: str, **more: Any) -> Any:
        """A first heartbeat, complete."""
        given = {"rebalance_ms": 60_000, "owned": {}}
        return self.beat(member, 0, *(topics or ("t",)), **{**given, **more})

    def beat_until(self, done: Callable[[Any], bool], member: str, epoch: int, *topics: str, **more: Any) -> Any:
        """Heartbeats until the answer is as wanted: for what the broker does beside. The last one is noted."""
        until = time.monotonic() + READY_TIMEOUT_S
        while True:
            answer = self.beat(member, epoch, *topics, quiet=True, **more)
            if done(answer) or time.monotonic() > until:
                self._note(f"beat until {self._request(member, epoch, topics, **more)[1]}", self._told(answer))
                return answer
            self._wait()

    def describe(self, *, version: int = 1) -> None:
        """ConsumerGroupDescribe."""
        request = ConsumerGroupDescribeRequest((self.group_id,))
        (group,) = self.send(ApiKey.CONSUMER_GROUP_DESCRIBE, version, request).groups
        if group.error_code:
            self._note("describe", self._error(group))
            return
        members = sorted(self._member(each, version) for each in group.members)
        epochs = f"{group.group_epoch}/{group.assignment_epoch}"
        self._note("describe", f"NONE {group.group_state} {epochs} {group.assignor_name} [{'; '.join(members)}]")

    def _member(self, member: Any, version: int) -> str:
        kind = f" type {member.member_type}" if version else ""
        names = ",".join(sorted(map(self._plain, member.subscribed_topic_names)))
        regex = self._plain(member.subscribed_topic_regex)
        return (
            f"{self._plain(member.member_id)}/{member.member_epoch} {member.instance_id} {member.rack_id} "
            f"{member.client_id} {member.client_host} ({names}) {regex!r}{kind} "
            f"has {self._described(member.assignment)} shall {self._described(member.target_assignment)}"
        )

    def list_groups(self, *types: str, states: tuple[str, ...] = ()) -> None:
        """ListGroups, of this group alone."""
        answer = self.send(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(states, types))
        found = [each for each in answer.groups if each.group_id == self.group_id]
        said = [f"{each.protocol_type} {each.group_state} {each.group_type}" for each in found]
        self._note(f"list {types} {states}", f"{ErrorCode(answer.error_code).name} {said}")

    # -- offsets and the rest

    def commit(
        self, member: str, epoch: int, offset: int, *partitions: int, version: int = 9, topic: str = "t"
    ) -> None:
        """OffsetCommit."""
        asked = tuple(OffsetCommitRequestPartition(each, offset, -1, "") for each in partitions)
        name, topic_id = ("", self._ids["t"]) if version > 9 else (self.name("t"), bytes(16))
        topics = (OffsetCommitRequestTopic(topic_id, name, asked),)
        request = OffsetCommitRequest(self.group_id, epoch, self.full(member), None, -1, topics)
        answer = self.send(ApiKey.OFFSET_COMMIT, version, request)
        errors = sorted((p.partition_index, ErrorCode(p.error_code).name) for t in answer.topics for p in t.partitions)
        self._note(f"commit {member}/{epoch} {offset} {partitions} v{version}", str(dict(errors)))

    def fetch(self, member: str | None, epoch: int, *partitions: int, version: int = 9, topic: str = "t") -> None:
        """OffsetFetch."""
        name, topic_id = ("", self._ids[topic]) if version > 9 else (self.name(topic), bytes(16))
        full = None if member is None else self.full(member)
        group = OffsetFetchRequestGroup(
            self.group_id, full, epoch, (OffsetFetchRequestTopics(topic_id, name, partitions),)
        )
        (answer,) = self.send(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(groups=(group,))).groups
        offsets = {p.partition_index: p.committed_offset for t in answer.topics for p in t.partitions}
        self._note(f"fetch {member}/{epoch} {partitions} v{version}", f"{ErrorCode(answer.error_code).name} {offsets}")

    def delete_offsets(self, topic: str, *partitions: int) -> None:
        """OffsetDelete."""
        asked = tuple(OffsetDeleteRequestPartition(each) for each in partitions)
        request = OffsetDeleteRequest(self.group_id, (OffsetDeleteRequestTopic(self.name(topic), asked),))
        answer = self.send(ApiKey.OFFSET_DELETE, 0, request)
        errors = [ErrorCode(p.error_code).name for t in answer.topics for p in t.partitions]
        self._note(f"delete offsets {topic} {partitions}", f"{ErrorCode(answer.error_code).name} {errors}")

    def delete_group(self) -> None:
        """DeleteGroups."""
        (answer,) = self.send(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest((self.group_id,))).results
        self._note("delete group", ErrorCode(answer.error_code).name)

    def describe_classic(self, *, version: int = 6) -> None:
        """DescribeGroups."""
        (group,) = self.send(ApiKey.DESCRIBE_GROUPS, version, DescribeGroupsRequest((self.group_id,))).groups
        said = f"{self._error(group)} {group.group_state} {group.protocol_type!r} {group.protocol_data!r}"
        members = sorted(f"{self._plain(each.member_id)} {each.group_instance_id}" for each in group.members)
        self._note(f"describe classic v{version}", f"{said} {members}")

    # -- the classic protocol

    def classic_join(
        self,
        member: str,
        *topics: str,
        instance: str | None = None,
        owned: Owned | None = None,
        protocol_type: str = "consumer",
    ) -> Any:
        """JoinGroup of a consumer that supports `range`."""
        names = tuple(self.name(each) for each in topics or ("t",))
        has = tuple(TopicPartition(self.name(each), tuple(numbers)) for each, numbers in (owned or {}).items())
        metadata = encode_subscription(ConsumerProtocolSubscription(names, None, has))
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=self.full(member),
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=(JoinGroupRequestProtocol("range", metadata),),
        )
        answer = self.send(ApiKey.JOIN_GROUP, 9, request)
        who = self._generate(answer.member_id)
        said = f"{who} generation {answer.generation_id} {answer.protocol_type} {answer.protocol_name} "
        said += f"leads {bool(answer.leader) and answer.leader == answer.member_id} members {len(answer.members)}"
        self._note(f"classic join {member} {topics} {instance}", f"{ErrorCode(answer.error_code).name} {said}")
        return answer

    def classic_sync(
        self,
        member: str,
        generation: int,
        *,
        protocol: str | None = "range",
        instance: str | None = None,
        gives: Mapping[str, Owned] | None = None,
    ) -> Any:
        """SyncGroup; `gives` is what a leader brings."""
        brought = tuple(
            SyncGroupRequestAssignment(self.full(each), self._encoded(owned)) for each, owned in (gives or {}).items()
        )
        request = SyncGroupRequest(
            self.group_id, generation, self.full(member), instance, "consumer", protocol, brought
        )
        answer = self.send(ApiKey.SYNC_GROUP, 5, request)
        topics = {self._plain(t.topic): sorted(t.partitions) for t in self._assigned(answer.assignment)}
        said = f"{ErrorCode(answer.error_code).name} {answer.protocol_type} {answer.protocol_name} {topics}"
        self._note(f"classic sync {member}/{generation} {protocol}", said)
        return answer

    def _encoded(self, owned: Owned) -> bytes:
        topics = (AssignedPartition(self.name(each), tuple(numbers)) for each, numbers in owned.items())
        return encode_assignment(ConsumerProtocolAssignment(tuple(topics)))

    @staticmethod
    def _assigned(assignment: bytes) -> Any:
        return sorted(decode_assignment(assignment).assigned_partitions)

    def classic_beat(self, member: str, generation: int) -> None:
        """Heartbeat."""
        answer = self.send(ApiKey.HEARTBEAT, 4, HeartbeatRequest(self.group_id, generation, self.full(member)))
        self._note(f"classic beat {member}/{generation}", ErrorCode(answer.error_code).name)

    def classic_leave(self, *members: str) -> None:
        """LeaveGroup."""
        identities = tuple(_identity(self.full(each)) for each in members)
        answer = self.send(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(self.group_id, identities))
        errors = [ErrorCode(each.error_code).name for each in answer.members]
        self._note(f"classic leave {members}", f"{ErrorCode(answer.error_code).name} {errors}")

    # -- words

    def _request(
        self,
        member: str,
        epoch: int,
        topics: tuple[str, ...],
        *,
        owned: Owned | None = None,
        regex: str | None = None,
        instance: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = -1,
    ) -> tuple[ConsumerGroupHeartbeatRequest, str]:
        partitions = None
        if owned is not None:
            partitions = tuple(TopicPartitions(self._ids[each], tuple(numbers)) for each, numbers in owned.items())
        request = ConsumerGroupHeartbeatRequest(
            self.group_id,
            self.full(member),
            epoch,
            instance,
            rack,
            rebalance_ms,
            tuple(self.name(each) for each in topics) if topics != ("",) and topics else (() if topics else None),
            None if regex is None else regex.replace("~", self._suffix),
            assignor,
            partitions,
        )
        parts = {"owned": owned, "regex": regex, "instance": instance, "rack": rack, "assignor": assignor}
        said = " ".join(f"{key} {value}" for key, value in parts.items() if value is not None)
        return request, " ".join(filter(None, (f"{member}/{epoch}", ",".join(topics), said)))

    def _told(self, answer: Any) -> str:
        if answer.error_code:
            return self._error(answer)
        assignment = "-" if answer.assignment is None else self._assignment(answer.assignment.topic_partitions)
        who = self._generate(answer.member_id)
        return f"NONE {who}/{answer.member_epoch} every {answer.heartbeat_interval_ms} {assignment}"

    def _error(self, answer: Any) -> str:
        message = self._plain(answer.error_message)
        if answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
            message = message.partition(" is not")[0]  # each library has its own words for what is wrong
        return f"{ErrorCode(answer.error_code).name}{'' if message is None else f': {message}'}"

    def _assignment(self, topics: Iterable[Any]) -> str:
        by_id = {topic_id: name for name, topic_id in self._ids.items()}
        found = sorted((by_id[each.topic_id], sorted(each.partitions)) for each in topics)
        return str(dict(found))

    def _described(self, assignment: Any) -> str:
        return str(dict(sorted((self._plain(t.topic_name), sorted(t.partitions)) for t in assignment.topic_partitions)))


def _identity(member: str) -> MemberIdentity:
    """A member by its id, or with a slash in front by its instance id alone, as an administrator names it."""
    return MemberIdentity("", member[1:]) if member.startswith("/") else MemberIdentity(member)

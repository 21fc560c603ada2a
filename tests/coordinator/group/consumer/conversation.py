"""A conversation with a broker about one consumer group, over a plain socket: raw requests, no client's opinions.

Every request and its answer become one line of a transcript, with ids and names that differ from run to run replaced.
"""

from __future__ import annotations

import itertools
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ottla.wire.apis import ApiKey
from ottla.wire.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_assignment import TopicPartition as AssignedPartition
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
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

#: A broker's settings for the talks: no wait between two assignments, short sessions.
SETTINGS: Final[Mapping[str, str]] = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "5000",
}
_READY_TIMEOUT_S: Final = 30.0

Owned = Mapping[str, Iterable[int]]


class Conversation:
    """A talk about a group that nobody used before, with the topics `t` (4 partitions) and `u` (2)."""

    def __init__(self, name: str, port: int) -> None:
        self._suffix = f"-{name}-{uuid.uuid4().hex[:12]}"
        self.group_id = "g" + self._suffix
        self.transcript: list[str] = []
        self._names: dict[str, str] = {}
        self._ids: dict[str, bytes] = {}
        self._generated: dict[str, str] = {}
        self._correlation_ids = itertools.count()
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=_READY_TIMEOUT_S)
        self._find_coordinator(self.group_id)
        self._make("t", 4)
        self._make("u", 2)
        self._warm_up()

    def connect(self, port: int) -> None:
        """Talk to another broker from now on, about the same group."""
        self._connection.close()
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=_READY_TIMEOUT_S)
        self._find_coordinator(self.group_id)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

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
        until = time.monotonic() + _READY_TIMEOUT_S
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
        name, topic_id = ("", self._ids["t"]) if version > 9 else (self._name("t"), bytes(16))
        topics = (OffsetCommitRequestTopic(topic_id, name, asked),)
        request = OffsetCommitRequest(self.group_id, epoch, self._full(member), None, -1, topics)
        answer = self.send(ApiKey.OFFSET_COMMIT, version, request)
        errors = sorted((p.partition_index, ErrorCode(p.error_code).name) for t in answer.topics for p in t.partitions)
        self._note(f"commit {member}/{epoch} {offset} {partitions} v{version}", str(dict(errors)))

    def fetch(self, member: str | None, epoch: int, *partitions: int, version: int = 9, topic: str = "t") -> None:
        """OffsetFetch."""
        name, topic_id = ("", self._ids[topic]) if version > 9 else (self._name(topic), bytes(16))
        full = None if member is None else self._full(member)
        group = OffsetFetchRequestGroup(
            self.group_id, full, epoch, (OffsetFetchRequestTopics(topic_id, name, partitions),)
        )
        (answer,) = self.send(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(groups=(group,))).groups
        offsets = {p.partition_index: p.committed_offset for t in answer.topics for p in t.partitions}
        self._note(f"fetch {member}/{epoch} {partitions} v{version}", f"{ErrorCode(answer.error_code).name} {offsets}")

    def delete_offsets(self, topic: str, *partitions: int) -> None:
        """OffsetDelete."""
        asked = tuple(OffsetDeleteRequestPartition(each) for each in partitions)
        request = OffsetDeleteRequest(self.group_id, (OffsetDeleteRequestTopic(self._name(topic), asked),))
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
        names = tuple(self._name(each) for each in topics or ("t",))
        has = tuple(TopicPartition(self._name(each), tuple(numbers)) for each, numbers in (owned or {}).items())
        metadata = encode_subscription(ConsumerProtocolSubscription(names, None, has))
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=self._full(member),
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
            SyncGroupRequestAssignment(self._full(each), self._encoded(owned)) for each, owned in (gives or {}).items()
        )
        request = SyncGroupRequest(
            self.group_id, generation, self._full(member), instance, "consumer", protocol, brought
        )
        answer = self.send(ApiKey.SYNC_GROUP, 5, request)
        topics = {self._plain(t.topic): sorted(t.partitions) for t in self._assigned(answer.assignment)}
        said = f"{ErrorCode(answer.error_code).name} {answer.protocol_type} {answer.protocol_name} {topics}"
        self._note(f"classic sync {member}/{generation} {protocol}", said)
        return answer

    def _encoded(self, owned: Owned) -> bytes:
        topics = (AssignedPartition(self._name(each), tuple(numbers)) for each, numbers in owned.items())
        return encode_assignment(ConsumerProtocolAssignment(tuple(topics)))

    @staticmethod
    def _assigned(assignment: bytes) -> Any:
        return sorted(decode_assignment(assignment).assigned_partitions)

    def classic_beat(self, member: str, generation: int) -> None:
        """Heartbeat."""
        answer = self.send(ApiKey.HEARTBEAT, 4, HeartbeatRequest(self.group_id, generation, self._full(member)))
        self._note(f"classic beat {member}/{generation}", ErrorCode(answer.error_code).name)

    def classic_leave(self, *members: str) -> None:
        """LeaveGroup."""
        identities = tuple(_identity(self._full(each)) for each in members)
        answer = self.send(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(self.group_id, identities))
        errors = [ErrorCode(each.error_code).name for each in answer.members]
        self._note(f"classic leave {members}", f"{ErrorCode(answer.error_code).name} {errors}")

    # -- topics

    def make_topic(self, topic: str, partitions: int) -> None:
        """A new topic, or more partitions of one."""
        if topic in self._ids:
            asked = CreatePartitionsTopic(self._name(topic), partitions, None)
            (done,) = self.send(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest((asked,), 10_000)).results
            assert not done.error_code, done
            self._await_topic(topic, partitions)
        else:
            self._make(topic, partitions)
        self._note(f"topic {topic} has {partitions} partitions", "")

    def delete_topic(self, topic: str) -> None:
        """The topic is gone."""
        request = DeleteTopicsRequest((DeleteTopicState(self._name(topic)),), (), 10_000)
        (done,) = self.send(ApiKey.DELETE_TOPICS, 6, request).responses
        assert not done.error_code, done
        self._note(f"topic {topic} is deleted", "")

    def _make(self, topic: str, partitions: int) -> None:
        new = CreatableTopic(self._name(topic), partitions, 1)
        (done,) = self.send(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest((new,), 10_000)).topics
        assert not done.error_code, done
        self._ids[topic] = done.topic_id
        self._names[self._name(topic)] = topic
        self._await_topic(topic, partitions)

    def _await_topic(self, topic: str, partitions: int) -> None:
        until = time.monotonic() + _READY_TIMEOUT_S
        request = MetadataRequest((MetadataRequestTopic(bytes(16), self._name(topic)),), False)
        while len(self.send(ApiKey.METADATA, 12, request).topics[0].partitions) < partitions:
            assert time.monotonic() < until, "the topic does not appear"
            self._wait()

    # -- wire

    def _wait(self) -> None:
        """Nothing tells when the other process is ready: let it hold back an answer, to a fetch of nothing."""
        self.send(ApiKey.FETCH, 6, FetchRequest(max_wait_ms=20, min_bytes=1, max_bytes=1, topics=()))

    def send(self, api: ApiKey, version: int, message: tuple[Any, ...]) -> Any:
        """One request, and its answer."""
        correlation_id = next(self._correlation_ids)
        self._connection.sendall(encode_request(api, version, correlation_id, "talk", message))
        size = int.from_bytes(self._read(4), "big")
        answered, response = decode_response(api, version, self._read(size))
        assert answered == correlation_id
        return response

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._connection.recv(size - len(data))
            assert part, "the broker closed the connection"
            data += part
        return data

    def _find_coordinator(self, group_id: str) -> None:
        """Wait until the coordinator of this group answers, whether there is such a group or not."""
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=(group_id,))
        describe = ConsumerGroupDescribeRequest((group_id,))
        until = time.monotonic() + _READY_TIMEOUT_S
        while self.send(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code != ErrorCode.NONE or self.send(
            ApiKey.CONSUMER_GROUP_DESCRIBE, 0, describe
        ).groups[0].error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            assert time.monotonic() < until, "no coordinator"
            self._wait()

    def _warm_up(self) -> None:
        """Nothing tells when this group's coordinator knows of new topics: join until it does, then forget the group.

        It must be this very group: another one may belong to a shard that hears of the topics earlier.
        """
        until = time.monotonic() + _READY_TIMEOUT_S
        while self._join_warm() < 6:
            assert time.monotonic() < until, "the coordinator does not hear of the topics"
            self._wait()
        self.beat("warm", -1)
        self.delete_group()
        self.transcript.clear()

    def _join_warm(self) -> int:
        """How many partitions of `t` and `u` the coordinator has for a member."""
        assignment = self.join("warm", "t", "u").assignment
        return sum(len(each.partitions) for each in assignment.topic_partitions) if assignment else 0

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
            self._full(member),
            epoch,
            instance,
            rack,
            rebalance_ms,
            tuple(self._name(each) for each in topics) if topics != ("",) and topics else (() if topics else None),
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

    def _generate(self, member_id: str) -> str:
        """A short name for an id that the broker has made; others are told as they are."""
        if len(member_id) < 8:
            return member_id
        if member_id not in self._names:
            self._names[member_id] = short = f"M{len(self._generated)}"
            self._generated[short] = member_id
        return self._names[member_id]

    def _full(self, member: str) -> str:
        return self._generated.get(member, member)

    def _name(self, topic: str) -> str:
        return topic + self._suffix

    def _plain(self, text: Any) -> Any:
        if not isinstance(text, str):
            return text
        for full, short in self._names.items():
            text = text.replace(full, short)
        return text.replace(self.group_id, "G").replace(self._suffix, "~")

    def _note(self, asked: str, answered: str) -> None:
        self.transcript.append(f"{asked} -> {answered}".rstrip(" >-") if not answered else f"{asked} -> {answered}")


def _identity(member: str) -> MemberIdentity:
    """A member by its id, or with a slash in front by its instance id alone, as an administrator names it."""
    return MemberIdentity("", member[1:]) if member.startswith("/") else MemberIdentity(member)

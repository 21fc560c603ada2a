"""A runtime for consumer groups of one shard, in memory, and members that follow the protocol as a client does.

It holds what the runtime relies on: nobody is answered twice, a decision's records are what is applied, and nothing but
the log survives `crash`. After every input it checks that no partition is with two members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ottla.assign.server import ServerAssignor
from ottla.coordinator.decision import AssignPartitions, CancelTimer, Decision, LogRecord, ReportFault, SetTimer
from ottla.coordinator.group.config import GroupConfig, GroupSettings
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.states import MEMBER_TRANSITIONS, TRANSITIONS, GroupState, MemberState
from ottla.coordinator.group.consumer.topics import Topic
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.shard import GroupShard
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.coordinator.group.told import Told

START_MS = 1_700_000_000_000
GROUP = "readers"
CLIENT = RequestContext("c", "/127.0.0.1")
#: As most tests want it: no wait between two assignments.
CONFIG = GroupConfig(consumer_assignment_interval_ms=0)


class Metadata:
    """Topics that a test makes, changes and deletes."""

    def __init__(self, **partitions: int) -> None:
        self.version = 0
        self.created_version = 0
        self._topics: dict[str, Topic] = {}
        for name, count in partitions.items():
            self.make(name, count)

    def make(self, name: str, partitions: int) -> bytes:
        """A topic, or more partitions of one; returns its id."""
        self.version += 1
        known = self._topics.get(name)
        if known is None:
            self.created_version = self.version
        topic_id = self.new_id() if known is None else known.topic_id
        self._topics[name] = Topic(name, topic_id, partitions)
        return topic_id

    def new_id(self) -> bytes:
        """The id of a new topic."""
        return bytes(12) + self.version.to_bytes(4, "big")

    def delete(self, name: str) -> None:
        self.version += 1
        del self._topics[name]

    def find(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def find_id(self, topic_id: bytes) -> Topic | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def names(self) -> Iterator[str]:
        return iter(self._topics)

    def id_of(self, name: str) -> bytes:
        return self._topics[name].topic_id


class Rig:
    """See the module."""

    def __init__(
        self,
        metadata: Metadata | None = None,
        config: GroupConfig = CONFIG,
        own: Mapping[str, int] | None = None,
        assignors: Mapping[str, ServerAssignor] | None = None,
    ) -> None:
        self.metadata = metadata or Metadata(words=4)
        self.config = config
        self.settings = GroupSettings(config, lambda group_id: own or {})
        self.assignors = assignors
        self.now_ms = START_MS
        self.log: list[LogRecord] = []
        self.answers: dict[int, Any] = {}
        self.timers: dict[tuple[str, ...], int] = {}
        self.jobs: list[AssignPartitions] = []
        self.faults: list[ReportFault] = []
        self.fail_with: ErrorCode | None = None
        self.told = Told(self._topic_name)
        self._token = 0
        self.shard = self._new_shard()
        for decision in self.shard.loaded(self.now_ms):
            self.run(decision)

    def _new_shard(self) -> GroupShard:
        return GroupShard(
            self.config, self._topic_id, topics=self.metadata, settings=self.settings, assignors=self.assignors
        )

    def _topic_id(self, name: str) -> bytes | None:
        topic = self.metadata.find(name)
        return None if topic is None else topic.topic_id

    def _topic_name(self, topic_id: bytes) -> str | None:
        topic = self.metadata.find_id(topic_id)
        return None if topic is None else topic.name

    # -- the runtime

    def run(self, decision: Decision) -> None:
        """Carry out a decision."""
        if decision.records and self.fail_with is not None:
            error, self.fail_with = self.fail_with, None
            self.run(self.shard.append_failed(decision, error))
            return
        before = self._states()
        for record in decision.records:
            self.log.append(record)
            self.shard.apply(record, self.now_ms)
            after = self._states()
            if after[0] is not GroupState.EMPTY or record is decision.records[-1]:
                # (Where a static member takes the place of the only one, nobody is there between two records.)
                self._check_states(before, after)
                before = after
        for reply in decision.replies:
            assert reply.token not in self.answers, "answered twice"
            self.answers[reply.token] = reply.response
        for timer in decision.timers:
            match timer:
                case SetTimer(key, delay_ms):
                    self.timers[key] = self.now_ms + delay_ms
                case CancelTimer(key):
                    self.timers.pop(key, None)
        for effect in decision.effects:
            match effect:
                case AssignPartitions():
                    self.jobs.append(effect)
                case ReportFault():
                    self.faults.append(effect)
        self.told.hear((*decision.facts, *self.shard.settled()), self.now_ms)
        if decision.rest is not None:
            self.run(decision.rest())

    def _states(self) -> tuple[GroupState | None, dict[str, MemberState]]:
        group = self.shard.consumer_groups.find(GROUP)
        if group is None:
            return None, {}
        return group.state, {member_id: member.state for member_id, member in group.members.items()}

    def _check_states(
        self,
        before: tuple[GroupState | None, dict[str, MemberState]],
        after: tuple[GroupState | None, dict[str, MemberState]],
    ) -> None:
        """Every step is one of the tables'."""
        if before[0] is not None and after[0] is not None and before[0] is not after[0]:
            assert after[0] in TRANSITIONS[before[0]], (before[0], after[0])
        for member_id, state in after[1].items():
            was = before[1].get(member_id, state)
            assert state is was or state in MEMBER_TRANSITIONS[was], (member_id, was, state)

    def advance(self, delta_ms: int) -> None:
        """Let time pass, firing timers at their times."""
        until_ms = self.now_ms + delta_ms
        while due := sorted((at, key) for key, at in self.timers.items() if at <= until_ms and key[0] != "retention"):
            at_ms, key = due[0]
            self.now_ms = max(self.now_ms, at_ms)
            del self.timers[key]
            self.run(self.shard.timer(key, self.now_ms))
        self.now_ms = until_ms

    def crash(self) -> None:
        """kill -9 and start: whatever is not in the log is gone."""
        self.timers.clear()
        self.jobs.clear()
        self.shard = self._new_shard()
        for record in self.log:
            self.shard.apply(record, self.now_ms)
        for decision in self.shard.loaded(self.now_ms):
            self.run(decision)

    def token(self) -> int:
        self._token += 1
        return self._token

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.consumer_groups.find(GROUP)
        assert group is not None
        return group

    def state(self) -> GroupState:
        return self.group.state

    # -- requests

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, *, version: int = 1, unique: str = "made-up"
    ) -> ConsumerGroupHeartbeatResponse:
        """One heartbeat, and its answer."""
        token = self.token()
        self.run(
            self.shard.consumer_group_heartbeat(
                token, request, CLIENT, self.now_ms, unique_id=unique, member_id_required=version > 0
            )
        )
        answer: ConsumerGroupHeartbeatResponse = self.answers[token]
        return answer

    def join(self, member_id: str, *topics: str, **more: Any) -> ConsumerGroupHeartbeatResponse:
        """A first heartbeat."""
        return self.heartbeat(join_request(member_id, *topics, **more))

    def joined(self, member_id: str, *topics: str, **more: Any) -> FakeMember:
        """A member that is in the group."""
        return FakeMember(self, member_id, *topics, **more)


def join_request(member_id: str, *topics: str, **more: Any) -> ConsumerGroupHeartbeatRequest:
    """A first heartbeat of a member."""
    given: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": topics or ("words",),
        "topic_partitions": (),
    }
    return ConsumerGroupHeartbeatRequest(GROUP, member_id, 0, **{**given, **more})


class FakeMember:
    """A member that does what it is told: it gives up and takes over partitions as the answers say."""

    def __init__(self, rig: Rig, member_id: str, *topics: str, **more: Any) -> None:
        self.rig = rig
        self.member_id = member_id
        self.instance_id: str | None = more.get("instance_id")
        self.owned: dict[bytes, tuple[int, ...]] = {}
        self.epoch = 0
        self._take(rig.heartbeat(join_request(member_id, *topics, **more)))

    def beat(self, **more: Any) -> ConsumerGroupHeartbeatResponse:
        """The next heartbeat; it says what the member has."""
        given: dict[str, Any] = {"instance_id": self.instance_id, "topic_partitions": self.said()}
        request = ConsumerGroupHeartbeatRequest(GROUP, self.member_id, self.epoch, **{**given, **more})
        answer = self.rig.heartbeat(request)
        self._take(answer)
        return answer

    def said(self) -> tuple[TopicPartitions, ...]:
        return tuple(TopicPartitions(topic_id, numbers) for topic_id, numbers in self.owned.items())

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            GROUP, self.member_id, epoch, instance_id=self.instance_id, topic_partitions=None
        )
        return self.rig.heartbeat(request)

    @property
    def partitions(self) -> list[int]:
        """The numbers that the member has, of all topics."""
        return sorted(number for numbers in self.owned.values() for number in numbers)

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.error_code:
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}


def by_pattern(rig: Rig, member_id: str, pattern: str, **more: Any) -> None:
    """A member that subscribes to a regular expression, which is resolved then."""
    answer = rig.join(member_id, subscribed_topic_names=None, subscribed_topic_regex=pattern, **more)
    assert not answer.error_code
    rig.advance(0)


def settle(*members: FakeMember, rounds: int = 10) -> None:
    """Heartbeats of all members until nothing changes any more."""
    for _ in range(rounds):
        before = [(member.epoch, member.owned) for member in members]
        for member in members:
            answer = member.beat()
            assert answer.error_code == ErrorCode.NONE, answer
        if before == [(member.epoch, member.owned) for member in members]:
            return
    raise AssertionError("the group does not come to rest")

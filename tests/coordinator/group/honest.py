"""Members of both protocols that do as a good client does, one small step at a time, on the coordinator's real core.

What a member has (`owned`) is what its user reads just now: not what the coordinator thinks, and not what an answer on
its way says. To give something up takes as long as its user likes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from ottla.assign import Cluster, CooperativeStickyAssignor, PartitionInfo, RangeAssignor
from ottla.client.core.consumer.group.classic.group_protocol import read_subscriptions
from ottla.coordinator.decision import Decision
from ottla.wire.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.group.consumer.rig import CLIENT, GROUP, Rig, join_request

TOPIC = "words"
SESSION_MS = 45_000
_GIVES_UP_LATER = 0.6
_ASSIGNORS = {"range": RangeAssignor, "cooperative-sticky": CooperativeStickyAssignor}


class Honest:
    """What both kinds have in common."""

    def __init__(self, rig: Rig, name: str, instance_id: str | None, rng: random.Random) -> None:
        self.rig = rig
        self.name = name
        self.instance_id = instance_id
        self.rng = rng
        self.owned: frozenset[int] = frozenset()
        self.lives = True

    def step(self) -> None:
        """Whatever it has to do next."""
        raise NotImplementedError

    def leave(self) -> None:
        """In order; a static member only ends."""
        raise NotImplementedError

    def lost_connection(self) -> None:
        """The coordinator is gone, and with it the answers that it owed. It comes back from its log."""

    def die(self) -> None:
        """kill -9, or a static member that stops."""
        self.lives, self.owned = False, frozenset()

    @property
    def _takes_its_time(self) -> bool:
        return self.rng.random() < _GIVES_UP_LATER


class _Stage(Enum):
    OUT = auto()
    JOINING = auto()
    JOINED = auto()
    SYNCING = auto()
    GIVING_UP = auto()
    STABLE = auto()


class Classic(Honest):
    """A member of the classic protocol, eager with `range`, cooperative with `cooperative-sticky`."""

    def __init__(
        self, rig: Rig, name: str, instance_id: str | None, rng: random.Random, strategy: str, partitions: int
    ) -> None:
        super().__init__(rig, name, instance_id, rng)
        self._strategy, self._partitions = strategy, partitions
        self._is_eager = strategy == "range"
        self._id, self._generation = "", -1
        self._stage = _Stage.OUT
        self._token = 0
        self._next: frozenset[int] = frozenset()
        self._given: tuple[SyncGroupRequestAssignment, ...] = ()

    def _ask(self, asked: Callable[[int], Decision]) -> Any:
        self._token = self.rig.token()
        self.rig.run(asked(self._token))
        return self.rig.answers.get(self._token)

    def step(self) -> None:
        match self._stage:
            case _Stage.OUT:
                self._join()
            case _Stage.JOINING if self._token in self.rig.answers:
                self._has_joined(self.rig.answers[self._token])
            case _Stage.JOINED:
                request = SyncGroupRequest(
                    GROUP, self._generation, self._id, self.instance_id, "consumer", self._strategy, self._given
                )
                self._ask(lambda token: self.rig.shard.sync_group(token, request, self.rig.now_ms))
                self._stage = _Stage.SYNCING
            case _Stage.SYNCING if self._token in self.rig.answers:
                self._has_synced()
            case _Stage.GIVING_UP:
                self._give_up()
            case _Stage.STABLE:
                self._beat()

    def _join(self) -> None:
        if self._is_eager and self.owned:
            if self._takes_its_time:
                return
            self.owned = frozenset()
        has = (OwnedTopic(TOPIC, tuple(sorted(self.owned))),) if self.owned else ()
        metadata = encode_subscription(ConsumerProtocolSubscription((TOPIC,), None, has, self._generation))
        offered = (JoinGroupRequestProtocol(self._strategy, metadata),)
        request = JoinGroupRequest(GROUP, SESSION_MS, 60_000, self._id, self.instance_id, "consumer", offered)

        def joining(token: int) -> Decision:
            return self.rig.shard.join_group(token, request, CLIENT, self.rig.now_ms, unique_id=f"{self.name}-{token}")

        self._ask(joining)
        self._stage = _Stage.JOINING

    def _has_joined(self, answer: JoinGroupResponse) -> None:
        if answer.error_code:
            self._failed(ErrorCode(answer.error_code), answer.member_id)
            return
        self._id, self._generation, self._given = answer.member_id, answer.generation_id, ()
        if answer.leader == self._id and not answer.skip_assignment:
            cluster = Cluster({TOPIC: tuple(PartitionInfo(number, ()) for number in range(self._partitions))})
            shares = _ASSIGNORS[self._strategy]().assign(cluster, read_subscriptions(answer.members))
            self._given = tuple(
                SyncGroupRequestAssignment(member, _encoded([tp.partition for tp in share.partitions]))
                for member, share in shares.items()
            )
        self._stage = _Stage.JOINED

    def _has_synced(self) -> None:
        answer = self.rig.answers[self._token]
        if answer.error_code:
            self._failed(ErrorCode(answer.error_code))
            return
        topics = decode_assignment(answer.assignment, 1_000).assigned_partitions if answer.assignment else ()
        self._next = frozenset(number for topic in topics for number in topic.partitions)
        self._stage = _Stage.GIVING_UP

    def _give_up(self) -> None:
        """What is not in the new part goes first; then the others of the group have to hear of it."""
        goes = self.owned - self._next
        if goes and self._takes_its_time:
            self._beat()
            return
        self.owned = self._next
        self._stage = _Stage.OUT if goes and not self._is_eager else _Stage.STABLE

    def _beat(self) -> None:
        request = HeartbeatRequest(GROUP, self._generation, self._id, self.instance_id)
        answer = self._ask(lambda token: self.rig.shard.heartbeat(token, request, self.rig.now_ms))
        error = ErrorCode(answer.error_code)
        if error and not (error is ErrorCode.REBALANCE_IN_PROGRESS and self._stage is _Stage.GIVING_UP):
            self._failed(error)

    def lost_connection(self) -> None:
        if self._stage in (_Stage.JOINING, _Stage.SYNCING) and self._token not in self.rig.answers:
            self._stage = _Stage.OUT

    def _failed(self, error: ErrorCode, member_id: str = "") -> None:
        self._stage = _Stage.OUT
        match error:
            case ErrorCode.MEMBER_ID_REQUIRED:
                self._id = member_id
            case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                pass
            case ErrorCode.ILLEGAL_GENERATION | ErrorCode.UNKNOWN_MEMBER_ID:
                self.owned, self._generation = frozenset(), -1
                if error is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._id = ""
            case ErrorCode.FENCED_INSTANCE_ID:
                self.die()
            case _:
                raise AssertionError(error)

    def leave(self) -> None:
        if self._id and self.instance_id is None:
            request = LeaveGroupRequest(GROUP, members=(MemberIdentity(self._id, None, None),))
            self._ask(lambda token: self.rig.shard.leave_group(token, request, self.rig.now_ms))
        self.die()


class Consumer(Honest):
    """A member of the consumer protocol."""

    def __init__(self, rig: Rig, name: str, instance_id: str | None, rng: random.Random) -> None:
        super().__init__(rig, name, instance_id, rng)
        self._epoch = 0
        self._target: frozenset[int] | None = None
        self._says = True

    def step(self) -> None:
        if (
            self._target is not None
            and self._target != self.owned
            and not (self.owned - self._target and self._takes_its_time)
        ):
            self.owned, self._says = self._target, True
        answer = self.rig.heartbeat(self._request())
        match ErrorCode(answer.error_code):
            case ErrorCode.NONE:
                self._epoch, self._says = answer.member_epoch, False
                if answer.assignment is not None:
                    topics = answer.assignment.topic_partitions
                    self._target = frozenset(number for topic in topics for number in topic.partitions)
            case ErrorCode.UNRELEASED_INSTANCE_ID:
                pass
            case ErrorCode.FENCED_INSTANCE_ID:
                self.die()
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.GROUP_ID_NOT_FOUND:
                self.owned, self._target, self._epoch, self._says = frozenset(), None, 0, True
            case error:
                raise AssertionError(error)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        if self._epoch == 0:
            return join_request(self.name, instance_id=self.instance_id)
        has = (TopicPartitions(self.rig.metadata.id_of(TOPIC), tuple(sorted(self.owned))),) if self.owned else ()
        return ConsumerGroupHeartbeatRequest(
            GROUP,
            self.name,
            self._epoch,
            instance_id=self.instance_id,
            topic_partitions=has if self._says else None,
        )

    def leave(self) -> None:
        if self._epoch > 0:
            epoch = -1 if self.instance_id is None else -2
            self.rig.heartbeat(
                ConsumerGroupHeartbeatRequest(
                    GROUP, self.name, epoch, instance_id=self.instance_id, topic_partitions=None
                )
            )
        self.die()


def _encoded(numbers: list[int]) -> bytes:
    return encode_assignment(ConsumerProtocolAssignment((TopicPartition(TOPIC, tuple(numbers)),)))

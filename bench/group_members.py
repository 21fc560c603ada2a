"""Members of large groups, as raw requests: they do what the protocols ask of a client and nothing else.

A classic member has a connection of its own, because a join waits for the others. Members of the consumer protocol
share a few. Both send heartbeats as clients do: a classic one every 3 s, the other when the broker says.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping

from bench.wire import Wire, check
from ottla.wire.apis import ApiKey
from ottla.wire.consumer_protocol import encode_subscription
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

HEARTBEAT_S = 3.0
SESSION_MS = 120_000
_AGAIN = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


class Stable:
    """Whether all members of a group are where they shall be."""

    def __init__(self, members: int) -> None:
        self.members = members
        self._at: dict[str, int] = {}
        self._changed = asyncio.Event()

    def at(self, member: str, generation: int) -> None:
        """The member has its part of this generation."""
        self._at[member] = generation
        self._changed.set()

    def left(self, member: str) -> None:
        """The member is on its way from one generation to another, or is gone."""
        self._at.pop(member, None)

    async def wait(self) -> None:
        """Until all are in the same generation."""
        while not (len(self._at) == self.members and len(set(self._at.values())) == 1):
            self._changed.clear()
            await self._changed.wait()


class ClassicMember:
    """One member; `instance` makes it static. The leader gives every member one byte: the broker does not look."""

    def __init__(self, wire: Wire, group_id: str, name: str, stable: Stable, instance: str | None = None) -> None:
        subscription = encode_subscription(ConsumerProtocolSubscription((group_id,)))
        self._wire, self._group_id, self._name, self._stable, self._instance = wire, group_id, name, stable, instance
        self._protocols = (JoinGroupRequestProtocol("range", subscription),)
        self._member_id = ""
        self._generation = -1
        self._offered: Mapping[str, bytes] = {}

    async def find(self) -> None:
        """Ask for the coordinator, as every client does first, until there is one."""
        request = FindCoordinatorRequest(coordinator_keys=(self._group_id,))
        while True:
            answer = await self._wire.ask(ApiKey.FIND_COORDINATOR, request)
            if not answer.coordinators[0].error_code:
                return
            await asyncio.sleep(0.1)

    async def join(self) -> None:
        """Into the next generation that holds."""
        while not await self._join_once():
            pass
        self._stable.at(self._name, self._generation)

    async def _join_once(self) -> bool:
        answer = await self._joined()
        self._member_id, self._generation = answer.member_id, answer.generation_id
        offered: tuple[SyncGroupRequestAssignment, ...] = ()
        if answer.leader == answer.member_id and not answer.skip_assignment:
            offered = tuple(SyncGroupRequestAssignment(each.member_id, b"x") for each in answer.members)
        request = SyncGroupRequest(
            self._group_id, self._generation, self._member_id, self._instance, "consumer", "range", offered
        )
        synced = await self._wire.ask(ApiKey.SYNC_GROUP, request)
        if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        check("SyncGroup", synced.error_code)
        return True

    async def _joined(self) -> JoinGroupResponse:
        while True:
            request = JoinGroupRequest(
                self._group_id, SESSION_MS, SESSION_MS, self._member_id, self._instance, "consumer", self._protocols
            )
            answer: JoinGroupResponse = await self._wire.ask(ApiKey.JOIN_GROUP, request)
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
            elif answer.error_code in (*_AGAIN, ErrorCode.REBALANCE_IN_PROGRESS):
                await asyncio.sleep(0.05)
            else:
                check("JoinGroup", answer.error_code)
                return answer

    async def live(self, first_s: float) -> None:
        """Heartbeats, and joins when they say so, until cancelled. The first comes after `first_s` seconds."""
        await asyncio.sleep(first_s)
        while True:
            request = HeartbeatRequest(self._group_id, self._generation, self._member_id, self._instance)
            told = (await self._wire.ask(ApiKey.HEARTBEAT, request)).error_code
            if told == ErrorCode.REBALANCE_IN_PROGRESS:
                self._stable.left(self._name)
                await self.join()
            else:
                check("Heartbeat", told)
            await asyncio.sleep(HEARTBEAT_S)

    async def leave(self) -> None:
        """Out of the group."""
        self._stable.left(self._name)
        await self._wire.ask(
            ApiKey.LEAVE_GROUP, LeaveGroupRequest(self._group_id, (MemberIdentity(self._member_id, self._instance),))
        )
        self._member_id = ""

    def forget(self) -> None:
        """A static member's process is started anew: it does not know its member id."""
        self._stable.left(self._name)
        self._member_id = ""


class ConsumerMember:
    """One member of the consumer protocol. It gives up and takes over at once."""

    def __init__(self, wire: Wire, group_id: str, topic: str, stable: Stable) -> None:
        self._wire, self._group_id, self._topic, self._stable = wire, group_id, topic, stable
        self.member_id = str(uuid.uuid4())
        self._epoch = 0
        self._has: tuple[TopicPartitions, ...] = ()
        self.next_s = 0.0

    @property
    def partitions(self) -> int:
        """How many the member has."""
        return sum(len(each.partitions) for each in self._has)

    async def beat(self) -> None:
        """A heartbeat, and another one at once to say what was given up or taken over."""
        while await self._beat_once():
            pass

    async def _beat_once(self) -> bool:
        joins = self._epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            self._group_id,
            self.member_id,
            self._epoch,
            rebalance_timeout_ms=SESSION_MS if joins else -1,
            subscribed_topic_names=(self._topic,) if joins else None,
            topic_partitions=() if joins else self._has,
        )
        answer = await self._wire.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
        if answer.error_code in _AGAIN:
            await asyncio.sleep(0.1)
            return True
        check("ConsumerGroupHeartbeat", answer.error_code)
        self._epoch, self.next_s = answer.member_epoch, answer.heartbeat_interval_ms / 1000
        had = self._has
        if answer.assignment is not None:
            self._has = answer.assignment.topic_partitions
        if self.partitions == 1:  # as many partitions as members: one each is where the group comes to rest
            self._stable.at(self.member_id, 1)
        else:
            self._stable.left(self.member_id)
        return had != self._has

    async def live(self) -> None:
        """Heartbeats as the broker wants them, until cancelled."""
        while True:
            await asyncio.sleep(self.next_s)
            await self.beat()

    async def leave(self) -> None:
        """Out of the group."""
        self._stable.left(self.member_id)
        await self._wire.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ConsumerGroupHeartbeatRequest(self._group_id, self.member_id, -1, topic_partitions=None),
        )

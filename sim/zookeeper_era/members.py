"""Members of a classic group before the real coordinator, `ottla.coordinator.group`.

A member knows its own share from SyncGroup alone. It joins, waits until the coordinator has everybody, and the first
member divides for all of them (`ottla.assign.range`). That something has changed it hears in the answer to a heartbeat,
and before it joins again it stops reading (the eager protocol). A commit carries the generation: the coordinator
refuses one of a generation that is over.

What the broker's shard runner does for a shard is done here in memory: records are applied at once, nothing is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final

from ottla.assign.range import RangeAssignor
from ottla.assign.types import Cluster, Subscription
from ottla.coordinator.decision import Decision, SetTimer
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.shard import GroupShard
from ottla.wire.consumer_protocol import (
    CONSUMER,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from sim.loop import HOST, START_S, SimLoop
from sim.zookeeper_era.consumer import DEFAULTS, Settings
from sim.zookeeper_era.ledger import Ledger
from sim.zookeeper_era.paths import GROUP, TOPIC
from sim.zookeeper_era.weather import Line, Weather

#: `max.poll.interval.ms`: how long a rebalance waits for a member that lives and does not join again.
_REBALANCE_TIMEOUT_MS: Final = 300_000

#: Gives the shard one input; the token names the request that waits.
Input = Callable[[GroupShard, int], Decision]


class Coordinator:
    """The runtime of one group shard: it applies records, keeps timers, and answers over the members' connections."""

    def __init__(self, loop: SimLoop, ledger: Ledger) -> None:
        self.loop = loop
        self.ledger = ledger
        self.shard = GroupShard(GroupConfig(), lambda name: bytes(16))
        self._waiting: dict[int, tuple[asyncio.Future[Any], Line]] = {}
        self._timers: dict[tuple[str, ...], asyncio.TimerHandle] = {}
        self._token = 0
        self._generation = 0
        for decision in self.shard.loaded(self.wall_ms()):
            self._run(decision)

    def now_ms(self) -> float:
        """Milliseconds since the beginning."""
        return (self.loop.time() - START_S) * 1_000

    def wall_ms(self) -> int:
        """The wall clock, for records."""
        return self.loop.now_ms()

    def ask(self, line: Line, asked: Input, answer: asyncio.Future[Any]) -> None:
        """A request has arrived."""
        self._token += 1
        self._waiting[self._token] = (answer, line)
        self._run(asked(self.shard, self._token))

    def look(self, line: Line, query: Callable[[GroupShard], object], answer: asyncio.Future[Any]) -> None:
        """A request that the shard answers at once."""
        line.send(_settle, answer, query(self.shard))

    def _run(self, decision: Decision) -> None:
        for record in decision.records:
            self.shard.apply(record, self.wall_ms())
        for reply in decision.replies:
            answer, line = self._waiting.pop(reply.token)
            line.send(_settle, answer, reply.response)
        for timer in decision.timers:
            before = self._timers.pop(timer.key, None)
            if before is not None:
                before.cancel()
            if isinstance(timer, SetTimer):
                self._timers[timer.key] = self.loop.call_later(
                    timer.delay_ms / 1_000, self._fire, timer.key, context=Context()
                )
        self._count()

    def _fire(self, key: tuple[str, ...]) -> None:
        del self._timers[key]
        self._run(self.shard.timer(key, self.wall_ms()))

    def _count(self) -> None:
        """One rebalance for each generation that has members."""
        group = self.shard.group(GROUP)
        if group is not None and group.generation > self._generation:
            self._generation = group.generation
            self.ledger.rebalances += bool(group.members)


def _settle(answer: asyncio.Future[Any], value: object) -> None:
    if not answer.done():
        answer.set_result(value)


class Member:
    """See the module."""

    def __init__(self, name: str, coordinator: Coordinator, weather: Weather, settings: Settings = DEFAULTS) -> None:
        self.name = name
        self._coordinator = coordinator
        self._ledger = coordinator.ledger
        self._weather = weather
        self._settings = settings
        self._there = Line(coordinator.loop, weather)
        self._back = Line(coordinator.loop, weather)
        self._id = ""
        self._generation = -1
        self._owned: tuple[int, ...] = ()
        self._position = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """The process starts."""
        self._spawn(self._live())
        self._spawn(self._commit_often())

    def crash(self) -> None:
        """kill -9."""
        self._coordinator.loop.kill(self.name)

    def leave(self) -> None:
        """A clean end: commit, LeaveGroup."""
        for task in self._tasks:
            task.cancel()
        self._spawn(self._say_goodbye())

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        context = Context()
        context.run(HOST.set, self.name)
        self._tasks.append(self._coordinator.loop.create_task(coroutine, context=context))

    async def _live(self) -> None:
        while True:
            joined = await self._join()
            mine = None if joined is None else await self._sync(joined)
            if mine is None:
                continue
            await self._fetch_offsets(mine)
            self._owned = mine
            self._ledger.reads(self.name, mine, self._now_ms())
            error = await self._heartbeats()
            self._ledger.notifications += 1
            if error is ErrorCode.REBALANCE_IN_PROGRESS:
                await self._stop_reading()
                await self._commit()
            else:  # it is no member any more, so there is nothing to commit
                self._id = ""
                await self._stop_reading()
            self._owned = ()

    async def _say_goodbye(self) -> None:
        await self._commit()
        request = LeaveGroupRequest(GROUP, (MemberIdentity(self._id),))
        await self._ask("LeaveGroup", lambda shard, token: shard.leave_group(token, request, self._wall_ms()))

    # -- the steps

    async def _join(self) -> JoinGroupResponse | None:
        """The answer of a join, or None when it has to begin again."""
        protocol = JoinGroupRequestProtocol("range", encode_subscription(ConsumerProtocolSubscription((TOPIC,))))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            member_id=self._id,
            protocol_type=CONSUMER,
            protocols=(protocol,),
        )
        unique = f"{self._weather.rng.getrandbits(64):016x}"
        context = RequestContext(self.name, "/127.0.0.1")
        answer: JoinGroupResponse = await self._ask(
            "JoinGroup",
            lambda shard, token: shard.join_group(token, request, context, self._wall_ms(), unique_id=unique),
        )
        if answer.error_code == ErrorCode.NONE:
            self._id, self._generation = answer.member_id, answer.generation_id
            return answer
        self._id = answer.member_id if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED else ""
        return None

    async def _sync(self, joined: JoinGroupResponse) -> tuple[int, ...] | None:
        """What it gets, or None when it has to join again."""
        request = SyncGroupRequest(
            GROUP, self._generation, self._id, None, CONSUMER, joined.protocol_name, self._divided(joined)
        )
        answer: SyncGroupResponse = await self._ask(
            "SyncGroup", lambda shard, token: shard.sync_group(token, request, self._wall_ms())
        )
        if answer.error_code != ErrorCode.NONE:
            self._ledger.failed_attempts += 1
            if answer.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                self._id = ""
            return None
        assigned = decode_assignment(answer.assignment).assigned_partitions
        return tuple(partition for topic in assigned for partition in topic.partitions)

    def _divided(self, joined: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        """What the leader divides; the others send nothing."""
        if joined.leader != joined.member_id:
            return ()
        subscriptions = {m.member_id: Subscription(decode_subscription(m.metadata).topics) for m in joined.members}
        given = RangeAssignor().assign(Cluster.of({TOPIC: self._ledger.partitions}), subscriptions)
        return tuple(
            SyncGroupRequestAssignment(member, encode_assignment(ConsumerProtocolAssignment((topic,))))
            for member, its in given.items()
            for topic in [TopicPartition(TOPIC, tuple(each.partition for each in its.partitions))]
        )

    async def _heartbeats(self) -> ErrorCode:
        """Until an answer says that something has changed."""
        request = HeartbeatRequest(GROUP, self._generation, self._id)
        while True:
            await asyncio.sleep(self._settings.session_timeout_ms / 3_000)
            self._ledger.keep_alives += 1
            answer: HeartbeatResponse = await self._asked(lambda shard, token: shard.heartbeat(token, request))
            if answer.error_code != ErrorCode.NONE:
                return ErrorCode(answer.error_code)

    async def _stop_reading(self) -> None:
        await asyncio.sleep(self._weather.stop_ms() / 1_000)
        self._ledger.stops(self.name, self._now_ms())

    # -- offsets

    async def _fetch_offsets(self, partitions: tuple[int, ...]) -> None:
        request = OffsetFetchRequestGroup(GROUP, topics=(OffsetFetchRequestTopics(bytes(16), TOPIC, partitions),))
        self._ledger.requests["OffsetFetch"] += 1
        answer: asyncio.Future[Any] = self._coordinator.loop.create_future()
        self._there.send(
            self._coordinator.look, self._back, lambda shard: shard.fetch_offsets(request, require_stable=False), answer
        )
        await answer

    async def _commit_often(self) -> None:
        while True:
            await asyncio.sleep(self._settings.commit_interval_ms / 1_000)
            await self._commit()

    async def _commit(self) -> None:
        """One request for all partitions."""
        if not self._owned:
            return
        self._position += 1
        partitions = tuple(OffsetCommitRequestPartition(p, self._position, -1, "") for p in self._owned)
        topics = (OffsetCommitRequestTopic(bytes(16), TOPIC, partitions),)
        request = OffsetCommitRequest(GROUP, self._generation, self._id, None, -1, topics)

        def commit(shard: GroupShard, token: int) -> Decision:
            decision = shard.commit_offsets(token, request, self._wall_ms())
            answer: OffsetCommitResponse = decision.replies[0].response  # type: ignore[assignment]
            for each in answer.topics[0].partitions:
                accepted = each.error_code == ErrorCode.NONE
                self._ledger.committed(self.name, each.partition_index, accepted=accepted)
            return decision

        await self._ask("OffsetCommit", commit)

    # -- requests

    async def _ask(self, api: str, asked: Input) -> Any:
        self._ledger.requests[api] += 1
        return await self._asked(asked)

    async def _asked(self, asked: Input) -> Any:
        answer: asyncio.Future[Any] = self._coordinator.loop.create_future()
        self._there.send(self._coordinator.ask, self._back, asked, answer)
        return await answer

    def _now_ms(self) -> float:
        return self._coordinator.now_ms()

    def _wall_ms(self) -> int:
        return self._coordinator.wall_ms()

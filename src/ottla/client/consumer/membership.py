"""This consumer as a member of its group: joins, syncs, sends heartbeats, leaves (SPEC G3–G15).

A rebalance is a task of its own, begun by poll; what it has to ask of the user's code goes through `Callbacks`, so it
runs inside poll. Heartbeats are another task, which goes on while the user's code is busy.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator

from ottla.assign import Assignment, Assignor, RebalanceProtocol
from ottla.base.types import TopicPartition
from ottla.client.config.consumer import ConsumerConfig
from ottla.client.consumer.callbacks import Callbacks
from ottla.client.core.consumer.group_protocol import (
    assign_all,
    read_assignment,
    read_subscriptions,
    rebalance_protocol,
    subscription_protocols,
)
from ottla.client.core.consumer.positions import Positions
from ottla.client.core.consumer.subscription import Subscription
from ottla.client.core.group_member import (
    NO_GENERATION,
    Call,
    GroupMember,
    MemberState,
    Next,
    heartbeat_pauses_s,
)
from ottla.client.core.intents import CoordinatorKind
from ottla.client.core.metadata import ClusterSnapshot
from ottla.client.errors import ClientError, FencedInstanceIdError, KafkaError, MaxPollIntervalExceededError, code_of
from ottla.client.net.cluster import Cluster
from ottla.client.net.coordinators import Coordinators
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

log = logging.getLogger("ottla.consumer")

_GROUP = CoordinatorKind.GROUP
_PROTOCOL_TYPE = "consumer"
#: A JoinGroup may take as long as the group allows its members for a rebalance, and a little.
_JOIN_SLACK_MS = 5_000
_LEAVE_TIMEOUT_MS = 5_000


class Membership:
    """The shell around `GroupMember`."""

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        subscription: Subscription,
        positions: Positions,
        config: ConsumerConfig,
        assignors: list[Assignor],
        callbacks: Callbacks,
        *,
        auto_commit: Callable[[], Awaitable[None]],
        changed: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`auto_commit` is awaited before partitions are given up, `changed` called whenever poll should look."""
        self.member = GroupMember(config.group_id or "", config.group_instance_id)
        self._cluster = cluster
        self._coordinators = coordinators
        self._subscription = subscription
        self._positions = positions
        self._config = config
        self._callbacks = callbacks
        self._auto_commit = auto_commit
        self._changed = changed
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._assignors = assignors
        self._protocol = rebalance_protocol(self._assignors)
        self._last_poll_s = self._loop.time()
        self._in_poll = False
        self._exceeded = False
        #: Another member has this one's `group.instance.id`: joining again would take it back, and so on for ever.
        self._fenced: FencedInstanceIdError | None = None
        self._rebalancing: asyncio.Task[None] | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        #: Partition counts the leader assigned by; when metadata says otherwise it rejoins.
        self._assigned_counts: dict[str, int] = {}
        cluster.on_update(self._metadata_changed)

    # what poll asks

    def polled(self) -> None:
        """The user has called poll(). Raises MaxPollIntervalExceededError once after it came too late."""
        now_s = self._loop.time()
        took_ms = int((now_s - self._last_poll_s) * 1000)
        self._last_poll_s = now_s
        if self._exceeded:
            self._exceeded = False
            raise MaxPollIntervalExceededError(took_ms, self._config.max_poll_interval_ms)

    @contextlib.contextmanager
    def polling(self) -> Iterator[None]:
        """While the user waits in poll(), `max.poll.interval.ms` does not run."""
        self._in_poll = True
        try:
            yield
        finally:
            self._in_poll = False
            self._last_poll_s = self._loop.time()

    def pump(self) -> None:
        """Begin a rebalance if one is needed."""
        wanted = self._subscription.by_group and self.member.rejoin_reason is not None
        if wanted and self._fenced is not None:
            self._failed(self._fenced)
        elif wanted and self._rebalancing is None and not self._exceeded:
            self._rebalancing = asyncio.create_task(self._rebalance(), name="ottla-rebalance")

    @property
    def holds_back(self) -> bool:
        """Whether poll must not return records now: they may belong to somebody else soon."""
        pending = self._rebalancing is not None or self.member.rejoin_reason is not None
        return self._subscription.by_group and pending and self._protocol is RebalanceProtocol.EAGER

    @property
    def needs_poll(self) -> bool:
        """Whether poll has to do more than hand out records."""
        pending = self._rebalancing is not None or self.member.rejoin_reason is not None
        return self._exceeded or (self._subscription.by_group and pending)

    def subscription_changed(self) -> None:
        """The user subscribed to something else."""
        self.member.rejoin("the subscription changed")

    # leaving

    async def leave(self, reason: str, *, tell: bool = True) -> None:
        """Give everything back, and `tell` the coordinator, unless the member is static (SPEC G10, G15)."""
        await self._stop(self._rebalancing)
        try:
            await self._give_back()
        finally:  # whatever the user's callback raises, others are waiting for the partitions
            self._positions.assign(())
            await (self.depart(reason) if tell else self.close())

    async def _give_back(self) -> None:
        owned = sorted(self._positions.assignment)
        if owned and self.member.generation_id == NO_GENERATION:
            await self._callbacks.call(self._subscription.on_lost or self._subscription.on_revoked, owned)
        elif owned:
            await self._auto_commit()
            await self._callbacks.call(self._subscription.on_revoked, owned)

    async def depart(self, reason: str) -> None:
        """Stop the tasks and send LeaveGroup; no callback, no commit."""
        await self.close()
        if self.member.member_id and self.member.group_instance_id is None:
            identity = MemberIdentity(self.member.member_id, None, reason)
            request = LeaveGroupRequest(self.member.group_id, (identity,))
            with contextlib.suppress(ClientError, TimeoutError):
                async with asyncio.timeout(_LEAVE_TIMEOUT_MS / 1000):
                    await self._coordinators.request(_GROUP, self.member.group_id, ApiKey.LEAVE_GROUP, request)
        self.member.forgotten(reason)

    async def close(self) -> None:
        """Stop the tasks. Idempotent."""
        await self._stop(self._rebalancing)
        await self._stop(self._heartbeats)

    # a rebalance

    async def _rebalance(self) -> None:
        log.info("group %s: joining (%s)", self.member.group_id, self.member.rejoin_reason)
        try:
            await self._prepare()
            assignment = await self._assignment()
            await self._complete(assignment)
        except (ClientError, ValueError) as error:
            # also what an assignor or the wire finds wrong; the next poll tells it, and joins again
            self.member.rejoin("the last attempt failed")
            self._failed(error)
        finally:
            self._rebalancing = None
            self._changed()

    async def _prepare(self) -> None:
        """Give up what has to be given up before joining (SPEC G13, G14)."""
        owned = self._positions.assignment
        if owned and self.member.generation_id == NO_GENERATION:
            self._positions.assign(())
            await self._call_back(self._subscription.on_lost or self._subscription.on_revoked, owned)
        elif owned and self._protocol is RebalanceProtocol.EAGER:
            await self._auto_commit()
            await self._call_back(self._subscription.on_revoked, owned)
            self._positions.assign(())
        elif owned:
            unwanted = frozenset(tp for tp in owned if tp.topic not in self._subscription.topics)
            await self._revoke(unwanted)
        await self._stop(self._heartbeats)

    async def _assignment(self) -> Assignment:
        """Join and sync, as often as it takes."""
        backoff = self._cluster.backoff()
        while True:
            try:
                meaning, assignment = await self._join_and_sync()
            except ClientError as error:
                if not error.retriable:
                    raise
                log.debug("group %s: %s", self.member.group_id, error)
                self._coordinators.forget(_GROUP, self.member.group_id)
                meaning, assignment = Next.RETRY, None
            if assignment is not None:
                return assignment
            if meaning is Next.FIND_COORDINATOR:
                self._coordinators.forget(_GROUP, self.member.group_id)
            if meaning in (Next.RETRY, Next.FIND_COORDINATOR, Next.START_OVER):
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def _join_and_sync(self) -> tuple[Next, Assignment | None]:
        joined = await self._join()
        if joined.error_code != ErrorCode.NONE:
            return self._answered(Call.JOIN, joined.error_code, joined.member_id), None
        self.member.joined(joined.member_id, joined.generation_id, joined.protocol_name or "", joined.leader)
        self._start_heartbeats()
        assignor = next(a for a in self._assignors if a.name == self.member.protocol)
        assignments = await self._lead(assignor, joined) if self.member.is_leader and not joined.skip_assignment else ()
        request = SyncGroupRequest(
            self.member.group_id,
            self.member.generation_id,
            self.member.member_id,
            self.member.group_instance_id,
            _PROTOCOL_TYPE,
            self.member.protocol,
            assignments,
        )
        timeout_ms = self._config.max_poll_interval_ms + _JOIN_SLACK_MS
        synced: SyncGroupResponse = await self._coordinators.request(
            _GROUP, self.member.group_id, ApiKey.SYNC_GROUP, request, timeout_ms=timeout_ms
        )
        if synced.error_code != ErrorCode.NONE:
            return self._answered(Call.SYNC, synced.error_code), None
        self.member.synced()
        assignment = read_assignment(synced.assignment)
        assignor.on_assignment(assignment, self.member.generation_id)
        return Next.RETRY, assignment

    async def _join(self) -> JoinGroupResponse:
        reason = self.member.rejoin_reason
        self.member.joining()
        if self._subscription.pattern is not None:
            await self._cluster.refreshed()
            self._subscription.match(self._cluster.snapshot, exclude_internal=self._config.exclude_internal_topics)
        owned = self._positions.assignment
        protocols = subscription_protocols(
            self._assignors,
            self._subscription.topics,
            owned,
            self.member.generation_id,
            self._config.client_rack or None,
        )
        request = JoinGroupRequest(
            self.member.group_id,
            self._config.session_timeout_ms,
            self._config.max_poll_interval_ms,
            self.member.member_id,
            self.member.group_instance_id,
            _PROTOCOL_TYPE,
            protocols,
            reason,
        )
        timeout_ms = self._config.max_poll_interval_ms + _JOIN_SLACK_MS
        answer: JoinGroupResponse = await self._coordinators.request(
            _GROUP, self.member.group_id, ApiKey.JOIN_GROUP, request, timeout_ms=timeout_ms
        )
        return answer

    async def _lead(self, assignor: Assignor, joined: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        """This member divides the partitions (SPEC G4, G7)."""
        subscriptions = read_subscriptions(joined.members)
        topics = {topic for subscription in subscriptions.values() for topic in subscription.topics}
        self._cluster.track(topics)
        await self._cluster.refreshed()
        snapshot = self._cluster.snapshot
        self._assigned_counts = {topic: snapshot.partition_count(topic) for topic in topics}
        return assign_all(assignor, snapshot, subscriptions)

    async def _complete(self, assignment: Assignment) -> None:
        """Take what was given; in the cooperative protocol first give up what goes to others."""
        owned = self._positions.assignment
        assigned = frozenset(assignment.partitions)
        if owned - assigned:
            await self._revoke(owned - assigned)
            self.member.rejoin("partitions were given up that others wait for")
        self._cluster.track({tp.topic for tp in assigned})
        self._positions.assign(sorted(assigned))
        log.info(
            "group %s: generation %d, %d partitions", self.member.group_id, self.member.generation_id, len(assigned)
        )
        self._changed()
        await self._call_back(self._subscription.on_assigned, assigned - owned)

    async def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        if partitions:
            await self._auto_commit()
            await self._call_back(self._subscription.on_revoked, partitions)
            self._positions.assign(sorted(self._positions.assignment - partitions))

    async def _call_back(self, function: Callable[..., object] | None, partitions: frozenset[TopicPartition]) -> None:
        """Run a rebalance callback in poll; what it raises is raised there, and the rebalance goes on."""
        try:
            await self._callbacks.call(function, sorted(partitions))
        except Exception as error:  # noqa: BLE001  whatever the user's callback raises
            self._failed(error)

    def _answered(self, call: Call, error_code: int, member_id: str = "") -> Next:
        code = code_of(error_code)
        meaning = self.member.answered(call, code, member_id)
        log.debug("group %s: %s was answered %s: %s", self.member.group_id, call.value, code.name, meaning.value)
        if meaning is Next.FAIL:
            error = KafkaError.of(code, f"group {self.member.group_id}")
            self._fenced = error if isinstance(error, FencedInstanceIdError) else None
            raise error
        return meaning

    # heartbeats

    def _start_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
        self._heartbeats = asyncio.create_task(self._beat(), name="ottla-heartbeat")

    async def _beat(self) -> None:
        config = self._config
        heard_s = self._loop.time()
        for pause_s in heartbeat_pauses_s(config.heartbeat_interval_ms):
            await asyncio.sleep(min(pause_s, max(0.001, self._poll_left_s())))
            if self._poll_left_s() < 0:
                await self._gave_up_waiting()
                return
            try:
                code = await self._heartbeat()
            except ClientError as error:
                log.debug("group %s: heartbeat failed: %s", self.member.group_id, error)
                self._coordinators.forget(_GROUP, self.member.group_id)
                await asyncio.sleep(config.retry_backoff_ms / 1000)
                continue
            if code == ErrorCode.NONE:
                heard_s = self._loop.time()
                continue
            try:
                meaning = self._answered(Call.HEARTBEAT, code)
            except KafkaError as error:
                self.member.forgotten("heartbeats are refused")
                self._failed(error)
                return
            if meaning is Next.FIND_COORDINATOR:
                self._coordinators.forget(_GROUP, self.member.group_id)
            self._changed()
            if meaning is Next.START_OVER:
                log.info("group %s: expelled after %.1f s", self.member.group_id, self._loop.time() - heard_s)
                return

    def _poll_left_s(self) -> float:
        """How long the user may still stay away from poll()."""
        since_s = self._loop.time() if self._in_poll else self._last_poll_s
        return since_s + self._config.max_poll_interval_ms / 1000 - self._loop.time()

    async def _heartbeat(self) -> int:
        request = HeartbeatRequest(*self.member.metadata)
        timeout_ms = min(self._config.request_timeout_ms, self._config.session_timeout_ms)
        answer: HeartbeatResponse = await self._coordinators.request(
            _GROUP, self.member.group_id, ApiKey.HEARTBEAT, request, timeout_ms=timeout_ms
        )
        return answer.error_code

    async def _gave_up_waiting(self) -> None:
        """The user does not poll: leave, so that others get the partitions (SPEC G9)."""
        self._exceeded = True
        allowed_ms = self._config.max_poll_interval_ms
        log.warning("group %s: no poll() for %d ms, leaving the group", self.member.group_id, allowed_ms)
        self._heartbeats = None
        await self.depart(f"no poll() within max.poll.interval.ms ({allowed_ms})")
        self._changed()

    # metadata

    def _metadata_changed(self, before: ClusterSnapshot, after: ClusterSnapshot) -> None:
        subscription = self._subscription
        if subscription.match(after, exclude_internal=self._config.exclude_internal_topics):
            self.member.rejoin("other topics match the pattern")
            self._changed()
        if self.member.is_leader and self.member.state is MemberState.STABLE:
            counts = {topic: after.partition_count(topic) for topic in self._assigned_counts}
            if counts != self._assigned_counts:
                self.member.rejoin("topics have other partitions than were assigned")
                self._changed()

    @staticmethod
    async def _stop(task: "asyncio.Task[None] | None") -> None:
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

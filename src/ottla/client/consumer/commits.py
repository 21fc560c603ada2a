"""Committing positions: when asked, in the background, and before partitions are given up (SPEC O1, O4)."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from ottla.base.types import TopicPartition
from ottla.client.config.consumer import ConsumerConfig
from ottla.client.consumer.callbacks import Callbacks
from ottla.client.core.consumer.positions import Positions
from ottla.client.core.consumer.subscription import Subscription
from ottla.client.core.group_member import NO_GENERATION, Call, GroupMember, Next
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.client.errors import ClientError, CommitFailedError, IllegalStateError, KafkaError
from ottla.client.net.cluster import Cluster
from ottla.client.net.coordinators import Coordinators
from ottla.client.net.group_offsets import commit_offsets
from ottla.client.net.retry import Deadline, repeat

log = logging.getLogger("ottla.consumer")

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
#: Hears of an asynchronous commit: the offsets, and why it failed (None when it did not).
OnCommit = Callable[[Offsets, Exception | None], object]


class Commits:
    """All commits of one consumer, in the order they were asked for."""

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        member: Callable[[], GroupMember],
        subscription: Subscription,
        positions: Positions,
        config: ConsumerConfig,
        callbacks: Callbacks,
    ) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._member = member
        self._subscription = subscription
        self._positions = positions
        self._config = config
        self._callbacks = callbacks
        self._loop = asyncio.get_running_loop()
        self._enabled = config.enable_auto_commit and config.group_id is not None
        self._due_s = self._next_s()
        self._running: set[asyncio.Task[None]] = set()

    @property
    def is_due(self) -> bool:
        """Whether the next poll has to commit."""
        return self._enabled and self._loop.time() >= self._due_s

    async def commit(self, offsets: Offsets | None, timeout_ms: float | None = None) -> None:
        """Commit `offsets`, or all positions; retried until it is done.

        Raises CommitFailedError when the group has moved on, RebalanceInProgress as KafkaError, RequestTimeoutError.
        """
        self._check_group()
        wanted = self._positions.committable() if offsets is None else dict(offsets)
        await self._drain()
        if wanted:
            await repeat(
                lambda: self._attempt(wanted),
                what="commit",
                deadline=Deadline(timeout_ms or self._config.default_api_timeout_ms),
                backoff=self._cluster.backoff(),
            )

    def commit_async(self, offsets: Offsets | None, callback: OnCommit | None) -> None:
        """Commit in the background, once; `callback` is called by a later poll."""
        self._check_group()
        wanted = self._positions.committable() if offsets is None else dict(offsets)
        before = list(self._running)
        task = asyncio.create_task(self._in_background(wanted, callback, before), name="ottla-commit")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def poll(self) -> None:
        """Commit, if it is time, what earlier polls have returned."""
        if self.is_due:
            self._due_s = self._next_s()
            lost = self._subscription.by_group and self._member().generation_id == NO_GENERATION
            if not lost and self._positions.committable():
                self.commit_async(None, None)

    async def before_giving_up(self) -> None:
        """Commit before a rebalance or the end, for a bounded time; a failure is logged, it means reading again."""
        await self._drain()
        if self._enabled:
            try:
                await self.commit(None, self._config.session_timeout_ms / 3)
            except ClientError as error:
                log.warning("positions were not committed before they were given up: %s", error)

    async def close(self) -> None:
        """Wait for what was begun."""
        await self._drain()

    async def _drain(self) -> None:
        if self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _in_background(
        self, offsets: Offsets, callback: OnCommit | None, before: list["asyncio.Task[None]"]
    ) -> None:
        if before:
            await asyncio.gather(*before, return_exceptions=True)
        failure: Exception | None = None
        try:
            if offsets:
                await self._attempt(offsets)
        except ClientError as error:
            failure = error
            log.log(logging.DEBUG if callback is not None else logging.WARNING, "commit failed: %s", error)
        if callback is not None:
            self._callbacks.post(callback, offsets, failure)

    async def _attempt(self, offsets: Offsets) -> None:
        member = self._member()
        if self._subscription.by_group and member.generation_id == NO_GENERATION:
            raise CommitFailedError(_MOVED_ON)
        try:
            await commit_offsets(self._coordinators, member.metadata, offsets)
        except KafkaError as error:
            if not self._subscription.by_group:
                raise
            meaning = member.answered(Call.COMMIT, error.code)
            if meaning is Next.START_OVER:
                raise CommitFailedError(_MOVED_ON) from error
            raise

    def _check_group(self) -> None:
        if self._config.group_id is None:
            raise IllegalStateError("commits need a group.id in the consumer's configuration")

    def _next_s(self) -> float:
        return self._loop.time() + self._config.auto_commit_interval_ms / 1000


_MOVED_ON = (
    "the offsets were not committed: this consumer is not part of the group's current generation. Either a rebalance "
    "took its partitions, or poll() was not called within max.poll.interval.ms"
)

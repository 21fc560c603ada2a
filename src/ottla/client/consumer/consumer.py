"""The consumer for asyncio; the blocking one (`client.blocking.consumer`) drives the same object from a thread."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.base.clock import Clock, SystemClock
from ottla.base.types import TopicPartition
from ottla.client.config.consumer import consumer_config
from ottla.client.consumer.callbacks import CallbackDue, Callbacks
from ottla.client.consumer.lookups import Lookups
from ottla.client.core.consumer.commits import OnCommit
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.core.consumer.core import ConsumerCore
from ottla.client.core.consumer.events import ConsumerEvent
from ottla.client.core.consumer.fetch_buffer import FetchBuffer
from ottla.client.core.consumer.fetched import Decoding
from ottla.client.core.consumer.group.classic.group_protocol import assignors
from ottla.client.core.consumer.group.kinds import new_member_id
from ottla.client.core.consumer.intents import CallUser, FollowAllTopics, ReadClock, WakePoll
from ottla.client.core.consumer.offset_reset import OffsetReset
from ottla.client.core.consumer.positions import NO_POSITION, PartitionState
from ottla.client.core.consumer.subscription import RebalanceCallback, Wanted
from ottla.client.core.intents import Untrack
from ottla.client.core.offsets import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    checked_offset,
    checked_partition,
)
from ottla.client.errors import IllegalStateError, MaxPollIntervalExceededError, RequestTimeoutError
from ottla.client.net.cluster import Cluster
from ottla.client.net.retry import Deadline
from ottla.client.net.supervisor import Supervisor
from ottla.client.serdes import deserializer
from ottla.client.shell.driver import Driver
from ottla.wire.special_timestamp import SpecialTimestamp

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")
log = logging.getLogger("ottla.consumer")
_FOREVER_S = 3_600.0


class AsyncConsumer:
    """Reads topics as a member of a group (`subscribe`), or partitions by hand (`assign`).

        async with AsyncConsumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "words"}) as consumer:
            consumer.subscribe(["lines"])
            async for record in consumer:
                ...

    Belongs to one event loop, and to one task at a time. Heartbeats and automatic commits run on the same loop: if code
    blocks the loop for longer than `session.timeout.ms`, the consumer loses its partitions.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        on_reset: Callable[[OffsetReset], object] | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        """Raises ConfigError. Nothing is connected yet. poll calls `on_reset` for every position that was replaced.

        `clock` tells the time of day; only `auto.offset.reset=by_duration` needs it. A `cluster` that is given may be
        shared. This consumer does not close it, and its requests may have to wait for those of the others.
        """
        self.config = consumer_config(config)
        rng = rng or random.Random()
        self._shares_cluster = cluster is not None
        if cluster is None:
            cluster = Cluster(self.config, rng, auto_create_topics=self.config.allow_auto_create_topics)
        self._cluster = cluster
        self._clock = clock or SystemClock()
        decoding = Decoding(
            check_crcs=self.config.check_crcs,
            read_committed=self.config.read_committed,
            key=deserializer("key.deserializer", self.config.key_deserializer),
            value=deserializer("value.deserializer", self.config.value_deserializer),
        )
        chosen = assignors(self.config.partition_assignment_strategy)
        name = new_member_id(self.config.group_protocol, rng.randbytes)
        self._core = ConsumerCore(self.config, chosen, decoding, rng, on_reset=on_reset, member_id=name)
        self._supervisor = Supervisor("the consumer")
        self._lookups = Lookups(self.config, cluster, self._supervisor)
        self._news = asyncio.Event()
        self._callbacks = Callbacks()
        self._driver: Driver | None = None
        #: Closing has begun, so poll is refused. Closing is over, so every call is refused.
        self._closed = self._stopped = False

    # life

    async def start(self) -> None:
        """Begin to look for the cluster. Idempotent; every call that needs a broker does it too."""
        self._drive()
        await self._cluster.start()

    async def close(self, *, leave_group: bool = True) -> None:
        """Commit (if `enable.auto.commit`), call `on_revoked`, leave the group, disconnect. Idempotent.
        With `leave_group=False` the group keeps the member until `session.timeout.ms` (KIP-1092).
        """
        await self._serve(self._close(leave_group))

    async def __aenter__(self) -> "AsyncConsumer":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # what to read

    def subscribe(
        self,
        topics: Wanted,
        *,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Read topics, or what matches a pattern (`re`, or a SubscriptionPattern of the brokers), shared by the group.

        `poll` calls `on_assigned` with partitions that come, `on_revoked` with partitions that go (it may still commit
        them), and `on_lost`, or without it `on_revoked`, with partitions that other members may have by now.
        Raises IllegalStateError.
        """
        if self.config.group_id is None:
            raise IllegalStateError("subscribe() needs a group.id in the consumer's configuration")
        subscription, driver = self._core.subscription, self._drive()
        subscription.subscribe(topics)
        subscription.on_assigned = on_assigned
        subscription.on_revoked = on_revoked
        subscription.on_lost = on_lost
        driver.feed(self._core.subscribed)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; no group gives or takes them. Raises IllegalStateError."""
        driver = self._drive()
        wanted = [checked_partition(tp) for tp in partitions]
        self._core.subscription.assign()
        driver.feed(self._core.assigned, wanted)

    async def unsubscribe(self) -> None:
        """Read nothing; leave the group."""
        await self._serve(self._unsubscribe())

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._core.positions.assignment

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed; with a pattern, those that match; if the broker matches it, those read."""
        return self._core.topics

    # reading

    async def poll(self, timeout_s: float = 1.0) -> list[ConsumerRecord]:
        """Up to `max.poll.records` records; an empty list when none came within `timeout_s`.

        Runs rebalances and their callbacks. Raises MaxPollIntervalExceededError, OffsetOutOfRangeError,
        NoOffsetForPartitionError, LogTruncatedError, SerializationError, CorruptRecordsError, KafkaError.
        """
        return await self._served(lambda: self.take(self.config.max_poll_records), timeout_s) or []

    async def poll_arrow(
        self, timeout_s: float = 1.0, *, with_headers: bool = False
    ) -> "dict[TopicPartition, pyarrow.RecordBatch]":
        """One fetch of each partition, or 1 MiB of one that is compressed, as columns. Raises as `poll` does."""
        return await self._served(lambda: self.take_arrow(with_headers=with_headers), timeout_s) or {}

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        while not self._closed:
            for record in self.buffer.one_by_one(await self.poll(_FOREVER_S)):
                yield record

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these until they are resumed; they stay assigned. Raises IllegalStateError."""
        for tp in partitions:
            self._state(tp).paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these again. Raises IllegalStateError if one is not assigned."""
        for tp in partitions:
            self._state(tp).paused = False
        self._drive().feed(self._core.look)
        self._news.set()

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(state.tp for state in self._core.positions if state.paused)

    # positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`. Raises IllegalStateError if the partition is not assigned, ValueError below 0."""
        self._state(partition).seek(checked_offset(offset))
        self._drive().feed(self._core.positions_chosen)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on at the first record; of all partitions when none is given. Raises IllegalStateError as `seek`."""
        self._seek_to(partitions, SpecialTimestamp.EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on after the last record; of all partitions when none is given. Raises IllegalStateError as `seek`."""
        self._seek_to(partitions, SpecialTimestamp.LATEST)

    async def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """Offset of the next record, looked up if need be. Raises RequestTimeoutError, and what `poll` raises."""
        await self.start()
        state, driver = self._state(partition), self._drive()
        timeout_s = self._timeout_ms(timeout_s) / 1000
        deadline = Deadline(timeout_s * 1000)
        while state.position == NO_POSITION:
            self._news.clear()
            self._supervisor.check()
            self._core.failures.raise_next()
            driver.feed(self._core.look)
            if deadline.passed:
                raise RequestTimeoutError(f"the position of {partition} was not found within {timeout_s} s")
            await self._wait(deadline)
        return state.next_offset

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets, where there are any. Raises RequestTimeoutError, KafkaError."""
        self._drive()
        return await self._lookups.committed(partitions, self._timeout_ms(timeout_s))

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_s: float | None = None
    ) -> None:
        """Commit `offsets`, or what poll has returned. Raises CommitFailedError, RequestTimeoutError."""
        checked = self._lookups.checked(offsets)
        await self.start()
        await self._drive().call(self._core.commit, checked, self._timeout_ms(timeout_s))

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, callback: OnCommit | None = None
    ) -> None:
        """`commit` without waiting; `callback(offsets, error)` is called in a later poll. Raises IllegalStateError."""
        checked = self._lookups.checked(offsets)
        self._drive().feed(self._core.commit_async, checked, callback)

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first record, if any, at or after a time (ms since the epoch). Raises RequestTimeoutError, KafkaError."""
        found = await self._offsets_at(times, timeout_s)
        return {tp: offset for tp, offset in found.items() if offset.offset >= 0}

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition. Raises RequestTimeoutError, KafkaError."""
        found = await self._offsets_at(dict.fromkeys(partitions, SpecialTimestamp.EARLIEST), timeout_s)
        return {tp: offset.offset for tp, offset in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The end; with read_committed, the last stable offset. Raises RequestTimeoutError, KafkaError."""
        found = await self._offsets_at(dict.fromkeys(partitions, SpecialTimestamp.LATEST), timeout_s)
        return {tp: offset.offset for tp, offset in found.items()}

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Offsets left to read as of the last fetch; None before the first. Raises IllegalStateError."""
        return self._state(partition).lag(read_committed=self.config.read_committed)

    def events(self) -> list[ConsumerEvent]:
        """What has happened since the last call: rebalances, partitions that came or went, resets. Never waits."""
        return self._core.events.take()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member as it joined last; if expelled, its offsets are refused (KIP-447). Raises IllegalStateError."""
        if self.config.group_id is None:
            raise IllegalStateError("group_metadata() needs a group.id in the consumer's configuration")
        return self._core.member.last

    # what the blocking facade uses

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Records that were fetched already. May be called in any thread."""
        return self.buffer.take_records(limit)

    def take_arrow(self, *, with_headers: bool) -> "dict[TopicPartition, pyarrow.RecordBatch]":
        """What was fetched already, as columns. May be called in any thread."""
        columns = self.buffer.take_one_per_partition(lambda fetch: fetch.take_columns(with_headers=with_headers))
        return {tp: batch for tp, batch in columns.items() if batch.num_rows}

    @property
    def buffer(self) -> FetchBuffer:
        """The fetches that were not taken yet; for the thread that polls."""
        return self._core.buffer

    def can_take(self) -> bool:
        """Whether poll only has to return records that were fetched already. May be called in any thread."""
        driver = self._driver
        if driver is None or self._callbacks or self._supervisor.failure is not None:
            return False
        return self._core.can_take(driver.time())

    def taken(self) -> None:
        """Records were taken: fetch more. To be called on the loop."""
        if self._driver is not None:
            self._driver.feed(self._core.taken)

    def polled(self) -> None:
        """poll was called. Raises MaxPollIntervalExceededError, IllegalStateError."""
        if self._closed:
            raise IllegalStateError("the consumer is closed: make a new one")
        self.buffer.handed_out()
        if self._driver is not None:
            took_ms = self._core.polled(self._driver.time())
            if took_ms is not None:
                raise MaxPollIntervalExceededError(took_ms, self.config.max_poll_interval_ms)

    async def step(self, ready: Callable[[], T], deadline: Deadline) -> "T | CallbackDue | None":
        """Wait until `ready` finds something, a callback is due, or `deadline` passes (returns None)."""
        driver, watch = self._drive(), self._core.watch
        await self._cluster.start()
        watch.in_poll = True
        try:
            await asyncio.sleep(0)  # also if no poll in a loop ever waits, heartbeats must be sent
            return await self._step(driver, ready, deadline)
        finally:
            watch.in_poll = False
            watch.last_s = driver.time()

    async def _step(self, driver: Driver, ready: Callable[[], T], deadline: Deadline) -> "T | CallbackDue | None":
        core = self._core
        while True:
            self._news.clear()
            self._supervisor.check()
            core.failures.raise_next()
            driver.feed(core.poll)
            self._supervisor.check()
            if (due := self._callbacks.next()) is not None:
                return due
            if not core.holds_back:
                found = ready()
                if self.buffer.made_room() or found:  # what was taken may hold nothing for the user
                    driver.feed(core.taken)
                if found:
                    return found
            if deadline.passed:
                return None
            await self._wait(deadline)

    def unfinished(self) -> str:
        """Nothing is lost with a consumer: what was not committed is read again."""
        return ""

    async def abandon(self) -> str:
        """Close what the user did not close: leave the group without a commit and without a callback."""
        if not self._closed:
            self._closed = True
            try:
                if self._driver is not None and self._supervisor.failure is None:
                    await self._driver.call(self._core.depart)
            finally:
                await self._stop()
        return ""

    async def step_of(self, task: "asyncio.Task[T]") -> "asyncio.Task[T] | CallbackDue":
        """Wait until `task` is done, or a callback is due."""
        while True:
            due = self._callbacks.next()
            if due is not None:
                return due
            if task.done():
                return task
            self._news.clear()
            news = asyncio.ensure_future(self._news.wait())
            await asyncio.wait({task, news}, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()

    # inside

    async def _served(self, ready: Callable[[], T], timeout_s: float) -> T | None:
        self.polled()
        deadline = Deadline(timeout_s * 1000)
        try:
            while True:
                found = await self.step(ready, deadline)
                if not isinstance(found, CallbackDue):
                    return found
                await found.make()
        except BaseException as error:
            if not isinstance(error, Exception):  # the user was interrupted, and gets nothing
                self.buffer.put_back()
            raise

    async def _serve(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` to its end, and make the callbacks that it asks for."""
        task = asyncio.ensure_future(work)
        try:
            while isinstance(due := await self.step_of(task), CallbackDue):
                await due.make()
            await task
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise

    async def _close(self, leave_group: bool) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if self._driver is not None and self._supervisor.failure is None:
                await self._end(self._driver, leave_group)
        finally:  # also when a callback raised, or the wait was cancelled
            await self._stop()

    async def _end(self, driver: Driver, leave_group: bool) -> None:
        try:
            await driver.call(self._core.close, leave_group)
        except asyncio.CancelledError:  # leave at once, because others wait for the partitions
            await driver.call(self._core.depart)
            raise

    async def _stop(self) -> None:
        self._stopped = True
        if self._driver is not None:
            self._driver.stop()
        await self._supervisor.close()
        if not self._shares_cluster:
            await self._cluster.close()

    async def _unsubscribe(self) -> None:
        driver = self._drive()
        try:
            await driver.call(self._core.unsubscribe)
        finally:
            driver.feed(self._core.unsubscribed)

    def _drive(self) -> Driver:
        """The driver. The first call makes it, as that needs a running loop."""
        if self._stopped or (self._closed and self._driver is None):
            raise IllegalStateError("the consumer is closed: make a new one")
        self._supervisor.check()
        if self._driver is None:
            core, cluster = self._core, self._cluster
            driver = self._driver = Driver(core, cluster, self._supervisor, log)
            driver.handle(CallUser, self._call_user)
            driver.handle(WakePoll, lambda intent: self._news.set())
            driver.handle(ReadClock, lambda intent: driver.feed(core.answered, intent.ticket, self._clock.now_ms()))
            driver.handle(FollowAllTopics, lambda intent: cluster.follow_all_topics(intent.wanted, by=driver))
            if self._shares_cluster:
                driver.handle(Untrack, lambda intent: None)  # others that share the cluster may need the topics
            self._supervisor.on_crash(lambda failure: self._news.set())
            driver.feed(core.metadata, cluster.snapshot, cluster.snapshot)
        return self._driver

    def _call_user(self, intent: CallUser) -> None:
        self._callbacks.add(CallbackDue(intent.function, intent.arguments, partial(self._called, intent.ticket)))
        self._news.set()

    def _called(self, ticket: Any, error: Exception | None) -> None:
        if self._driver is not None:
            self._driver.feed(self._core.called, ticket, error)
        if self._stopped and error is not None:  # there will be no poll that could raise it
            log.error("a callback failed while the consumer was closed: %r", error, exc_info=error)

    async def _wait(self, deadline: Deadline) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline.left_ms / 1000):
                await self._news.wait()

    async def _offsets_at(
        self, times: Mapping[TopicPartition, int], timeout_s: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        self._drive()
        return await self._lookups.offsets_at(times, self._timeout_ms(timeout_s))

    def _seek_to(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> None:
        for tp in list(partitions) or self._core.positions.assignment:
            self._state(tp).seek_to_time(timestamp_ms)
        self._drive().feed(self._core.positions_chosen)

    def _state(self, tp: TopicPartition) -> PartitionState:
        state = self._core.positions.get(tp)
        if state is None:
            raise IllegalStateError(f"{tp[0]}-{tp[1]} is not assigned to this consumer; assignment() lists what is")
        return state

    def _timeout_ms(self, timeout_s: float | None) -> float:
        return self.config.default_api_timeout_ms if timeout_s is None else timeout_s * 1000

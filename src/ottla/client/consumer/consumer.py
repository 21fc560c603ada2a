"""The consumer for asyncio; the blocking one (`client.blocking.consumer`) drives the same object from a thread."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.config.consumer import consumer_config
from ottla.client.consumer.callbacks import CallbackDue, Callbacks
from ottla.client.consumer.commits import OnCommit
from ottla.client.consumer.parts import Parts, Shared
from ottla.client.consumer.resets import OffsetReset
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.core.consumer.failures import Failures
from ottla.client.core.consumer.fetch_buffer import FetchBuffer
from ottla.client.core.consumer.fetched import Decoding
from ottla.client.core.consumer.group_protocol import assignors
from ottla.client.core.consumer.positions import NO_POSITION, PartitionState, Positions
from ottla.client.core.consumer.subscription import RebalanceCallback, Subscription
from ottla.client.core.intents import Channel
from ottla.client.core.offsets import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    checked_offsets,
)
from ottla.client.errors import IllegalStateError, RequestTimeoutError
from ottla.client.net.cluster import Cluster
from ottla.client.net.coordinators import Coordinators
from ottla.client.net.group_offsets import fetch_committed
from ottla.client.net.log_offsets import list_offsets
from ottla.client.net.retry import Deadline
from ottla.client.serdes import deserializer
from ottla.wire.special_timestamp import SpecialTimestamp

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")
_FOREVER_S = 3_600.0


class AsyncConsumer:
    """Reads topics as a member of a group (`subscribe`), or partitions by hand (`assign`).

        async with AsyncConsumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "words"}) as consumer:
            consumer.subscribe(["lines"])
            async for record in consumer:
                ...

    Belongs to one event loop and one task at a time. Heartbeats and automatic commits run on the same loop: code that
    blocks the loop for longer than `session.timeout.ms` loses its partitions.
    """

    def __init__(
        self, config: Mapping[str, object], *, on_reset: Callable[[OffsetReset], object] | None = None
    ) -> None:
        """Raises ConfigError. Nothing is connected yet. `on_reset` hears of every position that was replaced."""
        self.config = consumer_config(config)
        self._cluster = Cluster(self.config, random.Random(), auto_create_topics=self.config.allow_auto_create_topics)
        self._coordinators = Coordinators(self._cluster, Channel.COORDINATOR)
        self._assignors = assignors(self.config.partition_assignment_strategy)
        self._subscription = Subscription()
        self._positions = Positions()
        self._buffer = FetchBuffer()
        self._on_reset = on_reset
        self._decoding = Decoding(
            check_crcs=self.config.check_crcs,
            read_committed=self.config.read_committed,
            key=deserializer("key.deserializer", self.config.key_deserializer),
            value=deserializer("value.deserializer", self.config.value_deserializer),
        )
        self._news = asyncio.Event()
        self._failures = Failures()
        self._callbacks = Callbacks(self._something_came)
        self._running: Parts | None = None
        self._closed = False

    # life

    async def start(self) -> None:
        """Begin to look for the cluster. Idempotent; every call that needs a broker does it too."""
        self._parts()
        await self._cluster.start()

    async def close(self, *, leave_group: bool = True) -> None:
        """Commit (if `enable.auto.commit`), call `on_revoked`, leave the group, disconnect. Idempotent.
        With `leave_group=False` the group keeps the member until `session.timeout.ms` (KIP-1092).
        """
        await self._serve(self._close(leave_group))

    async def __aenter__(self) -> "AsyncConsumer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # what to read

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        *,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Read topics, or whatever topics match a pattern, sharing their partitions with the group.

        The callbacks run inside `poll`, with the partitions that come, go (still this member's: it may commit), or are
        lost (somebody else has them by now; `on_revoked` if not given). Raises IllegalStateError.
        """
        if self.config.group_id is None:
            raise IllegalStateError("subscribe() needs a group.id in the consumer's configuration")
        self._subscription.subscribe(topics)
        self._subscription.on_assigned = on_assigned
        self._subscription.on_revoked = on_revoked
        self._subscription.on_lost = on_lost
        parts = self._parts()
        self._cluster.all_topics = self._subscription.pattern is not None
        self._cluster.track(self._subscription.topics)
        self._cluster.request_update()
        parts.membership.subscription_changed()
        self._something_came()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; no group gives or takes them. Raises IllegalStateError."""
        self._subscription.assign()
        wanted = [TopicPartition(*tp) for tp in partitions]
        self._parts()
        self._cluster.track({tp.topic for tp in wanted})
        self._positions.assign(wanted)
        self._positions_chosen()

    async def unsubscribe(self) -> None:
        """Read nothing; leave the group."""
        if self._subscription.by_group:
            await self._serve(self._parts().membership.leave("the consumer unsubscribed"))
        self._subscription.clear()
        self._positions.assign(())
        self._cluster.all_topics = False

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._positions.assignment

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed; with a pattern, those that match."""
        return self._subscription.topics

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
        """What a fetch brought, as columns (`ottla.wire.columns`), not deserialized. Raises what `poll` raises."""
        return await self._served(lambda: self.take_arrow(with_headers=with_headers), timeout_s) or {}

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        while not self._closed:
            for record in await self.poll(_FOREVER_S):
                yield record

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these until they are resumed; they stay assigned. Raises IllegalStateError."""
        for tp in partitions:
            self._state(tp).paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these again. Raises IllegalStateError if one is not assigned."""
        for tp in partitions:
            self._state(tp).paused = False
        self._pump()
        self._something_came()

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(state.tp for state in self._positions if state.paused)

    # positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`. Raises IllegalStateError if the partition is not assigned, ValueError below 0."""
        if offset < 0:
            raise ValueError(f"offsets are not negative: {offset}")
        self._state(partition).seek(offset)
        self._positions_chosen()

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on at the first record; of all partitions when none is given. Raises IllegalStateError as `seek`."""
        self._seek_to(partitions, SpecialTimestamp.EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on after the last record; of all partitions when none is given. Raises IllegalStateError as `seek`."""
        self._seek_to(partitions, SpecialTimestamp.LATEST)

    async def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """Offset of the next record, looked up if need be. Raises RequestTimeoutError, and what `poll` raises."""
        await self.start()
        state = self._state(partition)
        timeout_s = self._timeout_ms(timeout_s) / 1000
        deadline = Deadline(timeout_s * 1000)
        while state.position == NO_POSITION:
            self._news.clear()
            self._pump()
            self._failures.raise_next()
            if deadline.passed:
                raise RequestTimeoutError(f"the position of {partition} was not found within {timeout_s} s")
            await self._wait(deadline)
        return state.position

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets, where there are any. Raises RequestTimeoutError, KafkaError."""
        wanted = [TopicPartition(*tp) for tp in partitions]
        await self._ready(timeout_s)
        return await self._cluster.retrying(
            lambda: self._committed(wanted), what="committed", timeout_ms=self._timeout_ms(timeout_s)
        )

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_s: float | None = None
    ) -> None:
        """Commit `offsets`, or what poll has returned. Raises CommitFailedError, RequestTimeoutError."""
        await self._ready(timeout_s)
        await self._parts().commits.commit(checked_offsets(offsets), self._timeout_ms(timeout_s))

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, callback: OnCommit | None = None
    ) -> None:
        """`commit` without waiting; `callback(offsets, error)` is called in a later poll. Raises IllegalStateError."""
        self._parts().commits.commit_async(checked_offsets(offsets), callback)

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first record, if any, at or after a time (ms since the epoch). Raises RequestTimeoutError, KafkaError."""
        found = await self._list(times, timeout_s)
        return {tp: offset for tp, offset in found.items() if offset.offset >= 0}

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition. Raises RequestTimeoutError, KafkaError."""
        found = await self._list(dict.fromkeys(partitions, SpecialTimestamp.EARLIEST), timeout_s)
        return {tp: offset.offset for tp, offset in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The end; with read_committed, the last stable offset. Raises RequestTimeoutError, KafkaError."""
        found = await self._list(dict.fromkeys(partitions, SpecialTimestamp.LATEST), timeout_s)
        return {tp: offset.offset for tp, offset in found.items()}

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Offsets left to read as of the last fetch; None before the first. Raises IllegalStateError."""
        state = self._state(partition)
        end = state.last_stable_offset if self.config.read_committed else state.high_watermark
        return None if end < 0 or state.position == NO_POSITION else max(0, end - state.position)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member, for `send_offsets_to_transaction`. Raises IllegalStateError without a group."""
        if self.config.group_id is None:
            raise IllegalStateError("group_metadata() needs a group.id in the consumer's configuration")
        return self._parts().membership.member.metadata

    # what the blocking facade uses

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Records that are here already, in any thread."""
        return self._buffer.take_records(limit)

    def take_arrow(self, *, with_headers: bool) -> "dict[TopicPartition, pyarrow.RecordBatch]":
        """Fetches that are here already, as columns, in any thread."""
        columns = self._buffer.take_one_per_partition(lambda fetch: fetch.take_columns(with_headers=with_headers))
        return {tp: batch for tp, batch in columns.items() if batch.num_rows}

    def can_take(self) -> bool:
        """Whether poll has nothing to do but to hand out records that are here, in any thread."""
        running = self._running
        if running is None or not self._buffer or self._failures or self._callbacks:
            return False
        return not running.membership.needs_poll and not running.commits.is_due

    def has_fetches(self) -> bool:
        """Whether `take_arrow` would find something: what is stored of paused partitions does not count."""
        return self._buffer.has_takeable

    def taken(self) -> None:
        """Records were taken: fetch more. On the loop."""
        if self._running is not None and not self._closed:
            self._running.fetcher.pump()

    def polled(self) -> None:
        """poll was called. Raises MaxPollIntervalExceededError, IllegalStateError."""
        if self._closed:
            raise IllegalStateError("the consumer is closed")
        if self._running is not None:
            self._running.membership.polled()

    async def step(self, ready: Callable[[], T], deadline: Deadline) -> "T | CallbackDue | None":
        """Go on until `ready` finds something, a callback of the user's is due, or `deadline` passes (None)."""
        if self._closed:
            raise IllegalStateError("the consumer is closed")
        await self.start()
        parts = self._parts()
        with parts.membership.polling():
            await asyncio.sleep(0)  # a loop of polls that never wait must leave room for heartbeats
            return await self._step(parts, ready, deadline)

    async def _step(self, parts: Parts, ready: Callable[[], T], deadline: Deadline) -> "T | CallbackDue | None":
        while True:
            self._news.clear()
            self._failures.raise_next()
            due = self._callbacks.next()
            if due is not None:
                return due
            parts.commits.poll()
            parts.membership.pump()
            self._pump()
            if not parts.membership.holds_back:
                found = ready()
                if found:
                    parts.fetcher.pump()
                    return found
            if deadline.passed:
                return None
            await self._wait(deadline)

    def unfinished(self) -> str:
        """Nothing is lost with a consumer: what was not committed is read again."""
        return ""

    async def abandon(self) -> str:
        """Close it for somebody who did not: leave the group, but commit nothing, and call nobody."""
        if not self._closed:
            self._closed = True
            if self._running is not None and self._subscription.by_group:
                await self._running.membership.depart("the consumer was not closed")
            await self._stop()
        return ""

    async def step_of(self, task: "asyncio.Task[T]") -> "asyncio.Task[T] | CallbackDue":
        """Wait until `task` is done, or a callback of the user's is due."""
        while not task.done():
            due = self._callbacks.next()
            if due is not None:
                return due
            self._news.clear()
            news = asyncio.ensure_future(self._news.wait())
            await asyncio.wait({task, news}, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
        return task

    # inside

    async def _served(self, ready: Callable[[], T], timeout_s: float) -> T | None:
        self.polled()
        deadline = Deadline(timeout_s * 1000)
        while True:
            found = await self.step(ready, deadline)
            if not isinstance(found, CallbackDue):
                return found
            await found.make()

    async def _serve(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` to its end, making the calls into the user's code that it needs."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                due = await self.step_of(task)
                if isinstance(due, CallbackDue):
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
            if self._running is not None:
                await self._end(self._running, leave_group)
        finally:  # also when a callback of the user's raised, or the wait was cancelled
            await self._stop()

    async def _stop(self) -> None:
        if self._running is not None:
            await self._running.membership.close()
            await self._running.fetcher.close()
            await self._running.resets.close()
        await self._cluster.close()

    async def _end(self, parts: Parts, leave_group: bool) -> None:
        if self._subscription.by_group:
            await parts.membership.leave("the consumer was closed", tell=leave_group)
        elif self.config.enable_auto_commit and self.config.group_id is not None:
            await parts.commits.before_giving_up()
        await parts.commits.close()

    def _parts(self) -> Parts:
        if self._running is None:
            if self._closed:
                raise IllegalStateError("the consumer is closed")
            self._running = Parts(
                Shared(self._cluster, self._coordinators, self._subscription, self._positions, self._buffer),
                self.config,
                self._assignors,
                self._decoding,
                self._callbacks,
                committed=self._committed if self.config.group_id is not None else None,
                news=self._something_came,
                changed=self._positions_found,
                reset=self._reset_happened,
                failed=self._failed,
            )
        return self._running

    def _pump(self) -> None:
        if self._running is not None and not self._closed:
            self._running.resets.pump()
            self._running.fetcher.pump()

    def _something_came(self) -> None:
        self._news.set()

    def _positions_found(self) -> None:
        self._pump()
        self._something_came()

    def _failed(self, error: Exception) -> None:
        self._failures.add(error)
        self._something_came()

    def _reset_happened(self, reset: OffsetReset) -> None:
        if self._on_reset is not None:
            self._callbacks.post(self._on_reset, reset)

    def _positions_chosen(self) -> None:
        self._failures.positions_chosen()
        self._pump()

    async def _wait(self, deadline: Deadline) -> None:
        try:
            async with asyncio.timeout(deadline.left_ms / 1000):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _ready(self, timeout_s: float | None) -> None:
        await self.start()
        await self._cluster.ensure_metadata(self._timeout_ms(timeout_s))

    async def _committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        if self.config.group_id is None:
            raise IllegalStateError("committed offsets need a group.id in the consumer's configuration")
        return await fetch_committed(
            self._coordinators,
            self._cluster.snapshot,
            self.config.group_id,
            partitions,
            require_stable=self.config.read_committed,
        )

    async def _list(
        self, times: Mapping[TopicPartition, int], timeout_s: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        await self.start()
        return await list_offsets(
            self._cluster,
            times,
            read_committed=self.config.read_committed,
            timeout_ms=self._timeout_ms(timeout_s),
        )

    def _seek_to(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> None:
        for tp in list(partitions) or self._positions.assignment:
            self._state(tp).seek_to_time(timestamp_ms)
        self._positions_chosen()

    def _state(self, tp: TopicPartition) -> PartitionState:
        state = self._positions.get(tp)
        if state is None:
            raise IllegalStateError(f"{tp[0]}-{tp[1]} is not assigned to this consumer")
        return state

    def _timeout_ms(self, timeout_s: float | None) -> float:
        return self.config.default_api_timeout_ms if timeout_s is None else timeout_s * 1000

"""The consumer for ordinary, blocking code: an AsyncConsumer that lives on a loop in a background thread.

`poll` returns what the loop has already fetched, in the caller's thread. It waits for the loop only if nothing is
fetched, or if a rebalance or a commit is due. Rebalance callbacks run in the caller's thread, inside `poll`.
"""

import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.blocking.loop_thread import FORKED, LoopThread
from ottla.client.blocking.unclosed import Unclosed
from ottla.client.consumer.callbacks import CallbackDue
from ottla.client.consumer.consumer import AsyncConsumer
from ottla.client.core.consumer.commits import OnCommit
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.core.consumer.events import ConsumerEvent
from ottla.client.core.consumer.offset_reset import OffsetReset
from ottla.client.core.consumer.subscription import RebalanceCallback, Wanted
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
from ottla.client.errors import IllegalStateError
from ottla.client.net.retry import Deadline

if TYPE_CHECKING:
    import asyncio

    import pyarrow

T = TypeVar("T")
_FOREVER_S = 3_600.0


class Consumer:
    """Reads topics as a member of a group (`subscribe`), or partitions by hand (`assign`).

        with Consumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "words"}) as consumer:
            consumer.subscribe(["lines"])
            for record in consumer:
                ...

    Close it, or use it in a `with` block. One that is dropped, or open when the interpreter ends, leaves its group
    without a commit and without a callback.

    Belongs to one thread at a time. Heartbeats go on while the thread is busy, for `max.poll.interval.ms`.
    """

    def __init__(
        self, config: Mapping[str, object], *, on_reset: Callable[[OffsetReset], object] | None = None
    ) -> None:
        """Raises ConfigError. Does not wait for a broker. poll calls `on_reset` for each replaced position."""
        self._consumer = AsyncConsumer(config, on_reset=on_reset)
        self._max_poll_records = self._consumer.config.max_poll_records
        self._polled_by: int | None = None
        self._thread = LoopThread("ottla-consumer")
        self._thread.run(self._consumer.start())
        self._unclosed = Unclosed(self, self._consumer, self._thread)

    # what to read

    def subscribe(
        self,
        topics: Wanted,
        *,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Read topics, or whatever topics match a pattern; see `AsyncConsumer.subscribe`."""
        self._on_loop(
            lambda: self._consumer.subscribe(topics, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
        )

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; no group gives or takes them."""
        self._on_loop(lambda: self._consumer.assign(partitions))

    def unsubscribe(self) -> None:
        """Read nothing; leave the group."""
        self._serve(self._consumer._unsubscribe())

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._consumer.assignment()

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed; with a pattern, those that match."""
        return self._consumer.subscription()

    # reading

    def poll(self, timeout_s: float = 1.0) -> list[ConsumerRecord]:
        """Up to `max.poll.records` records; [] when none came within `timeout_s`. See `AsyncConsumer.poll`.

        Raises IllegalStateError while another thread is in poll.
        """
        return self._taken(lambda: self._consumer.take(self._max_poll_records), timeout_s) or []

    def poll_arrow(
        self, timeout_s: float = 1.0, *, with_headers: bool = False
    ) -> "dict[TopicPartition, pyarrow.RecordBatch]":
        """One fetch of each partition, as columns (`ottla.wire.columns`), not deserialized.

        Of a fetch of compressed batches as many as hold 1 MiB when decompressed; the others come with the next calls.
        """
        return self._taken(lambda: self._consumer.take_arrow(with_headers=with_headers), timeout_s) or {}

    def __iter__(self) -> Iterator[ConsumerRecord]:
        while True:
            try:
                records = self._consumer.buffer.one_by_one(self.poll(_FOREVER_S))
            except BaseException as error:
                self._interrupted(error)
                raise
            yield from records

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these until they are resumed; they stay assigned."""
        self._on_loop(lambda: self._consumer.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these again."""
        self._on_loop(lambda: self._consumer.resume(partitions))

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return self._consumer.paused()

    # positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`."""
        self._on_loop(lambda: self._consumer.seek(partition, offset))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on at the first record; of all partitions when none is given."""
        self._on_loop(lambda: self._consumer.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on after the last record; of all partitions when none is given."""
        self._on_loop(lambda: self._consumer.seek_to_end(partitions))

    def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """Offset of the next record, looked up if need be. Raises RequestTimeoutError."""
        return self._thread.run(self._consumer.position(partition, timeout_s))

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets; partitions without one are left out."""
        return self._thread.run(self._consumer.committed(partitions, timeout_s))

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_s: float | None = None
    ) -> None:
        """Commit `offsets`, or what poll has returned. Raises CommitFailedError, RequestTimeoutError."""
        self._thread.run(self._consumer.commit(offsets, timeout_s))

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, callback: OnCommit | None = None
    ) -> None:
        """Like `commit` without waiting; `callback(offsets, error)` is called inside a later poll."""
        self._on_loop(lambda: self._consumer.commit_async(offsets, callback))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first record at or after a time (ms since the epoch); partitions without one are left out."""
        return self._thread.run(self._consumer.offsets_for_times(times, timeout_s))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._thread.run(self._consumer.beginning_offsets(partitions, timeout_s))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record; with read_committed, the last stable offset."""
        return self._thread.run(self._consumer.end_offsets(partitions, timeout_s))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets are left to read as of the last fetch; None before the first."""
        return self._consumer.current_lag(partition)

    def events(self) -> list[ConsumerEvent]:
        """What has happened since the last call: rebalances, partitions that came or went, resets. Never waits."""
        return self._consumer.events()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member, for `send_offsets_to_transaction`."""
        return self._consumer.group_metadata()

    def close(self, *, leave_group: bool = True) -> None:
        """Commit (if `enable.auto.commit`), call `on_revoked`, leave the group, disconnect. Idempotent.

        With `leave_group=False` the group keeps the member until `session.timeout.ms` (KIP-1092). That is for a restart
        of all members: otherwise each member that leaves would cause a rebalance.
        """
        try:
            if self._thread.is_running:
                self._serve(self._consumer._close(leave_group))
        finally:
            self._unclosed.closed()
            self._thread.stop()

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # inside

    def _enter(self) -> None:
        if self._thread.forked:
            raise IllegalStateError(FORKED)
        me = get_ident()
        if self._polled_by not in (None, me):
            raise IllegalStateError(
                f"thread {self._polled_by} is in poll() of this consumer, which belongs to one thread at a time: "
                "give each thread a consumer of its own"
            )
        self._polled_by = me

    def _on_loop(self, call: Callable[[], T]) -> T:
        async def run() -> T:
            return call()

        return self._thread.run(run())

    def _taken(self, take: Callable[[], T], timeout_s: float) -> T | None:
        """What `take` finds, once something was fetched. This thread makes records and columns, the loop only waits.

        So if the wait is interrupted, nothing was taken. If the taking is interrupted, what was taken is put back.
        """
        try:
            return self._take_or_wait(take, timeout_s)
        except BaseException as error:
            self._interrupted(error)
            raise

    def _take_or_wait(self, take: Callable[[], T], timeout_s: float) -> T | None:
        consumer = self._consumer
        deadline_s: float | None = None
        self._enter()
        try:
            consumer.polled()
            is_here = consumer.can_take()
            while True:
                if is_here:
                    found = take()
                    if consumer.buffer.made_room():
                        self._thread.call_soon(consumer.taken)
                    if found:
                        return found
                if deadline_s is None:
                    deadline_s = time.monotonic() + timeout_s
                left_s = max(0.0, deadline_s - time.monotonic())
                is_here = self._wait(left_s)
                if not is_here and left_s == 0.0:
                    return None
        finally:
            self._polled_by = None

    def _interrupted(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            self._consumer.buffer.put_back()

    def _wait(self, timeout_s: float) -> bool:
        """Poll on the loop until something can be taken, and make the user's callbacks that are due."""
        deadline: Deadline | None = None

        async def step() -> "bool | CallbackDue | None":
            nonlocal deadline
            deadline = deadline or Deadline(timeout_s * 1000)  # it reads the loop's clock
            return await self._consumer.step(lambda: self._consumer.buffer.has_takeable, deadline)

        while True:
            found = self._thread.run(step())
            if not isinstance(found, CallbackDue):
                return bool(found)
            self._call(found)

    def _serve(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` on the loop, and make the callbacks that it asks for in this thread."""

        async def begin() -> "asyncio.Task[None]":
            return self._thread.loop.create_task(work)

        async def finish(task: "asyncio.Task[None]") -> None:
            await task

        task = self._thread.run(begin())
        try:
            while isinstance(due := self._thread.run(self._consumer.step_of(task)), CallbackDue):
                self._call(due)
            self._thread.run(finish(task))
        except BaseException:
            self._thread.call_soon(task.cancel)
            raise

    def _call(self, due: CallbackDue) -> None:
        try:
            due.begin()
            due.function(*due.arguments)
        except Exception as error:  # noqa: BLE001  the core decides who raises it
            self._thread.call_soon(due.finish, error)
        except BaseException:
            self._thread.call_soon(due.interrupted)
            raise
        else:
            self._thread.call_soon(due.finish)

"""The loop of `exactly_once` for asyncio: batches come from the source, and each is one transaction.

Theory of operation. A transaction is open only between two polls: it begins when a batch is handed out, and ends when
the loop asks for the next one. So a rebalance, which happens in poll, never finds one open. The group's offsets are
committed in the transaction, with the member's generation (KIP-447): if the group has given the partitions to others
meanwhile, the coordinator refuses, and nothing of the batch is committed. If the process dies, the next
`init_transactions` of its id, or the transaction's time-out, aborts what was open; the group's offsets are as before.

When a batch fails for a reason that passes, its transaction is aborted, the source goes back to where the batch began,
and the loop gets the records again. No other member can have had them: partitions come and go only in poll.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.consumer.consumer import AsyncConsumer
from ottla.client.core.backoff import Backoff
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.client.errors import ClientError, IllegalStateError, ProducerFencedError, RequestTimeoutError
from ottla.client.exactly_once.batch import COMMITTED, AnyBatch, AsyncBatch
from ottla.client.exactly_once.faults import explained, has_lost_its_epoch, passes, too_long
from ottla.client.exactly_once.settings import Settings
from ottla.client.producer.producer import AsyncProducer
from ottla.wire.errors import ErrorCode

T = TypeVar("T")
log = logging.getLogger("ottla.exactly_once")
#: How long one poll waits. Between two polls the loop looks whether it has to stop.
_POLL_S = 0.5
_UNKNOWN_EPOCH = -1
TWO_WORKERS = (
    "somebody else asks for batches of this loop, and each batch commits the one before. Let one task "
    "(with blocking code, one thread) ask for batches, and share out the records of each; wait for all of them "
    "before the next batch. Or make several exactly_once, each with a transactional_id of its own"
)


class AsyncExactlyOnce:
    """Batches of the source, for `async for`. `exactly_once` makes it, and starts and closes it."""

    def __init__(
        self,
        settings: Settings,
        *,
        consumer: AsyncConsumer | None = None,
        producer: AsyncProducer | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`consumer` and `producer`, made with the configurations of `settings`, and `rng` are for simulations. It
        closes them."""
        self.settings = settings
        self._consumer = consumer or AsyncConsumer(settings.consumer)
        self._producer = producer or AsyncProducer(settings.producer)
        self._producer.outlive_its_id()  # who has lost its partitions meanwhile is fenced by its generation
        self._batch: AnyBatch | None = None
        self._began_s = 0.0
        config = self._producer.config
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng or random.Random())
        #: A batch is to be done again, but only after this pause: what made it fail may take a while to pass.
        self._pause_ms = 0.0
        #: The last batch timed out while the user worked on it.
        self._was_slow = False
        self._running = self._stopping = False
        #: Somebody closes it; `_closed` is set when both clients are closed.
        self._closing, self._closed = False, asyncio.Event()
        #: Who asks for a batch now.
        self._asking: asyncio.Task[Any] | None = None
        #: A call of the loop has failed, or was cancelled, in the middle of a transaction: there is no way to go on.
        self._broken = False

    # life

    async def start(self) -> None:
        """Take over the transactional id, which ends what an earlier process has left open; then join the group.

        Raises RequestTimeoutError, FatalProducerError, KafkaError.
        """
        try:
            # In this order: only then are the group's committed offsets those after the last transaction of this id.
            await self._producer.init_transactions()
            await self._consumer.start()
            self._consumer.subscribe(self.settings.source)
        except BaseException:
            await self._disconnect()
            raise
        self._running = True

    async def close(self, error: BaseException | None = None) -> None:
        """End the last batch, leave the group, disconnect. With `error` the batch is aborted.

        Without, it is committed if all its records were taken; else it is aborted, and read again by whoever gets the
        partitions. Raises what the commit raises. A cancellation makes it short, and is raised in the end: a member
        that stays behind would keep its partitions from everybody. A later call waits for the end of the first.
        """
        if not self._running:
            if self._closing:
                await self._closed.wait()
            return
        self._running, self._closing = False, True
        batch, self._batch = self._batch, None
        try:
            if batch is not None and error is None and not batch.aborted and batch.next_untaken is None:
                await self._told(self._commit(batch))
        finally:
            if batch is not None:
                batch.end("the work has ended")
            try:
                await self._producer.abort_quietly()
            finally:
                await self._disconnect()

    def stop(self) -> None:
        """End the loop after the batch that it is working on, which is committed. Any thread may call this."""
        self._stopping = True

    async def _disconnect(self) -> None:
        try:
            await _to_its_end(self._consumer.close())
        finally:
            try:
                await _to_its_end(self._producer.close())
            finally:
                self._closed.set()

    # the loop

    def __aiter__(self) -> "AsyncExactlyOnce":
        return self

    async def __anext__(self) -> AsyncBatch:
        found = await self.following()
        if found is None:
            raise StopAsyncIteration
        batch = AsyncBatch(*found, self._producer, self.settings)
        self._batch = batch
        return batch

    async def following(self) -> tuple[list[ConsumerRecord], dict[TopicPartition, OffsetAndMetadata]] | None:
        """Commit the open batch, and open the next one: its records, and the offsets after them. None at the end.

        Raises IllegalStateError if records were left out, ProducerFencedError, FatalProducerError, what the consumer's
        `poll` raises, and AbortableTransactionError if a record cannot be written.
        """
        if not self._running:
            raise IllegalStateError("exactly_once works inside a `with` block, or `async with`")
        here = asyncio.current_task()
        if self._asking is not None and not self._asking.cancelling():
            raise IllegalStateError(TWO_WORKERS)
        self._asking = here
        try:
            return await self._told(self._following())
        finally:
            if self._asking is here:
                self._asking = None

    @property
    def producer(self) -> AsyncProducer:
        """For the blocking facade, which sends in its own thread."""
        return self._producer

    def handed_out(self, batch: AnyBatch) -> None:
        """This is the batch that the user works on now."""
        self._batch = batch

    # inside

    async def _following(self) -> tuple[list[ConsumerRecord], dict[TopicPartition, OffsetAndMetadata]] | None:
        if self._broken:
            raise IllegalStateError(
                "the loop has failed or was interrupted while a transaction began or ended: leave the `with` block. "
                "Nothing is lost: the next process goes on from what is committed"
            )
        with self._unless_it_fails():
            await self._settle()
        await asyncio.sleep(self._pause_ms / 1_000)
        self._pause_ms = 0.0
        while not self._stopping:
            records = await self._poll()  # it takes nothing when it is cancelled
            if records:
                with self._unless_it_fails():
                    offsets = await self._offsets_after(records)
                    await self._producer.begin_transaction()
                    self._began_s = asyncio.get_running_loop().time()
                return records, offsets
            if self.settings.until_end and await self._is_at_end():
                break
        return None

    async def _poll(self) -> list[ConsumerRecord]:
        """A poll of the source. What passes by itself (a coordinator that moves, for example) is waited for."""
        try:
            return await self._consumer.poll(_POLL_S)
        except ClientError as error:
            if not (error.retriable or isinstance(error, RequestTimeoutError)):
                raise
            log.warning("%s: the source is polled again: %s", self.settings.transactional_id, error)
            await asyncio.sleep(self._backoff.next_ms() / 1_000)
            return []

    @contextmanager
    def _unless_it_fails(self) -> Iterator[None]:
        """After this block the loop may go on, unless an exception has left it."""
        self._broken = True
        yield
        self._broken = False

    async def _settle(self) -> None:
        """Commit the open batch; if it fails for a reason that passes, go back to where it began."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        worked_s = asyncio.get_running_loop().time() - self._began_s
        left_out = None if batch.aborted else batch.next_untaken
        if left_out is not None:
            batch.end("records were left out")
            where = f"offset {left_out.offset} of {left_out.topic}-{left_out.partition}"
            raise IllegalStateError(
                f"the loop went on, but {where} was not taken, and would be lost: iterate over the whole batch, "
                "or call skip_rest() or abort()"
            )
        if not batch.aborted:
            try:
                await self._commit(batch)
            except ClientError as error:
                if not passes(error):
                    raise
                self._require_time(error, worked_s)
                log.warning("%s: a batch is done again: %s", self.settings.transactional_id, error)
            else:
                self._was_slow = False
                self._backoff.succeeded()
                return
        self._pause_ms = self._backoff.next_ms()
        await self._until_known(self._producer.abort_transaction)
        self._go_back(batch)

    def _require_time(self, error: ClientError, worked_s: float) -> None:
        """Raise ProducerFencedError if the user has needed more than the transaction's time-out, twice in a row: it
        would never end. Once may be a pause of the machine, or a send that waited for a broker."""
        timeout_ms = self.settings.transaction_timeout_ms
        is_slow = has_lost_its_epoch(error) and worked_s * 1_000 >= timeout_ms
        if is_slow and self._was_slow:
            raise ProducerFencedError(ErrorCode.PRODUCER_FENCED) from error
        self._was_slow = is_slow
        if is_slow:
            log.warning("%s: %s", self.settings.transactional_id, too_long(worked_s, timeout_ms))

    def _go_back(self, batch: AnyBatch) -> None:
        """Read the batch again, as far as its partitions are still here."""
        assigned = self._consumer.assignment()
        for tp, offset in batch.starts.items():
            if tp in assigned:
                self._consumer.seek(tp, offset)

    async def _commit(self, batch: AnyBatch) -> None:
        batch.end(COMMITTED)
        await self._producer.send_offsets_to_transaction(batch.offsets, self._consumer.group_metadata())
        await self._until_known(self._producer.commit_transaction)

    async def _until_known(self, end: Callable[[], Awaitable[None]]) -> None:
        """An end that timed out is asked for again: only then is its outcome known."""
        while True:
            try:
                return await end()
            except RequestTimeoutError as error:
                log.warning("%s: how the transaction ends is not known yet: %s", self.settings.transactional_id, error)

    async def _offsets_after(self, records: list[ConsumerRecord]) -> dict[TopicPartition, OffsetAndMetadata]:
        last = {TopicPartition(each.topic, each.partition): each for each in records}
        offsets = {}
        for tp, record in last.items():
            # Behind markers and aborted records, too, so that a group that has read all has no lag. These may be of a
            # newer leader than the record. With the record's epoch the position would look as if the log had lost it.
            position = await self._consumer.position(tp)
            epoch = record.leader_epoch if position == record.offset + 1 else None
            offsets[tp] = OffsetAndMetadata(position, "", _UNKNOWN_EPOCH if epoch is None else epoch)
        return offsets

    async def _is_at_end(self) -> bool:
        """Whether this member has partitions, and has read all that readers of committed records get of them now."""
        assigned = self._consumer.assignment()
        try:
            ends = await self._consumer.end_offsets(assigned)
            return bool(ends) and all([await self._consumer.position(tp) >= end for tp, end in ends.items()])
        except RequestTimeoutError:
            return False

    async def _told(self, work: Awaitable[T]) -> T:
        """`work`, with errors that say what to do."""
        try:
            return await work
        except ClientError as error:
            open_s = asyncio.get_running_loop().time() - self._began_s
            better = explained(error, self.settings.transactional_id, open_s, self.settings.transaction_timeout_ms)
            if better is error:
                raise
            raise better from error


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait until `work` has ended, whatever happens. A first cancellation goes on to it; each is raised in the end."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            if cancelled is None:
                task.cancel()
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # it is retrieved: the cancellation says more
    raise cancelled

"""Writes rows as records: the producers of the sink's tasks."""

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.base.errors import OttlaError
from ottla.client.blocking.producer import Producer
from ottla.client.errors import KafkaError
from ottla.client.producer.delivery import Delivery
from ottla.client.producer.producer import AsyncProducer
from ottla.spark import faults
from ottla.spark.columns import WRITABLE, check_headers
from ottla.spark.errors import RowError
from ottla.spark.ids import slot_id
from ottla.spark.ledger import Handle, SlotMarker, encode
from ottla.spark.link import KafkaLink, link
from ottla.spark.options import NO_ROWS_IN_A_LEDGER, SinkOptions, TwoPhaseCommit, is_ledger
from ottla.wire.errors import ErrorCode

log = logging.getLogger("ottla.spark")
#: In the link's memory: the broker knows two-phase commit, and does not allow it.
_TWO_PHASE_REFUSED = "two-phase commit is refused"
#: How long a task that has failed may take to clean up.
_GIVE_UP_S = 5


def rows_by_topic(options: SinkOptions, batch: Any) -> Iterator[tuple[str, Any]]:
    """The rows of a RecordBatch, divided by the topic they go to.

    Raises RowError for a row without a topic, one that would go to a ledger, and one with a header that cannot be.
    """
    columns = {name: batch.column(name) for name in batch.schema.names if name in WRITABLE}
    topics = columns.pop("topic", None)
    if "headers" in columns:
        check_headers(columns["headers"])
    rows = pa.RecordBatch.from_pydict(columns)
    if options.topic is not None or topics is None:  # as in Spark's connector, the option overrides the column
        assert options.topic is not None
        yield options.topic, rows
        return
    found = pc.unique(topics)
    for each in found:
        topic = each.as_py()
        if topic is None:
            raise RowError("a row has no topic: its column topic is null, and the option topic is not set")
        if is_ledger(topic, options.ledger_topic):
            raise RowError(f"a row has the topic {topic}, which is {NO_ROWS_IN_A_LEDGER}")
        yield topic, rows if len(found) == 1 else rows.filter(pc.equal(topics, each))  # to filter is to copy


class SlotWriter:
    """One attempt at one slot: a transaction that begins here and is left open by `finish`."""

    def __init__(self, options: SinkOptions, slot: int, attempt: int = 0) -> None:
        """Fences earlier attempts at the slot that had the same attempt number; their transactions are aborted.

        `begin` waits for that.
        """
        self._options = options
        self._kafka: KafkaLink = link(options.client)
        self._opening_task: asyncio.Task[Any] | None = None
        self._opening = self._kafka.submit(self._opened(slot_id(self._options.sink_id, slot, attempt)))

    def begin(self) -> None:
        """Wait until the transaction has begun. Raises why it cannot."""
        self._opening.result()

    async def _opened(self, transactional_id: str) -> AsyncProducer:
        self._opening_task = asyncio.current_task()
        return await self._open(transactional_id)

    async def _open(self, transactional_id: str) -> AsyncProducer:
        """A transaction of a new producer: where the broker has two-phase commit, one that no time-out can end."""
        config = {**self._options.client, "transactional.id": transactional_id}
        wish = self._options.two_phase
        known = wish is not TwoPhaseCommit.OFF and (await self._kafka.versions()).two_phase_commit
        if (known and not self._kafka.memory.get(_TWO_PHASE_REFUSED)) or wish is TwoPhaseCommit.REQUIRED:
            without_end = {name: value for name, value in config.items() if name != "transaction.timeout.ms"}
            try:
                return await self._begin({**without_end, "transaction.two.phase.commit.enable": True})
            except KafkaError as error:
                if error.code is not ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED or wish is TwoPhaseCommit.REQUIRED:
                    raise
                log.info("slots have a time-out (kafka.transaction.timeout.ms): %s", error)
                self._kafka.memory[_TWO_PHASE_REFUSED] = True
        return await self._begin(config)

    async def _begin(self, config: Mapping[str, object]) -> AsyncProducer:
        """On connections that are there already: a slot costs no handshake."""
        producer = AsyncProducer(config, cluster=await self._kafka.slot_cluster(config))
        try:
            await producer.init_transactions()
            await producer.begin_transaction()
        except BaseException:
            await producer.close(_GIVE_UP_S)
            raise
        return producer

    def send(self, batch: Any) -> None:
        """Queue rows. Waits when `buffer.memory` is full; raises when this attempt was fenced."""
        producer = self._opening.result()
        for topic, rows in rows_by_topic(self._options, batch):
            if not producer.knows(topic):
                self._kafka.run(producer.ensure_topic(topic))
            for partition, builder in producer.encode_arrow(topic, rows, None):
                if producer.try_send_batch(topic, partition, builder) is None:
                    self._kafka.run(producer.send_batch(topic, partition, builder))

    def finish(self, marker: SlotMarker) -> Handle:
        """Write the marker, wait until all is acknowledged, and leave the transaction open."""
        return self._kafka.run(self._finish(self._opening.result(), marker))

    async def _finish(self, producer: AsyncProducer, marker: SlotMarker) -> Handle:
        key, value = encode(self._options.sink_id, marker)
        await producer.send(self._options.ledger_topic, value, key=key, partition=0)
        return Handle(*await producer.detach_transaction())

    def give_up(self) -> None:
        """Abort the transaction, unless a newer attempt has aborted it. What prevents that is logged, not raised.

        One that has not begun yet is not waited for: Kafka may not answer, and a task without rows needs nothing of it.
        """
        try:
            self._kafka.run(self._give_up())
        except OttlaError as error:
            log.warning("the slot's transaction stays open for now: %s", error)

    async def _give_up(self) -> None:
        task = self._opening_task
        assert task is not None  # what was handed to the loop first has begun first
        task.cancel()
        await asyncio.wait([task], timeout=_GIVE_UP_S)  # one that is cancelled closes its producer
        if task.done() and not task.cancelled() and task.exception() is None:
            producer: AsyncProducer = task.result()
            await producer.close(_GIVE_UP_S)


_PLAIN: dict[tuple[Any, ...], Producer] = {}


def _is_usable(producer: Producer) -> bool:
    """Whether a producer without unsent records still works; one that a fault has ended is closed."""
    try:
        producer.flush(_GIVE_UP_S)
    except OttlaError as error:
        log.warning("a new producer takes the place of one that has ended: %s", error)
        producer.close(_GIVE_UP_S)
        return False
    return True


class PlainWriter:
    """At least once: an idempotent producer that is kept from batch to batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        config = {name: value for name, value in options.client.items() if name != "transaction.timeout.ms"}
        key = (os.getpid(), *sorted((name, str(value)) for name, value in config.items()))
        kept = _PLAIN.get(key)
        if kept is None or not _is_usable(kept):
            _PLAIN[key] = Producer(config)
        self._producer = _PLAIN[key]

    def write(self, batches: Iterator[Any], batch_id: int) -> int:
        """Write all rows and wait until they are acknowledged; how many there were."""
        rows = 0
        deliveries: list[Delivery] = []
        for batch in batches:
            if batch.num_rows:
                if not rows:
                    faults.reach("sink.write-begun", batch_id)
                for topic, of_topic in rows_by_topic(self._options, batch):
                    deliveries += self._producer.send_arrow(topic, of_topic)
                rows += batch.num_rows
                faults.reach("sink.mid-write", batch_id)
        self._producer.flush()
        for delivery in deliveries:
            delivery.result(0)
        faults.reach("sink.flushed", batch_id)
        return rows

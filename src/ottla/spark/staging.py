"""Stages rows for a batch that becomes visible as a whole (`atomicity=batch`), and copies what was staged.

A task encodes its rows as record batches for the partitions that they go to. Few bytes travel in the task's report,
more go to the staging topic of the sink, with no transaction: no reader of the output sees them there. The driver gives
each batch its own producer id, epoch and sequence numbers and writes it to its partition; it decodes nothing.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import Any

from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.client.admin.types import NewTopic
from ottla.client.core.producer import transaction_requests as requests
from ottla.client.core.producer.identity import ProducerIdentity
from ottla.client.errors import (
    ClientError,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    raise_for,
)
from ottla.client.producer.delivery import Delivery
from ottla.client.producer.producer import AsyncProducer
from ottla.spark import faults
from ottla.spark.client_errors import row_error
from ottla.spark.errors import PipelineError
from ottla.spark.ids import other_staging_topic, staging_topic
from ottla.spark.ledger import Handle, SlotMarker
from ottla.spark.link import GONE, KafkaLink, link
from ottla.spark.options import SinkOptions
from ottla.spark.slot_writer import rows_by_topic
from ottla.spark.staged import Staged, StagedAt, StagedBatch
from ottla.wire.apis import ApiKey
from ottla.wire.batch import compression_number, iter_headers, set_producer
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, decode_batch, encode_batch

log = logging.getLogger("ottla.spark")

#: What a task sends in its report: the reports of all tasks go through the JVM, and to commit() and abort().
INLINE_BYTES = 131_072
#: A staged record holds one record batch, which may hold one large row.
_MOST_BYTES = 67_108_864
#: What nobody has copied after a day is of a batch that was given up.
_TOPIC_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "86400000",
    "max.message.bytes": str(_MOST_BYTES),
    "compression.type": "producer",
}
_GIVE_UP_S = 5
#: How long the driver waits for the deletion of what is committed.
_FORGET_S = 5.0
_READ_BYTES = 8_388_608
#: How many record batches the driver has on their way at one time.
_ON_THE_WAY = 32
_SEQUENCES = 2**31
#: How many fetches in a row may bring nothing, as from a new leader, before what was staged counts as lost.
_EMPTY_FETCHES = 5


class StagingWriter:
    """One attempt at one slot. What it has staged counts only if the driver takes its report."""

    def __init__(self, options: SinkOptions, slot: int) -> None:
        self._options = options
        self._slot = slot
        self._kafka: KafkaLink = link(options.client)
        #: With a time-out of the transactions that it does not have, and the larger requests of the staging topic.
        without = {name: value for name, value in options.client.items() if name != "transaction.timeout.ms"}
        self._config = {
            **without,
            "max.request.size": _MOST_BYTES,
            "batch.size": 0,
            "linger.ms": 0,
            "compression.type": "none",
        }
        self._encoder = self._kafka.run(self._producer(without))
        self._compression = Compression[self._encoder.config.compression_type.upper()]
        self._inline: list[StagedBatch] = []
        self._inline_bytes = self._batches = 0
        self._stager: AsyncProducer | None = None
        self._attempt = uuid.uuid4().hex
        self._deliveries: list[Delivery] = []

    async def _producer(self, config: dict[str, object]) -> AsyncProducer:
        return AsyncProducer(config, cluster=await self._kafka.slot_cluster(config))

    def begin(self) -> None:
        """There is nothing to wait for."""

    def send(self, batch: Any) -> None:
        """Encode rows, and stage them. Raises ConfigError or KafkaError if they cannot be written at all."""
        for topic, rows in rows_by_topic(self._options, batch):
            if not self._encoder.knows(topic):
                self._kafka.run(self._encoder.ensure_topic(topic))
            partitions = self._kafka.run(self._encoder.partitions_for(topic))
            for partition, builder in self._encoder.encode_arrow(topic, rows, None):
                # Rows without a key may go anywhere; the tasks of a batch begin at different partitions.
                wanted = partitions[(self._slot + self._batches) % len(partitions)] if partition is None else partition
                self._batches += 1
                data = builder.build(compression=self._compression, level=self._encoder.config.compression_level)
                self._stage(StagedBatch(topic, wanted, builder.record_count, data))

    def _stage(self, batch: StagedBatch) -> None:
        if self._stager is None and self._inline_bytes + len(batch.data) <= INLINE_BYTES:
            self._inline.append(batch)
            self._inline_bytes += len(batch.data)
            return
        self._kafka.run(self._send(batch))

    async def _send(self, batch: StagedBatch) -> None:
        topic = await _topic_of(self._kafka, self._options.sink_id)
        if self._stager is None:
            self._stager = await self._producer(self._config)
        partitions = await self._stager.partitions_for(topic)
        self._deliveries.append(
            await self._stager.send(
                topic,
                batch.data,
                key=self._attempt.encode(),
                partition=partitions[self._slot % len(partitions)],
                headers=[
                    ("topic", batch.topic.encode()),
                    ("partition", str(batch.partition).encode()),
                    ("records", str(batch.records).encode()),
                ],
            )
        )

    def finish(self, marker: SlotMarker) -> Staged:
        """Wait until all is acknowledged. The ledger needs no marker: the decision comes with the rows."""
        at = self._kafka.run(self._finish())
        return Staged(tuple(self._inline), at)

    async def _finish(self) -> StagedAt | None:
        await self._encoder.close(_GIVE_UP_S)
        if self._stager is None:
            return None
        await self._stager.flush()
        where = [await delivery for delivery in self._deliveries]
        await self._stager.close(_GIVE_UP_S)
        offsets = [each.offset for each in where]
        return StagedAt(where[0].topic, where[0].partition, self._attempt, min(offsets), max(offsets), len(offsets))

    def give_up(self) -> None:
        """Stage no more. What is staged is never read."""
        for producer in filter(None, (self._encoder, self._stager)):
            with suppress(OttlaError):
                self._kafka.run(producer.close(_GIVE_UP_S))


async def _topic_of(kafka: KafkaLink, sink: str) -> str:
    """The sink's staging topic. It is made if it is not there."""
    known: str | None = kafka.memory.get(("staging topic", sink))
    if known is None:
        try:
            known = await _ensured(kafka, staging_topic(sink))
        except KafkaError as error:
            if error.code != ErrorCode.INVALID_TOPIC_EXCEPTION:  # of a name that can be one: another sink's is too near
                raise
            known = await _ensured(kafka, other_staging_topic(sink))
        kafka.memory["staging topic", sink] = known
    return known


async def _ensured(kafka: KafkaLink, topic: str) -> str:
    try:
        await kafka.admin.describe_topics([topic])
    except UnknownTopicOrPartitionError:
        with suppress(TopicAlreadyExistsError):
            await kafka.admin.create_topics([NewTopic(topic, configs=_TOPIC_CONFIG)])
    return topic


class _FencedError(Exception):
    """A newer producer holds the transactional id."""


class _Lane:
    """One partition of the output: its batches follow each other."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.sequence = 0
        self.is_in_transaction = False


class Copier:
    """Writes staged rows in the driver's transaction. It is the first to write to these partitions under its epoch."""

    def __init__(self, kafka: KafkaLink, handle: Handle, batch: int | None) -> None:
        self._kafka = kafka
        self._name = handle.transactional_id
        self._identity = ProducerIdentity(handle.producer_id, handle.producer_epoch)
        self._batch = batch
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._room = asyncio.Semaphore(_ON_THE_WAY)

    async def copy(self, staged: Sequence[Staged]) -> bool:
        """Write everything; False if the handle is fenced. Raises PipelineError if something staged is gone."""
        return await asyncio.get_running_loop().create_task(self._copy(staged))  # as in `client.net.requests.together`

    async def _copy(self, staged: Sequence[Staged]) -> bool:
        try:
            async with asyncio.TaskGroup() as group:
                async for each in _all_batches(self._kafka, staged):
                    await self._room.acquire()
                    group.create_task(self._write(each))
        except BaseExceptionGroup as failed:
            if failed.subgroup(_FencedError) is not None:
                return False
            raise failed.exceptions[0] from None
        return True

    async def _write(self, staged: StagedBatch) -> None:
        tp = TopicPartition(staged.topic, staged.partition)
        lane = self._lanes.setdefault(tp, _Lane())
        try:
            async with lane.turn:  # tasks get it in the order in which they were made
                if not lane.is_in_transaction:
                    await self._add(tp)
                    lane.is_in_transaction = True
                await self._produce(tp, lane, bytearray(staged.data), staged.records)
            faults.reach("sink.mid-copy", self._batch)
        finally:
            self._room.release()

    async def _produce(self, tp: TopicPartition, lane: _Lane, data: bytearray, records: int) -> None:
        set_producer(data, *self._identity, lane.sequence, transactional=True)
        code, _ = await self._kafka.produce(tp, bytes(data), self._name)
        if code == ErrorCode.MESSAGE_TOO_LARGE and records > 1:  # as a producer does: in halves
            lines, compression = decode_batch(data), Compression(compression_number(data))
            for half in (lines[: records // 2], lines[records // 2 :]):
                again = [Record(at, *line[1:]) for at, line in enumerate(half)]
                await self._produce(tp, lane, bytearray(encode_batch(again, compression=compression)), len(half))
            return
        self._check(code, f"{tp}")
        lane.sequence = (lane.sequence + records) % _SEQUENCES

    async def _add(self, tp: TopicPartition) -> None:
        """In the first protocol of transactions a partition has to be added before it is written to."""
        if (await self._kafka.versions()).implicit_partitions:
            return
        message = requests.add_partitions(self._name, self._identity, [tp])
        code, _ = await self._kafka.ask_coordinator(
            self._name, ApiKey.ADD_PARTITIONS_TO_TXN, message, lambda answer: requests.worst_partition_error(answer)[0]
        )
        self._check(code, f"{tp} in transaction {self._name}")

    def _check(self, code: int, what: str) -> None:
        if code in GONE:
            raise _FencedError
        if code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            of_a_row = row_error(KafkaError.of(code, what), f"transaction {self._name}")
            if of_a_row is not None:
                raise of_a_row
            raise_for(code, what)


async def _all_batches(kafka: KafkaLink, staged: Sequence[Staged]) -> AsyncIterator[StagedBatch]:
    for each in staged:
        for batch in each.inline:
            yield batch
    places: dict[TopicPartition, list[StagedAt]] = {}
    for at in _places(staged):
        places.setdefault(TopicPartition(at.topic, at.partition), []).append(at)
    for tp, attempts in sorted(places.items()):
        async for batch in _read(kafka, tp, attempts):
            yield batch


def _places(staged: Iterable[Staged]) -> list[StagedAt]:
    return [each.at for each in staged if each.at is not None]


async def _read(kafka: KafkaLink, tp: TopicPartition, attempts: Sequence[StagedAt]) -> AsyncIterator[StagedBatch]:
    """The batches of these attempts in one partition of the staging topic, read once, in order."""
    missing = {each.attempt: each.records for each in attempts}
    at, end = min(each.first for each in attempts), max(each.last for each in attempts) + 1
    empty = 0
    while at < end and any(missing.values()) and empty < _EMPTY_FETCHES:
        try:
            data = await kafka.fetch(tp, at, committed=False, max_bytes=_READ_BYTES, max_wait_ms=500, end=end)
        except OffsetOutOfRangeError:
            break
        if data is None:
            continue
        if not data.records:
            empty += 1
            continue
        for record in _records(data.records, at):
            at = record.offset + 1
            attempt = (record.key or b"").decode()
            if missing.get(attempt):
                missing[attempt] -= 1
                yield _staged_batch(record)
    lost = sum(missing.values())
    if lost:
        raise PipelineError(f"{lost} staged batches are gone from {tp}: start the query again, it stages them anew")


def _records(records: Any, start: int) -> Iterable[Record]:
    view = memoryview(records)
    for pos, header in iter_headers(view):
        if header.last_offset >= start:
            yield from (each for each in decode_batch(view[pos : pos + header.size_bytes]) if each.offset >= start)


def _staged_batch(record: Record) -> StagedBatch:
    told = {name: (value or b"").decode() for name, value in record.headers}
    return StagedBatch(told["topic"], int(told["partition"]), int(told["records"]), bytes(record.value or b""))


async def forget_staged(kafka: KafkaLink, staged: Sequence[Staged]) -> None:
    """Delete what was copied, and all that was staged before it. What prevents that is logged: it is gone in a day."""
    ends: dict[TopicPartition, int] = {}
    for at in _places(staged):
        tp = TopicPartition(at.topic, at.partition)
        ends[tp] = max(ends.get(tp, 0), at.last + 1)
    if ends:
        try:
            async with asyncio.timeout(_FORGET_S):
                await kafka.admin.delete_records(ends)
        except (ClientError, TimeoutError) as refused:
            log.info("staged rows stay until they are a day old: %s", str(refused) or f"no answer in {_FORGET_S:g} s")

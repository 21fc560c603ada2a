"""Runs the requests of `ottla.spark.protocol` against Kafka."""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.client.admin.types import ConfigResource, NewTopic, ResourceType
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.core.producer import transaction_requests as requests
from ottla.client.core.producer.identity import NO_IDENTITY, ProducerIdentity
from ottla.client.errors import (
    KafkaError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    raise_for,
)
from ottla.spark import faults
from ottla.spark.bounds import EARLIEST, LATEST
from ottla.spark.errors import PipelineError
from ottla.spark.ids import driver_id
from ottla.spark.ledger import Decision, Handle, Ledger, LedgerBatch, LedgerRecord, Ledgers, ReadMark, encode
from ottla.spark.link import GONE, KafkaLink
from ottla.spark.requests import (
    Append,
    Appended,
    AppendInTransaction,
    CopyStaged,
    Ended,
    EndTransactions,
    Fence,
    FindOpen,
    ForgetStaged,
    InitProducer,
    LetTasksEnd,
    ListOpen,
    ReadLedger,
    Steps,
)
from ottla.wire.apis import ApiKey
from ottla.wire.batch import check_integrity, is_emptied, iter_headers
from ottla.wire.errors import ErrorCode
from ottla.wire.markers import parse_end_txn_marker
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.wire.records import Record, decode_batch, encode_batch

T = TypeVar("T")
LedgerT = TypeVar("LedgerT", Ledger, Ledgers)

_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
#: States of a transaction that holds back readers of committed records.
_ONGOING = "Ongoing"
_OPEN_STATES = (_ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_READ_BYTES = 8_388_608
#: Small segments, so that compaction keeps the ledger short: only closed segments are compacted.
_LEDGER_CONFIG = {"cleanup.policy": "compact", "segment.bytes": "16777216", "compression.type": "uncompressed"}


#: With cleanup.policy=delete, what a topic keeps of its records; -1 is all.
_RETENTION = ("retention.ms", "retention.bytes")


class _Patience:
    """What is left of the time that several answers may take together; None: as long as the client's own time-outs."""

    def __init__(self, within_s: float | None) -> None:
        self._within_s = self._left_s = within_s

    async def wait_for(self, answer: Coroutine[Any, Any, T]) -> T:
        """The answer. Raises RequestTimeoutError when the time is over."""
        clock = asyncio.get_running_loop().time
        begin_s = clock()
        try:
            async with asyncio.timeout(self._left_s) as limit:
                return await answer
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimeoutError(f"brokers have not answered within {self._within_s} s") from None
        finally:
            if self._left_s is not None:
                self._left_s -= clock() - begin_s


class LedgerKafka:
    """The ledger of one sink, in the topic `topic`."""

    def __init__(self, link: KafkaLink, sink: str, topic: str, replication: int, transaction_timeout_ms: int) -> None:
        self._link = link
        self._sink = sink
        self._tp = TopicPartition(topic, 0)
        self._replication = replication
        self._timeout_ms = transaction_timeout_ms
        #: When what was read of the ledger has this age, it is read anew. Compaction removes tombstones and the ends of
        #: transactions, and who reads on later misses them. It waits for `delete.retention.ms`, a day unless set.
        self.forget_after_s = 3_600.0
        #: Spark interrupts the tasks of a job that is over. Every two seconds it looks whether it has, and kills
        #: a Python process that has not heard of it two seconds later (`spark.python.task.killTimeout`).
        self.tasks_end_within_s = 4.5

    async def drive(self, steps: Steps, batch: int | None = None, *, within_s: float | None = None) -> Any:
        """Run a generator of `ottla.spark.protocol` to its end; `batch` is for the fault switches.

        With `within_s` brokers have so long for all answers together; then RequestTimeoutError is raised. That is for
        steps that somebody waits for, and that the next claim takes anyway.
        """
        patience = _Patience(within_s)
        await patience.wait_for(self._ensure_topic())
        answer: Any = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as finished:
                return finished.value
            answering = self._answer(request, batch)
            answer = await (answering if isinstance(request, LetTasksEnd) else patience.wait_for(answering))

    async def _answer(self, request: Any, batch: int | None) -> Any:
        match request:
            case InitProducer(transactional_id, holder):
                return await self.init_producer(transactional_id, holder)
            case ReadLedger():
                return await self._read()
            case ListOpen(pattern):
                listed = await self._link.admin.list_transactions(pattern, _OPEN_STATES)
                return [transaction.transactional_id for transaction in listed]
            case FindOpen(pattern):
                listed = await self._link.admin.list_transactions(pattern, (_ONGOING,))
                return await self._handles([transaction.transactional_id for transaction in listed])
            case Fence(handles):
                ends = (await self._link.versions()).implicit_partitions
                await asyncio.gather(*(self._end(h, False) if ends else self.init_producer(h[0], h) for h in handles))
                return None
            case LetTasksEnd():
                await asyncio.sleep(self.tasks_end_within_s)
                return None
            case AppendInTransaction(handle, records, offsets):
                faults.reach("sink.before-decision", batch)
                return await self._append_in_transaction(handle, records, offsets)
            case CopyStaged(handle, staged):
                from ottla.spark.staging import Copier  # here: others have no rows to copy, and perhaps no pyarrow

                return Appended.YES if await Copier(self._link, handle, batch).copy(staged) else Appended.FENCED
            case ForgetStaged(staged):
                from ottla.spark.staging import forget_staged

                return await forget_staged(self._link, staged)
            case EndTransactions(handles, commit):
                return await self._end_all(handles, commit, batch)
            case Append(record):
                faults.reach("sink.after-slots", batch)
                await self._append(record)
                faults.reach("sink.after-done", batch)
                return None
        raise AssertionError(request)

    async def init_producer(self, transactional_id: str, holder: Handle | None = None) -> Handle | None:
        """InitProducerId, repeated while an earlier transaction of the id is being ended.

        None if the id is to be taken over from `holder`, and somebody else has it.
        """
        before = NO_IDENTITY if holder is None else ProducerIdentity(holder.producer_id, holder.producer_epoch)
        message = requests.init_producer_id(transactional_id, self._timeout_ms, before)
        code, answer = await self._link.ask_coordinator(
            transactional_id, ApiKey.INIT_PRODUCER_ID, message, lambda a: int(a.error_code)
        )
        if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise ConfigError(
                f"kafka.transaction.timeout.ms {self._timeout_ms} is not allowed by the broker: set it to "
                "transaction.max.timeout.ms of the broker, or less"
            )
        if holder is not None and code in GONE:
            return None
        raise_for(code, f"transactional.id {transactional_id}")
        return Handle(transactional_id, answer.producer_id, answer.producer_epoch)

    async def _handles(self, names: list[str]) -> list[Handle]:
        """Those of the ids that are in a transaction, with its producer. One that is gone meanwhile is left out."""
        found = []
        for name in names:
            try:
                known = (await self._link.admin.describe_transactions([name]))[name]
            except KafkaError as error:
                if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
            else:
                if known.state == _ONGOING:
                    found.append(Handle(name, known.producer_id, known.producer_epoch))
        return found

    async def _end_all(self, handles: tuple[Handle, ...], commit: bool, batch: int | None) -> list[Ended]:
        if len(handles) > 1 and faults.armed("sink.between-slots"):
            first = await self._end(handles[0], commit)
            faults.reach("sink.between-slots", batch)
            return [first, *[await self._end(handle, commit) for handle in handles[1:]]]
        ended = list(await asyncio.gather(*(self._end(handle, commit) for handle in handles)))
        if commit and handles[0].transactional_id == driver_id(self._sink):
            faults.reach("sink.after-decision", batch)
        return ended

    async def _end(self, handle: Handle, commit: bool) -> Ended:
        identity = ProducerIdentity(handle.producer_id, handle.producer_epoch)
        message = requests.end_transaction(handle.transactional_id, identity, commit=commit)
        code, _ = await self._link.ask_coordinator(
            handle.transactional_id, ApiKey.END_TXN, message, lambda a: int(a.error_code)
        )
        if code in GONE:
            return Ended.GONE if code == ErrorCode.INVALID_TXN_STATE else Ended.FENCED
        raise_for(code, f"the end of transaction {handle.transactional_id}")
        return Ended.YES

    async def _append_in_transaction(
        self,
        handle: Handle,
        ledger_records: tuple[LedgerRecord, ...],
        offsets: Mapping[str, Mapping[str, Mapping[int, int]]],
    ) -> Appended:
        identity = ProducerIdentity(handle.producer_id, handle.producer_epoch)
        name = handle.transactional_id
        implicit = (await self._link.versions()).implicit_partitions
        codes: list[int] = []
        if not implicit:
            add = requests.add_partitions(name, identity, [self._tp])
            codes.append(await self._code(name, ApiKey.ADD_PARTITIONS_TO_TXN, add, _worst_partition_error))
        if not set(codes) - _WRITTEN:
            sealed = self._batch(ledger_records, identity)
            code, _ = await self._link.produce(self._tp, sealed, name)
            codes.append(code)
        for group, topics in offsets.items():
            if set(codes) - _WRITTEN:
                break
            if not implicit:
                joined = requests.add_offsets(name, identity, group)
                codes.append(await self._code(name, ApiKey.ADD_OFFSETS_TO_TXN, joined, lambda a: int(a.error_code)))
            by_partition = {
                TopicPartition(topic, partition): OffsetAndMetadata(offset)
                for topic, partitions in topics.items()
                for partition, offset in partitions.items()
            }
            commit = requests.commit_offsets(name, identity, ConsumerGroupMetadata(group), by_partition)
            codes.append(await self._code(name, ApiKey.TXN_OFFSET_COMMIT, commit, _worst_offset_error, group))
        for code in set(codes) - _WRITTEN:
            if code in GONE:
                return Appended.FENCED
            if code == ErrorCode.MESSAGE_TOO_LARGE:
                raise ConfigError(self._too_large(ledger_records))
            raise_for(code, f"the decision of sink {self._sink}")
        return Appended.YES

    def _too_large(self, ledger_records: tuple[LedgerRecord, ...]) -> str:
        slots = sum(len(record.slots) for record in ledger_records if isinstance(record, Decision))
        return (
            f"the decision of sink {self._sink} has {slots} slots, one for each Spark partition of the write, and is "
            f"larger than the ledger takes, so nothing was decided. Have fewer: coalesce the rows before they "
            f"are written; or raise max.message.bytes of {self._tp.topic}"
        )

    async def _code(
        self, name: str, api: ApiKey, message: tuple[Any, ...], error_of: Any, group: str | None = None
    ) -> int:
        code, _ = await self._link.ask_coordinator(name, api, message, error_of, group=group)
        return code

    def _batch(self, ledger_records: tuple[LedgerRecord, ...], identity: ProducerIdentity | None) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        encoded = [encode(self._sink, record) for record in ledger_records]
        lines = [Record(at, now_ms, key, value, ()) for at, (key, value) in enumerate(encoded)]
        if identity is None:
            return encode_batch(lines)
        # Every claim has an epoch of its own and this is the first batch of that epoch, so its sequence is 0.
        return encode_batch(
            lines, producer_id=identity.producer_id, producer_epoch=identity.epoch, base_sequence=0, transactional=True
        )

    async def _append(self, record: LedgerRecord) -> int:
        """Write the record, in no transaction; its offset."""
        code, offset = await self._link.produce(self._tp, self._batch((record,), None), None)
        raise_for(code, f"ledger {self._tp}")
        return offset

    async def _read(self) -> Ledger:
        """The ledger with all that is in it now. What was read a short time ago is not read again.

        The end does not come from the leader's word: one that was deposed, and does not know it, would hide decisions.
        It comes from a record of our own. When all replicas in sync have it, they have all records before it.
        """
        key, now_s = self._key, asyncio.get_running_loop().time()
        kept: tuple[Ledger, float] = self._link.memory.get(key, (Ledger(self._sink), now_s))
        ledger, read_at_s = kept
        if now_s - read_at_s >= self.forget_after_s:
            ledger = await self._from_the_beginning(ledger)
        mark = await self._append(ReadMark())
        if mark < 0:
            raise PipelineError(f"the broker does not say at which offset of {self._tp} it has written a record")
        ledger = await self._read_on(ledger, mark + 1)
        self._link.memory[key] = ledger, now_s
        return ledger

    def kept(self) -> Ledger | None:
        """The ledger as it was read last in this process."""
        kept: tuple[Ledger | None, float] = self._link.memory.get(self._key, (None, 0.0))
        return kept[0]

    @property
    def _key(self) -> tuple[str, TopicPartition, str]:
        return "ledger", self._tp, self._sink

    async def read_all(self) -> Ledgers:
        """The ledger topic up to its end, as its leader tells it and all of its sinks see it.

        For those who only look: it writes nothing, and a leader that was deposed may tell less. Raises
        UnknownTopicOrPartitionError.
        """
        await self._link.admin.describe_topics([self._tp.topic])
        # The end comes from ListOffsets and not from a fetch. A new leader may answer fetches with a high watermark
        # below what was committed; ListOffsets waits until the leader knows better (KIP-207).
        end = await self._offset_at(LATEST)
        return await self._read_on(await self._from_the_beginning(Ledgers()), end)

    async def _read_on(self, ledger: LedgerT, end: int) -> LedgerT:
        """`ledger` up to `end`, or another one if it cannot be continued. Who leads the partition has that much."""
        if ledger.next_offset > end:  # the topic was deleted and made again, or has lost its end
            ledger = await self._from_the_beginning(ledger)
        while ledger.next_offset < end:
            try:
                records = await self._link.certain(
                    partial(self._fetch, ledger.next_offset, end), f"a read of {self._tp} up to {end}"
                )
            except OffsetOutOfRangeError:
                ledger = await self._from_the_beginning(ledger)
                continue
            if records is None:
                continue
            if not records:
                break
            reached = ledger.next_offset
            ledger.apply(ledger_batches(records))
            if ledger.next_offset == reached:
                raise PipelineError(f"{self._tp} ends at {end}, but a fetch at {reached} brought no whole record batch")
        return ledger

    async def _fetch(self, offset: int, end: int) -> Any:
        """The batches from `offset` on; empty when compaction has left none up to `end`, None when throttled.

        Raises OffsetOutOfRangeError when `offset` is before the beginning of the log. Who has it not yet is asked
        again: a new leader, or one that was deposed.
        """
        try:
            data = await self._link.fetch(self._tp, offset, committed=False, max_bytes=_READ_BYTES, max_wait_ms=0)
        except OffsetOutOfRangeError as error:
            if await self._offset_at(EARLIEST) > offset:
                raise
            raise KafkaError.of(ErrorCode.OFFSET_NOT_AVAILABLE, f"{self._tp} ends before {offset} for now") from error
        if data is None:
            return None
        if not data.records and data.high_watermark < end:
            raise KafkaError.of(ErrorCode.OFFSET_NOT_AVAILABLE, f"{self._tp} ends at {data.high_watermark} for now")
        return data.records or b""

    async def _from_the_beginning(self, before: LedgerT) -> LedgerT:
        ledger = before.anew()
        ledger.next_offset = await self._offset_at(EARLIEST)
        return ledger

    async def _offset_at(self, time_ms: int) -> int:
        return (await self._link.admin.list_offsets({self._tp: time_ms}))[self._tp].offset

    async def _ensure_topic(self) -> None:
        """Make the ledger topic if it is not there. Raises ConfigError if the topic cannot be a ledger."""
        topic, admin = self._tp.topic, self._link.admin
        if self._link.memory.get(("ledger topic", topic)):
            return
        try:
            try:
                # This question comes first: a client may have the right to write to a topic, but not to make it.
                await admin.describe_topics([topic])
            except UnknownTopicOrPartitionError:
                with suppress(TopicAlreadyExistsError):
                    await admin.create_topics([NewTopic(topic, 1, self._replication, _LEDGER_CONFIG)])
        except KafkaError as error:
            raise ConfigError(
                f"the ledger topic {topic} cannot be used, or is missing and could not be made ({error}); make it with "
                "one partition and cleanup.policy=compact, or name another one in the option ledger.topic"
            ) from error
        snapshot = await self._link.topics([topic], as_of_now=False)
        if snapshot.partition_count(topic) != 1:
            raise ConfigError(f"the ledger topic {topic} must have exactly one partition")
        await self._require_kept()
        self._link.memory["ledger topic", topic] = True

    async def _require_kept(self) -> None:
        """Raise ConfigError if the topic deletes old records."""
        resource = ConfigResource(ResourceType.TOPIC, self._tp.topic)
        try:
            found = await self._link.admin.describe_configs([resource])
        except KafkaError:
            return  # a client without the right to ask
        value = {name: entry.value or "" for name, entry in found.get(resource, {}).items()}
        limits = [f"{name}={value[name]}" for name in _RETENTION if value.get(name, "-1") != "-1"]
        if limits and "delete" in value.get("cleanup.policy", "").split(","):
            raise ConfigError(
                f"the ledger topic {self._tp.topic} deletes old records ({' and '.join(limits)}), and with them the "
                "proof of what is written: a replay would be written twice. Give it cleanup.policy=compact, or name "
                "another topic in the option ledger.topic"
            )


def ledger_batches(records: Any) -> list[LedgerBatch]:
    """The record batches of a fetch from the ledger topic. CorruptBatchError for one that is damaged."""
    view = memoryview(records)
    found = []
    for pos, header in iter_headers(view):
        whole = view[pos : pos + header.size_bytes]
        if header.is_control:
            check_integrity(view, pos, header)  # of the others `decode_batch` checks it
        lines = () if header.is_control else tuple((record.key, record.value) for record in decode_batch(whole))
        # Compaction may leave a marker's batch without the marker. Then nothing of its transaction counts any more.
        commit = not is_emptied(header) and parse_end_txn_marker(whole)[0] if header.is_control else None
        found.append(
            LedgerBatch(
                base_offset=header.base_offset,
                last_offset=header.last_offset,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                transactional=header.is_transactional,
                commit=commit,
                records=lines,
            )
        )
    return found


def _worst_offset_error(answer: Any) -> int:
    codes = {int(p.error_code) for topic in answer.topics for p in topic.partitions}
    return max(codes - {0}, default=0)


def _worst_partition_error(answer: AddPartitionsToTxnResponse) -> int:
    return requests.worst_partition_error(answer)[0]

"""Produce, versions 3–13. Batches are checked by header and CRC and written as they are.

Transactional batches (KIP-98, KIP-890): if the partition has no open transaction of the producer, the transaction
coordinator is asked first. It adds the partition to the transaction (version 12 on), or verifies that it is in it
(older clients); the log demands the guard of that verification. Topic ids instead of names from version 13 on
(KIP-516). KIP-467: refused records are named. A request for very many partitions is carried out in slices, while others
are served; as in Kafka what it writes to one partition does not depend on the others.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from functools import partial
from typing import Any, Final, Protocol

from ottla.base.errors import CorruptDataError, StorageError
from ottla.base.limits import MAX_INLINE_WRITE_BYTES
from ottla.base.steps import behind
from ottla.base.types import TopicPartition
from ottla.base.words import shown
from ottla.broker.answers import Answer, Frame, Later
from ottla.broker.handlers.bad_input import refused_of
from ottla.broker.handlers.encoding import AT_ONCE as ENCODED_AT_ONCE
from ottla.broker.handlers.encoding import as_it_is, encoded
from ottla.broker.handlers.large import slowly
from ottla.broker.handlers.table import RequestContext, decode_few
from ottla.broker.metadata.names import INTERNAL_TOPICS
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.answers import HasAnswers
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.refusals import BAD_BATCH, HasRefusals, told
from ottla.broker.ports.settings import HasClock, HasConfig
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage
from ottla.broker.ports.transactions import HasVerification
from ottla.broker.runtime.answers import gather, then
from ottla.broker.runtime.opening import Opening
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.ready import SLOWLY, must_wait, until_ready
from ottla.broker.runtime.recompression import Recompression
from ottla.broker.runtime.unverified import Unverified
from ottla.coordinator.txn.add_partitions_to_txn import produce_error
from ottla.log.record_checks import Looked
from ottla.log.results import NO_GUARD, Appended, RecordError
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.batch import HEADER_BYTES, compression_number, is_transactional, parse_header
from ottla.wire.codec import Buffer
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

#: A produce to more partitions is carried out in slices: an append takes some twenty microseconds of the event loop.
AT_ONCE: Final = 50
#: So is a larger request to several: checksums and writes of a megabyte take half a millisecond.
BYTES_AT_ONCE: Final = 4_194_304
#: So is a request for more, from the first on with which files are made: a new segment has three, and a snapshot of the
#: producers; a partition's first record comes with the file of its leader epochs.
ROLLS_AT_ONCE: Final = 8
_TOPIC_IDS_FROM = 13
#: From here on a produce adds its partitions to the transaction (KIP-890's protocol).
_ADDS_PARTITIONS_FROM = 12
#: From here on a client knows TRANSACTION_ABORTABLE.
_KNOWS_ABORTABLE_FROM = 11
#: The first version that may use zstd (KIP-110).
_ZSTD_FROM = 7
_ACKS = (-1, 0, 1)
#: The right to each topic.
_NEEDED: Final = (AclOperation.WRITE, ResourceType.TOPIC)
#: Errors from before the log is asked. Answers with other errors also say where the log begins.
_WITHOUT_LOG_START = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


class _Node(
    HasAccess,
    HasAnswers,
    HasClock,
    HasConfig,
    HasImage,
    HasPartitions,
    HasRefusals,
    HasSlices,
    HasVerification,
    Protocol,
):
    """What this handler touches."""


def handle(node: _Node, frame: Frame, offset: int, context: RequestContext) -> Answer:
    """Append; before that, batches are looked at, and compressed as their topics want it (`compression.type`)."""
    request: ProduceRequest | None = decode_few(context, frame, offset)
    if request is None:
        work = slowly(node.slices, context, frame, offset, lambda whole: _carry_out(node, whole, len(frame), context))
        return Later(node.slices.start(work, "a produce of very many names"), as_it_is, outlives=True)
    return _carry_out(node, request, len(frame), context)


def _carry_out(node: _Node, request: ProduceRequest, size_bytes: int, context: RequestContext) -> Answer:
    produce = _Produce(node, request, context, size_bytes)
    if produce.is_large:
        return produce.later(produce.start(_slowly(node, produce, context), "a produce to many partitions"))
    if not produce.may_write():
        # The request's transactional id says for which transaction its batches may be written.
        return produce.encode(produce.refuse_all(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    produce.refused = node.access.refused(context, *_NEEDED, produce.names())
    deque(produce.look(), 0)
    preparing = produce.prepare()
    answer = _proceed(produce) if preparing is None else then(preparing, lambda _: _proceed(produce))
    return produce.later(answer) if isinstance(answer, asyncio.Future) else produce.encode(answer)


def _proceed(produce: "_Produce") -> Any:
    """Append now, or once the transaction coordinator has said yes. A response, or a future of it."""
    deque(produce.find_unverified(), 0)
    if produce.unverified.has_several_producers:
        return produce.refuse_all(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if not produce.unverified.partitions:
        return _append(produce, {})
    return then(produce.verify(), lambda errors: _append(produce, errors))


def _append(produce: "_Produce", errors: dict[TopicPartition, ErrorCode]) -> Any:
    steps = produce.append(errors)
    for step in steps:
        if step is not None:
            return produce.start(_append_slowly(produce, behind(step, steps)), "a produce that takes long")
    return produce.response()


async def _append_slowly(produce: "_Produce", steps: Iterator[object]) -> ProduceResponse:
    await produce.run(steps)
    response: ProduceResponse | asyncio.Future[ProduceResponse] = produce.response()
    return await response if isinstance(response, asyncio.Future) else response


async def _slowly(node: _Node, produce: "_Produce", context: RequestContext) -> ProduceResponse:
    """The same, step by step."""
    if not produce.may_write():
        return produce.refuse_all(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    produce.refused = await node.access.refused_of_many(node.slices, context, *_NEEDED, produce.names())
    await produce.run(produce.look())
    preparing = produce.prepare()
    if preparing is not None:
        await preparing
    await produce.run(produce.find_unverified())
    if produce.unverified.has_several_producers:
        return produce.refuse_all(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    errors = await produce.verify() if produce.unverified.partitions else {}
    return await _append_slowly(produce, produce.append(errors))


class _Produce:
    """One request."""

    def __init__(self, node: _Node, request: ProduceRequest, context: RequestContext, size_bytes: int) -> None:
        self._node = node
        self._size_bytes = size_bytes
        self._request = request
        self._context = context
        #: Else they have ids.
        self._has_names = context.api_version < _TOPIC_IDS_FROM
        #: Partitions whose last records have to be on the device before they are acknowledged.
        self._syncs: dict[TopicPartition, asyncio.Future[ErrorCode]] = {}
        #: Topics that may not be written to.
        self.refused: frozenset[str] = frozenset()
        self._recompression = Recompression()
        self._opening = Opening()
        self.unverified = Unverified(adds_partitions=context.api_version >= _ADDS_PARTITIONS_FROM)
        self._topics: list[TopicProduceResponse] = []
        self._count = 0
        for topic in request.topic_data:
            self._count += len(topic.partition_data) or 1  # a name alone is looked at, too
        #: Partitions and refused records that the answer names.
        self._named = self._count

    @property
    def is_large(self) -> bool:
        """Whether it is carried out in slices."""
        return self._count > AT_ONCE or (self._size_bytes > BYTES_AT_ONCE and self._count > 1)

    def start(self, work: "Coroutine[Any, Any, ProduceResponse]", what: str) -> "asyncio.Task[ProduceResponse]":
        """Carry out long work of this request."""
        return self._node.slices.start(work, what)

    async def run(self, steps: Iterator[object]) -> None:
        """Take steps of it in slices, which are charged to the client."""
        await self._node.slices.run(counted(self._context, steps))

    def may_write(self) -> bool:
        """Whether anything may be written: not if the transaction is nobody's, or somebody else's."""
        access, context, request = self._node.access, self._context, self._request
        transactional = (request.transactional_id is None or access.is_on) and self._has_transactional_batch()
        if transactional and request.transactional_id is None:
            what = "a transactional batch in a produce without a transactional id"
            self._node.refusals.tell(context.session.client_host, context.client_id, what)
            return False
        if access.is_on and transactional and request.transactional_id is not None:
            kind = ResourceType.TRANSACTIONAL_ID
            return access.allows(context, AclOperation.WRITE, kind, request.transactional_id)
        return True

    def names(self) -> Iterator[str]:
        """The names of the topics."""
        return (name for name in map(self._name, self._request.topic_data) if name is not None)

    def look(self) -> Iterator[None]:
        """Look at each partition's batch: whether it has to be compressed, or opened in a thread."""
        now_ms = self._node.clock.now_ms()
        for topic in self._request.topic_data:
            find = self._finder(topic)
            for data in topic.partition_data:
                partition, records = find(data.index), data.records
                if partition is not None and records is not None:
                    config = partition.log.config
                    if config.compression is not None:
                        self._recompression.add(records, config)
                    self._opening.add(records, partition.tp, config, now_ms)
                yield

    def prepare(self) -> "asyncio.Future[Any] | None":
        """Compress batches as their topics want it, open some; None when nothing has to be waited for."""
        beside = self._node.partitions.beside
        both = self._recompression.run(beside), self._opening.run(beside)
        waiting = [each for each in both if each is not None]
        return asyncio.gather(*waiting) if waiting else None

    def _has_transactional_batch(self) -> bool:
        """Whether any partition's batch says that it belongs to a transaction."""
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                if data.records is not None and len(data.records) >= HEADER_BYTES and is_transactional(data.records):
                    return True
        return False

    def find_unverified(self) -> Iterator[None]:
        """Find the partitions for which the transaction coordinator has to be asked."""
        if self._request.transactional_id is None or self._request.acks not in _ACKS:
            return
        adds = self._context.api_version >= _ADDS_PARTITIONS_FROM
        verifies = adds or self._node.config.flag("transaction.partition.verification.enable")
        now_ms = self._node.clock.now_ms()
        for topic in self._request.topic_data:
            find = self._finder(topic)
            for data in topic.partition_data:
                partition = find(data.index)
                if partition is not None:
                    self.unverified.add(partition, data.records, now_ms, verifies=verifies)
                yield

    def verify(self) -> "asyncio.Future[dict[TopicPartition, ErrorCode]]":
        """Ask the transaction coordinator about them."""
        assert self._request.transactional_id is not None
        verify_only = self._context.api_version < _ADDS_PARTITIONS_FROM
        return self._node.verification.ask(
            self._request.transactional_id,
            *self.unverified.producer,
            self.unverified.partitions,
            verify_only=verify_only,
        )

    def append(self, errors: dict[TopicPartition, ErrorCode]) -> Generator[object, None, None]:
        """Append each partition's batch unless it is refused; `errors` are what the transaction coordinator says.

        Behind a step that gives None the next one may come at once. Else the rest is for slices.
        """
        refused, is_for_many = self._refused(errors), self._count > ROLLS_AT_ONCE
        partitions, clock = self._node.partitions, self._node.clock
        for topic in self._request.topic_data:
            find, answers = self._finder(topic), []
            for data in topic.partition_data:
                partition, batch = find(data.index), self._recompression.changed(data.records)
                if partition is not None and batch is not None and must_wait(partition, batch, clock):
                    yield from until_ready(partitions, partition, batch, clock)
                    partition = find(data.index)
                if partition is None:
                    answers.append(_error(data.index, self._missing(topic)))
                elif (refusal := self._refusal(partition, data, refused)) is not None:
                    answers.append(refusal)
                elif batch is None:
                    error, message = ErrorCode.INVALID_RECORD, "a produce request needs exactly one record batch"
                    self._tell(partition.tp, error, message)
                    answers.append(_error(data.index, error, message))
                elif len(batch) > MAX_INLINE_WRITE_BYTES:
                    answers.append((yield from self._append_in_parts(partition, data, batch)))
                else:
                    answers.append(self._append_one(partition, data, batch))
                    if is_for_many and partition.log.rolling.is_first(len(batch)):
                        yield SLOWLY
                yield None
            self._topics.append(TopicProduceResponse(topic.topic_id, topic.name, tuple(answers)))

    def _refused(self, errors: dict[TopicPartition, ErrorCode]) -> dict[TopicPartition, ErrorCode]:
        """What is answered for partitions of which the transaction coordinator says no."""
        version = self._context.api_version
        adds, knows = version >= _ADDS_PARTITIONS_FROM, version >= _KNOWS_ABORTABLE_FROM
        return {
            tp: produce_error(error, adds_partitions=adds, knows_abortable=knows)
            for tp, error in errors.items()
            if error is not ErrorCode.NONE
        }

    def refuse_all(self, error: ErrorCode) -> ProduceResponse:
        """The answer that appends nothing."""
        return ProduceResponse(
            tuple(
                TopicProduceResponse(
                    topic.topic_id, topic.name, tuple(_error(data.index, error) for data in topic.partition_data)
                )
                for topic in self._request.topic_data
            )
        )

    def response(self) -> "ProduceResponse | asyncio.Future[ProduceResponse]":
        """What became of it. Where the device has to have records first, a future of it (`flush.messages`)."""
        syncs, response = self._syncs, ProduceResponse(tuple(self._topics))
        if not syncs:
            return response
        synced: ProduceResponse | asyncio.Future[ProduceResponse] = gather(
            list(syncs.values()),
            lambda errors: self._refuse_unsynced(response, dict(zip(syncs, errors, strict=True))),
        )
        return synced

    def later(self, response: "asyncio.Future[Any]") -> Later:
        """The answer, when there is one."""
        return Later(response, self.encode, outlives=self._request.acks == 0)

    def encode(self, response: ProduceResponse) -> Answer:
        """The answer; None for acks=0."""
        if self._request.acks == 0:
            refused = next(refused_of(response), None)
            if refused is not None:
                # With acks=0 there is no answer. As in Kafka the connection is closed, so that the client notices.
                who = shown(self._context.client_id)
                raise CorruptDataError(f"a produce with acks=0 was refused: {refused} (client id {who})")
            if self._context.charge is not None:
                self._context.charge.produced(self._size_bytes, is_answered=False)
            return None
        context = self._context
        if context.charge is not None:
            throttle_ms = context.charge.produced(self._size_bytes, is_answered=True)
            response = response._replace(throttle_time_ms=throttle_ms)
        answers, slices = self._node.answers, self._node.slices
        return encoded(answers, slices, context, response, is_long=self._named > ENCODED_AT_ONCE)

    def _refuse_unsynced(self, response: ProduceResponse, errors: dict[TopicPartition, ErrorCode]) -> ProduceResponse:
        """What the device has not taken is not acknowledged."""
        if all(error is ErrorCode.NONE for error in errors.values()):
            return response
        topics = []
        for topic, asked in zip(response.responses, self._request.topic_data, strict=True):
            answers = []
            for answer in topic.partition_responses:
                name = self._name(asked)
                error = errors.get(TopicPartition(name or "", answer.index), ErrorCode.NONE)
                answers.append(answer if error is ErrorCode.NONE else _error(answer.index, error))
            topics.append(topic._replace(partition_responses=tuple(answers)))
        return ProduceResponse(tuple(topics))

    def _refusal(
        self, partition: Partition, data: PartitionProduceData, refused: dict[TopicPartition, ErrorCode]
    ) -> PartitionProduceResponse | None:
        """Why a batch is refused before the log is asked, or None."""
        index, records, tp = data.index, data.records, partition.tp
        if self._request.acks not in _ACKS:
            self._tell(
                tp, ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {self._request.acks}; it has to be 0, 1 or -1 (all)"
            )
            return _error(index, ErrorCode.INVALID_REQUIRED_ACKS)
        if tp.topic in INTERNAL_TOPICS:  # a record that a coordinator cannot read would stop it
            return _error(index, ErrorCode.INVALID_TOPIC_EXCEPTION, "only the broker writes to its internal topics")
        if tp in refused:
            return _error(index, refused[tp])
        if self._context.api_version < _ZSTD_FROM and records is not None and _is_zstd(records):
            why = f"zstd in version {self._context.api_version} of Produce, which has none"
            self._tell(tp, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, why)
            return _error(index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        fault = self._recompression.faults.get(id(records))
        if fault is not None:
            self._tell(tp, ErrorCode(fault.error_code), str(fault))
            return _error(index, ErrorCode(fault.error_code), str(fault))
        return None

    def _append_one(self, partition: Partition, data: PartitionProduceData, batch: Buffer) -> PartitionProduceResponse:
        log, looked = partition.log, self._opening.looked(data.records)
        try:
            appended = log.append(
                batch,
                now_ms=self._node.clock.now_ms(),
                leader_epoch=partition.leader_epoch,
                verification_guard=self.unverified.guards.get(partition.tp, NO_GUARD),
                looked=looked,
                max_named=self._opening.nameable,
            )
        except StorageError as fault:
            return self._failed(partition, data, fault)
        return self._appended(partition, data, batch, looked, appended)

    def _append_in_parts(
        self, partition: Partition, data: PartitionProduceData, batch: Buffer
    ) -> Generator[None, None, PartitionProduceResponse]:
        looked = self._opening.looked(data.records)
        try:
            appended = yield from partition.append_in_parts(
                batch,
                now_ms=self._node.clock.now_ms(),
                verification_guard=self.unverified.guards.get(partition.tp, NO_GUARD),
                looked=looked,
                max_named=self._opening.nameable,
            )
        except StorageError as fault:
            return self._failed(partition, data, fault)
        return self._appended(partition, data, batch, looked, appended)

    def _failed(
        self, partition: Partition, data: PartitionProduceData, fault: StorageError
    ) -> PartitionProduceResponse:
        return _error(data.index, self._node.partitions.faults.report(partition.tp, fault), str(fault))

    def _appended(
        self, partition: Partition, data: PartitionProduceData, batch: Buffer, looked: Looked | None, appended: Appended
    ) -> PartitionProduceResponse:
        """The log's answer, for the client."""
        index, log = data.index, partition.log
        if appended.error is not ErrorCode.NONE:
            self._named += len(appended.record_errors)
            self._tell(partition.tp, appended.error, appended.message)
            if looked is None:
                self._opening.nameable -= len(appended.record_errors)
            answer = _error(index, appended.error, appended.message, appended.record_errors)
            early = appended.error is ErrorCode.INVALID_RECORD and not _is_one_batch(batch)
            if appended.error not in _WITHOUT_LOG_START and not early:
                answer = answer._replace(log_start_offset=log.log_start_offset)
            return answer
        size_bytes = 0 if appended.duplicate else len(batch)
        if log.synced.is_due:
            self._syncs[partition.tp] = self._node.partitions.syncs.after(partition, size_bytes)
        elif not appended.duplicate:
            partition.appended(size_bytes)
        return PartitionProduceResponse(
            index, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
        )

    def _tell(self, tp: TopicPartition, error: ErrorCode, message: str | None) -> None:
        if error in BAD_BATCH:
            what = f"a batch for {tp}: {told(error, message)}"
            self._node.refusals.tell(self._context.session.client_host, self._context.client_id, what)

    def _finder(self, topic: TopicProduceData) -> Callable[[int], Partition | None]:
        """Finds a partition to which may be written, at any time: it may be deleted between two steps."""
        if self._has_names and topic.name not in self.refused:
            return partial(self._node.partitions.find, topic.name)
        return partial(self._find, topic)

    def _find(self, topic: TopicProduceData, index: int) -> Partition | None:
        name = self._name(topic)
        return None if name is None or name in self.refused else self._node.partitions.find(name, index)

    def _missing(self, topic: TopicProduceData) -> ErrorCode:
        """Why a partition of it is not found."""
        name = self._name(topic)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED if name in self.refused else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _name(self, topic: TopicProduceData) -> str | None:
        """The topic's name; None for a topic id that nobody has."""
        if self._has_names:
            return topic.name
        image = self._node.image.topics_by_id.get(topic.topic_id)
        return None if image is None else image.name


def _is_one_batch(records: Buffer) -> bool:
    return len(records) >= HEADER_BYTES and parse_header(records).size_bytes == len(records)


def _is_zstd(records: Buffer) -> bool:
    return len(records) >= HEADER_BYTES and compression_number(records) == Compression.ZSTD


def _error(
    index: int, error: ErrorCode, message: str | None = None, refused: tuple[RecordError, ...] = ()
) -> PartitionProduceResponse:
    record_errors = tuple(BatchIndexAndErrorMessage(*each) for each in refused)
    return PartitionProduceResponse(index, error, -1, record_errors=record_errors, error_message=message)

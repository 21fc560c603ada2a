"""Transactions: their coordinators, partitions that join one, markers, producer ids."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.runtime.answers import ready, then
from ottla.broker.runtime.changes import Changes
from ottla.broker.runtime.coordinators import Coordinators
from ottla.broker.runtime.faults import DiskFaults
from ottla.broker.runtime.markers import Markers
from ottla.broker.runtime.slices import Slices
from ottla.coordinator.txn.shard import TransactionShard
from ottla.coordinator.txn.states import TransactionVersion
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)


class Verification:
    """Asks the transaction coordinator on behalf of a partition's leader (KIP-890)."""

    def __init__(self, transactions: Coordinators[TransactionShard]) -> None:
        self._transactions = transactions

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
    ) -> "asyncio.Future[dict[TopicPartition, ErrorCode]]":
        """Add partitions to a transaction, or verify that they are in it."""
        runner = self._transactions.find(transactional_id)
        if isinstance(runner, ErrorCode):
            return ready(dict.fromkeys(partitions, runner))
        topics: dict[str, list[int]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        asked = AddPartitionsToTxnTransaction(
            transactional_id,
            producer_id,
            producer_epoch,
            verify_only,
            tuple(AddPartitionsToTxnTopic(topic, tuple(numbers)) for topic, numbers in topics.items()),
        )
        version = TransactionVersion.V0 if verify_only else TransactionVersion.V2
        shard = runner.shard
        answered = then(
            runner.submit(lambda token, now_ms: shard.add_partitions_to_txn(token, asked, version, now_ms)), _errors
        )
        return answered if isinstance(answered, asyncio.Future) else ready(answered)


class ProducerIds:
    """Gives out producer ids. The next block is taken before the last one is used up, beside other work."""

    def __init__(self, metadata: ClusterMetadata, changes: Changes, slices: Slices, faults: DiskFaults) -> None:
        self._metadata = metadata
        self._changes = changes
        self._slices = slices
        self._faults = faults
        self._reserving: asyncio.Task[None] | None = None

    def new(self) -> int | None:
        """A producer id that was never used, or None when none is durable now."""
        producer_id = self._metadata.next_producer_id()
        self._prepare()
        return producer_id

    def was_given(self, producer_id: int) -> bool:
        """Whether somebody may have this producer id: it will not be given out any more."""
        return self._metadata.was_given(producer_id)

    def ready(self) -> "asyncio.Future[None]":
        """Done when there are ids to give out, or when the disk has refused them."""
        if not self._metadata.has_producer_ids:
            self._prepare()
            if self._reserving is not None:
                return asyncio.shield(self._reserving)
        return ready(None)

    def _prepare(self) -> None:
        if self._metadata.wants_producer_ids and self._reserving is None:
            self._reserving = self._slices.start(self._reserve(), "reserving producer ids")

    async def _reserve(self) -> None:
        try:
            await self._changes.reserve_producer_ids()
            if not self._metadata.has_producer_ids:
                raise StorageError("no block of producer ids is durable")
        except StorageError as fault:
            self._faults.report("no producer id", fault)
        finally:
            self._reserving = None


def _errors(result: AddPartitionsToTxnResult) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in result.topic_results
        for each in topic.results_by_partition
    }


class HasTransactions(Protocol):
    """Needs transaction coordinators."""

    @property
    def transactions(self) -> Coordinators[TransactionShard]: ...


class HasVerification(Protocol):
    """Needs to ask a transaction's coordinator as a partition's leader does."""

    @property
    def verification(self) -> Verification: ...


class HasMarkers(Protocol):
    """Needs to write transaction markers."""

    @property
    def markers(self) -> Markers: ...


class HasProducerIds(Protocol):
    """Needs producer ids."""

    @property
    def producer_ids(self) -> ProducerIds: ...

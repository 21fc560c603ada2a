"""Bugs of the clients, other than those of `sequencing`."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ottla.base.types import TopicPartition
from ottla.client.config.consumer import reset_time
from ottla.client.consumer.consumer import AsyncConsumer
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.core.consumer.era import Eras, Ticket
from ottla.client.core.consumer.fetching import Fetching
from ottla.client.core.consumer.positions import PartitionState
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.core.producer.core import ProducerCore
from ottla.client.core.producer.fates import Settle
from ottla.client.core.producer.transactions import Transactions
from ottla.client.exactly_once.batch import AnyBatch
from ottla.client.exactly_once.work import AsyncExactlyOnce
from ottla.client.producer import producer
from ottla.client.producer.producer import AsyncProducer
from ottla.wire.errors import ErrorCode
from sim.users.transformers import Transformer


@contextmanager
def core_stops() -> Iterator[None]:
    """The producer's core raises when a connection breaks."""

    def disconnected(self: ProducerCore, *args: Any) -> None:
        raise KeyError("a bug")

    with patch.object(ProducerCore, "disconnected", disconnected):
        yield


@contextmanager
def tells_of_no_failure() -> Iterator[None]:
    """`on_delivery` is not called for records that the producer has given up."""
    right = producer._settle

    def settle(fate: Settle) -> None:
        if fate.error is None:
            right(fate)
        else:
            fate.batch.outcome.settle(fate.base_offset, fate.log_append_time_ms, fate.error)

    with patch.object(producer, "_settle", settle):
        yield


@contextmanager
def consumers_core_stops() -> Iterator[None]:
    """The consumer's core raises when a leader has moved."""

    def refused(self: Fetching, *args: Any) -> None:
        raise KeyError("a bug")

    with patch.object(Fetching, "_refused", refused):
        yield


@contextmanager
def cancels_its_user() -> Iterator[None]:
    """A call of the user's ends as if its task had been cancelled."""

    async def flush(self: AsyncProducer, timeout_s: float | None = None) -> None:
        raise asyncio.CancelledError

    with patch.object(AsyncProducer, "flush", flush):
        yield


@contextmanager
def commits_in_spite_of_a_lost_batch() -> Iterator[None]:
    """A transaction is committed although the producer has given up on one of its batches."""
    with patch.object(Transactions, "batch_failed", lambda self, error, *, had_sequence: None):
        yield


@contextmanager
def every_answer_counts() -> Iterator[None]:
    """An answer of an older generation, or about an older position, counts as if it were of the present one."""

    def current(self: Eras, ticket: Ticket) -> dict[Any, PartitionState]:
        found = {tp: self._positions.get(tp) for tp in ticket.partitions}
        return {tp: state for tp, state in found.items() if state is not None}

    with patch.object(Eras, "current", current), patch.object(Eras, "holds", lambda self, ticket: True):
        yield


@contextmanager
def commits_ahead() -> Iterator[None]:
    """Records that were fetched are committed, also if no poll has returned them."""

    def committable(self: PartitionState) -> OffsetAndMetadata | None:
        return None if self.fetch_offset < 0 else OffsetAndMetadata(self.fetch_offset, "", -1)

    with patch.object(PartitionState, "committable", committable):
        yield


@contextmanager
def begins_again_at_a_new_leader() -> Iterator[None]:
    """When a leader has moved, the consumer sets its position by the reset policy."""
    right = Fetching._refused

    def refused(self: Fetching, state: PartitionState, part: Any, nodes: Any, now_s: float) -> None:
        when = reset_time(self._shared.config.auto_offset_reset, 0)
        if part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and state.buffered_fetches == 0 and when is not None:
            state.lose(when)
            return
        right(self, state, part, nodes, now_s)

    with patch.object(Fetching, "_refused", refused):
        yield


@contextmanager
def positions_of_nobody() -> Iterator[None]:
    """Offsets go into a transaction without the member and its generation."""
    right = Transformer.member_of

    def member_of(self: Transformer, consumer: AsyncConsumer) -> ConsumerGroupMetadata:
        return right(self, consumer)._replace(generation_id=-1, member_id="")

    with patch.object(Transformer, "member_of", member_of):
        yield


@contextmanager
def loop_does_not_go_back() -> Iterator[None]:
    """The loop of `exactly_once` goes on behind a batch that was aborted."""
    with patch.object(AsyncExactlyOnce, "_go_back", lambda self, batch: None):
        yield


@contextmanager
def loop_keeps_its_offsets() -> Iterator[None]:
    """The loop of `exactly_once` commits a batch without its offsets."""

    async def commit(self: AsyncExactlyOnce, batch: AnyBatch) -> None:
        batch.end("it was committed")
        await self._until_known(self._producer.commit_transaction)

    with patch.object(AsyncExactlyOnce, "_commit", commit):
        yield


@contextmanager
def loop_commits_an_old_epoch() -> Iterator[None]:
    """The loop of `exactly_once` commits a position behind a marker with the epoch of the record before it."""
    right = AsyncExactlyOnce._offsets_after

    async def offsets_after(self: AsyncExactlyOnce, records: list[ConsumerRecord]) -> Any:
        offsets = await right(self, records)
        for each in records:
            tp = TopicPartition(each.topic, each.partition)
            offsets[tp] = offsets[tp]._replace(leader_epoch=-1 if each.leader_epoch is None else each.leader_epoch)
        return offsets

    with patch.object(AsyncExactlyOnce, "_offsets_after", offsets_after):
        yield

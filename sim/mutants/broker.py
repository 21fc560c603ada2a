"""Bugs of the real broker: of its log, of its coordinators, and of the order in which it does things."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.shard import ShardRunner
from ottla.coordinator.decision import Decision, Effect
from ottla.coordinator.group.consumer import reconcile
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.txn import init_producer_id
from ottla.coordinator.txn.metadata import TransactionMetadata, prepare_init
from ottla.log import producers
from ottla.log.flush import FlushPlan
from ottla.log.names import UNFINISHED_SYNC
from ottla.log.partition import PartitionLog
from ottla.log.results import Appended
from ottla.log.segment import Segment
from ottla.wire.errors import ErrorCode


@contextmanager
def dedup_window_of_four() -> Iterator[None]:
    """A partition remembers four batches of a producer, and a producer may have five in flight."""
    with patch.object(producers, "BATCHES_TO_RETAIN", 4):
        yield


@contextmanager
def marks_before_it_decides() -> Iterator[None]:
    """The markers of a transaction are written first, and then the decision; the broker may die in between.

    The decision stays the same object: the coordinators know by that which one they have prepared.
    """
    right = ShardRunner._carry_out

    def carry_out(self: ShardRunner[Any], decision: Decision) -> None:
        effect = self._effect
        for each in decision.effects:
            effect(self, each)
        self._effect = _nothing
        try:
            right(self, decision)
        finally:
            self._effect = effect

    appended = Partitions.append_marker

    def append_marker(self: Partitions, tp: TopicPartition, **marker: Any) -> Appended:
        """Much happens on the disk behind each marker: worlds in which the broker dies there are not seldom."""
        answer = appended(self, tp, **marker)
        partition = self.find(*tp)
        if partition is not None:
            for _ in range(5):
                with suppress(StorageError):
                    partition.log._storage.mark(UNFINISHED_SYNC)
                    partition.log._storage.unmark(UNFINISHED_SYNC)
        return answer

    with patch.object(ShardRunner, "_carry_out", carry_out), patch.object(Partitions, "append_marker", append_marker):
        yield


def _nothing(runner: ShardRunner[Any], effect: Effect) -> None:
    """It was carried out before."""


@contextmanager
def raises_no_epoch() -> Iterator[None]:
    """InitProducerId gives a producer the epoch that the one before it had."""
    right = prepare_init

    def prepare(txn: TransactionMetadata, *, producer_epoch: int, **rest: int) -> TransactionMetadata:
        return right(txn, producer_epoch=max(txn.producer_epoch, 0), **rest)

    with patch.object(init_producer_id, "prepare_init", prepare):
        yield


@contextmanager
def keeps_a_torn_tail() -> Iterator[None]:
    """Recovery leaves what is no whole batch at the end of a log, and the log goes on after it."""

    def cut(self: Segment, position: int, end_offset: int) -> None:
        """Nothing."""

    with patch.object(Segment, "cut", cut):
        yield


@contextmanager
def reads_beyond_open_transactions() -> Iterator[None]:
    """The last stable offset of a log is its end."""
    with patch.object(PartitionLog, "last_stable_offset", property(lambda self: self.end_offset)):
        yield


@contextmanager
def syncs_nothing() -> Iterator[None]:
    """A flush moves the recovery point, and forgets to sync the files."""

    def sync(self: FlushPlan) -> None:
        """Nothing."""

    with patch.object(FlushPlan, "sync", sync):
        yield


@contextmanager
def hands_over_at_once() -> Iterator[None]:
    """A consumer group gives a partition to its new owner before the old one has said that it gave it up."""
    with patch.object(reconcile, "_still_owns", lambda partitions, goal: False):
        yield


@contextmanager
def any_epoch_commits() -> Iterator[None]:
    """A consumer group accepts commits whatever the member's epoch is, and whether or not it is a member."""
    with patch.object(ConsumerGroup, "check_commit", lambda self, commit: ErrorCode.NONE):
        yield


@contextmanager
def two_phase_times_out() -> Iterator[None]:
    """The coordinator ends transactions in two-phase commit, too, when they are open for long (KIP-939)."""

    def limit_ms(self: TransactionMetadata) -> int:
        return min(self.timeout_ms, 5_000) + 1

    with patch.object(TransactionMetadata, "limit_ms", property(limit_ms)):
        yield

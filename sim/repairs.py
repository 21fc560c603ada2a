"""An operator, who ends transactions that have lost their markers with a damaged file."""

from collections.abc import Iterator

from ottla.base.types import TopicPartition
from ottla.broker.node import Node
from ottla.coordinator.txn.states import PREPARED_STATES, TransactionState
from ottla.log.results import ActiveProducer
from sim.losses import Losses


class Operator:
    """Looks after each start, and aborts as `ottla transactions abort --partition` does."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        #: Transactions that nobody else will end: partition, producer id, where they begin.
        self._hanging: set[tuple[TopicPartition, int, int]] = set()

    def looks(self, node: Node | None) -> None:
        """Which transactions are open, and were before, or have lost their markers with this start."""
        now = set()
        for tp, each in self._open_transactions(node):
            is_new = self._losses.is_hanging(tp, each.producer_id, each.transaction_start_offset)
            place = (tp, each.producer_id, each.transaction_start_offset)
            if is_new or place in self._hanging:
                now.add(place)
        self._hanging = now

    def aborts(self, node: Node | None) -> Iterator[str]:
        """Abort them, one after the other; says which.

        Not those whose producer goes on: its next transaction is one with what the lost marker has left open.
        """
        going_on = self._going_on(node)
        for tp, each in self._open_transactions(node):
            place = (tp, each.producer_id, each.transaction_start_offset)
            if node is not None and place in self._hanging and (tp, each.producer_id) not in going_on:
                yield f"{tp}: the transaction of {each.producer_id}/{each.producer_epoch} is aborted"
                node.partitions.append_marker(
                    tp,
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                    commit=False,
                    coordinator_epoch=max(each.coordinator_epoch, 0),
                    transaction_version=0,
                )

    def _going_on(self, node: Node | None) -> set[tuple[TopicPartition, int]]:
        """Partitions of transactions that a coordinator still has to end, with their producer ids."""
        return {
            (tp, txn.producer_id)
            for runner in (() if node is None else node.transactions.active())
            for txn in runner.shard.store.all()
            if txn.state in (TransactionState.ONGOING, *PREPARED_STATES)
            for tp in txn.partitions
        }

    def _open_transactions(self, node: Node | None) -> list[tuple[TopicPartition, ActiveProducer]]:
        parts = [] if node is None else [node.partitions.find(*tp) for tp in list(self._losses.offsets)]
        return [
            (part.log.tp, each)
            for part in parts
            if part is not None
            for each in part.log.producers.active()
            if each.transaction_start_offset >= 0
        ]

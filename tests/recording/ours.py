"""Our own clients, recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from ottla import Consumer, ConsumerRecord, Delivery, OffsetAndMetadata, OffsetReset, Producer, TopicPartition
from ottla.client.core.offsets import ConsumerGroupMetadata
from ottla.testing.history import History, Read
from tests.recording.notes import Reading, Transactions, uid

OnDelivery = Callable[[Delivery], object]
OnRebalance = Callable[[list[TopicPartition]], object]


class RecordingProducer(Producer):
    """`ottla.Producer`. `source` of `send` names the record that the new one is made from."""

    def __init__(self, config: Mapping[str, object], history: History, who: str) -> None:
        super().__init__(config)
        self._notes = history.producer(who)
        transactional_id = config.get("transactional.id")
        self._transactions = Transactions(self._notes, None if transactional_id is None else str(transactional_id))

    def __enter__(self) -> Self:
        return self

    def send(  # type: ignore[override]
        self,
        topic: str,
        value: bytes | None,
        *,
        source: str | None = None,
        on_delivery: OnDelivery | None = None,
        **more: Any,
    ) -> Delivery:
        """As `Producer.send`."""
        name = uid(topic, value)

        def delivered(delivery: Delivery) -> None:
            error = delivery.exception()
            if error is None:
                metadata = delivery.result()
                self._notes.acknowledged(name, TopicPartition(metadata.topic, metadata.partition), metadata.offset)
            else:
                self._notes.unknown(name, error)
            if on_delivery is not None:
                on_delivery(delivery)

        self._notes.sent(name, txn=self._transactions.open, source=source)
        try:
            return super().send(topic, value, on_delivery=delivered, **more)
        except Exception as error:
            self._notes.failed(name, error)
            raise

    def begin_transaction(self) -> None:
        super().begin_transaction()
        self._transactions.began()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata
    ) -> None:
        super().send_offsets_to_transaction(offsets, group_metadata)
        if self._transactions.open is not None:
            self._notes.offsets_sent(
                self._transactions.open,
                group_metadata.group_id,
                {tp: each.offset for tp, each in offsets.items()},
                member_id=group_metadata.member_id,
                generation=group_metadata.generation_id,
            )

    def commit_transaction(self) -> None:
        with self._transactions.ending(commit=True):
            super().commit_transaction()

    def abort_transaction(self) -> None:
        with self._transactions.ending(commit=False):
            super().abort_transaction()


class RecordingConsumer(Consumer):
    """`ottla.Consumer`."""

    def __init__(
        self,
        config: Mapping[str, object],
        history: History,
        who: str,
        *,
        on_reset: Callable[[OffsetReset], object] | None = None,
    ) -> None:
        group, instance_id = config.get("group.id"), config.get("group.instance.id")
        self._reading = Reading(
            history,
            who,
            None if group is None else str(group),
            read_committed=config.get("isolation.level") == "read_committed",
            instance_id=None if instance_id is None else str(instance_id),
        )
        self._on_reset = on_reset
        #: Where the user has moved since the last poll: a reset that is told now may be from before.
        self._sought: set[TopicPartition] = set()
        super().__init__(config, on_reset=self._was_reset)

    def __enter__(self) -> Self:
        return self

    def _was_reset(self, reset: OffsetReset) -> None:
        self._reading.moved({reset.partition: -1 if reset.partition in self._sought else reset.after})
        if self._on_reset is not None:
            self._on_reset(reset)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        chosen = list(partitions)
        super().assign(chosen)
        self._placed(chosen)

    def _placed(self, partitions: Iterable[TopicPartition]) -> None:
        chosen = list(partitions)
        self._sought.update(chosen)
        self._reading.placed(chosen)

    def subscribe(
        self,
        topics: Any,
        *,
        on_assigned: OnRebalance | None = None,
        on_revoked: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        def assigned(partitions: list[TopicPartition]) -> object:
            self._reading.assigned(partitions, self.group_metadata().generation_id)
            return None if on_assigned is None else on_assigned(partitions)

        def revoked(partitions: list[TopicPartition]) -> object:
            self._reading.gone(partitions)
            return None if on_revoked is None else on_revoked(partitions)

        def lost(partitions: list[TopicPartition]) -> object:
            self._reading.gone(partitions, lost=True)
            return None if on_lost is None else on_lost(partitions)

        super().subscribe(topics, on_assigned=assigned, on_revoked=revoked, on_lost=lost)

    def poll(self, timeout_s: float = 1.0) -> list[ConsumerRecord]:
        records = super().poll(timeout_s)
        self._sought.clear()
        self._reading.polled(
            Read(TopicPartition(each.topic, each.partition), each.offset, uid(each.topic, each.value))
            for each in records
        )
        return records

    def seek(self, partition: TopicPartition, offset: int) -> None:
        super().seek(partition, offset)
        self._sought.add(partition)
        self._reading.moved({partition: offset})

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        chosen = list(partitions)
        super().seek_to_beginning(chosen)
        self._placed(chosen or self.assignment())

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        chosen = list(partitions)
        super().seek_to_end(chosen)
        self._placed(chosen or self.assignment())

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_s: float | None = None
    ) -> None:
        told = None if offsets is None else {tp: each.offset for tp, each in offsets.items()}
        metadata = self.group_metadata()
        with self._reading.committing(told, metadata.member_id, metadata.generation_id):
            super().commit(offsets, timeout_s)

"""Our own clients, recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Self

from ottla import Consumer, ConsumerRecord, Delivery, OffsetAndMetadata, OffsetReset, Producer, TopicPartition
from ottla.client.core.offsets import ConsumerGroupMetadata
from ottla.testing.history import History, Read
from ottla.testing.history.facts import CommitOutcome
from tests.recording.names import Transactions, uid

OnDelivery = Callable[[Delivery], object]
OnRebalance = Callable[[list[TopicPartition]], object]


class RecordingProducer(Producer):
    """`ottla.Producer`. `source` of `send` names the record that the new one is made from."""

    def __init__(self, config: Mapping[str, object], history: History, who: str) -> None:
        super().__init__(config)
        self._notes = history.producer(who)
        transactional_id = config.get("transactional.id")
        self._transactions = Transactions(self._notes, None if transactional_id is None else str(transactional_id))
        self._ending = contextmanager(self._transactions.ending)

    def __enter__(self) -> Self:
        return self

    def send(  # type: ignore[override]
        self,
        topic: str,
        value: bytes,
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
        with self._ending(commit=True):
            super().commit_transaction()

    def abort_transaction(self) -> None:
        with self._ending(commit=False):
            super().abort_transaction()


class RecordingConsumer(Consumer):
    """`ottla.Consumer`."""

    def __init__(self, config: Mapping[str, object], history: History, who: str) -> None:
        group = config.get("group.id")
        read_committed = config.get("isolation.level") == "read_committed"
        self._notes = history.consumer(who, group=None if group is None else str(group), read_committed=read_committed)
        instance_id = config.get("group.instance.id")
        self._instance_id = None if instance_id is None else str(instance_id)
        self._commits = 0
        #: What `commit` commits, without the control records behind it.
        self._next: dict[TopicPartition, int] = {}
        super().__init__(config, on_reset=self._was_reset)

    def __enter__(self) -> Self:
        return self

    def _was_reset(self, reset: OffsetReset) -> None:
        self._moved({reset.partition: reset.after})

    def subscribe(
        self,
        topics: Any,
        *,
        on_assigned: OnRebalance | None = None,
        on_revoked: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        def assigned(partitions: list[TopicPartition]) -> object:
            generation = self.group_metadata().generation_id
            self._notes.assigned(partitions, generation=generation, instance_id=self._instance_id)
            return None if on_assigned is None else on_assigned(partitions)

        def revoked(partitions: list[TopicPartition]) -> object:
            self._notes.revoked(partitions)
            self._forget(partitions)
            return None if on_revoked is None else on_revoked(partitions)

        def lost(partitions: list[TopicPartition]) -> object:
            self._notes.revoked(partitions, lost=True)
            self._forget(partitions)
            return None if on_lost is None else on_lost(partitions)

        super().subscribe(topics, on_assigned=assigned, on_revoked=revoked, on_lost=lost)

    def poll(self, timeout_s: float = 1.0) -> list[ConsumerRecord]:
        records = super().poll(timeout_s)
        found = [
            Read(TopicPartition(each.topic, each.partition), each.offset, uid(each.topic, each.value))
            for each in records
        ]
        self._notes.polled(found)
        self._next.update((each.tp, each.offset + 1) for each in found)
        return records

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._next.pop(tp, None)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        super().seek(partition, offset)
        self._moved({partition: offset})

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        chosen = list(partitions)
        super().seek_to_beginning(chosen)
        self._moved(dict.fromkeys(chosen or self.assignment(), -1))

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_s: float | None = None
    ) -> None:
        told = dict(self._next) if offsets is None else {tp: each.offset for tp, each in offsets.items()}
        metadata = self.group_metadata()
        self._commits += 1
        call = f"{self._notes.who} commit {self._commits}"

        def note(outcome: CommitOutcome) -> None:
            self._notes.committed(
                told, member_id=metadata.member_id, generation=metadata.generation_id, outcome=outcome, call=call
            )

        self._notes.called(call)
        try:
            super().commit(offsets, timeout_s)
        except BaseException as error:
            self._notes.returned(call, error)
            note("unknown")
            raise
        self._notes.returned(call)
        note("committed")

    def _moved(self, positions: Mapping[TopicPartition, int]) -> None:
        self._notes.sought(positions)
        self._forget(positions)

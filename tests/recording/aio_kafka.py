"""aiokafka's clients, recorded."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
from aiokafka.abc import ConsumerRebalanceListener

from ottla.base.types import TopicPartition
from ottla.testing.history import History, Read
from tests.recording.notes import Reading, Transactions, uid


class RecordingProducer(aiokafka.AIOKafkaProducer):  # type: ignore[misc]
    """`aiokafka.AIOKafkaProducer`."""

    def __init__(self, history: History, who: str, **configs: Any) -> None:
        super().__init__(**configs)
        self._notes = history.producer(who)
        self._transactions = Transactions(self._notes, configs.get("transactional_id"))

    async def send(self, topic: str, value: bytes, *args: Any, **more: Any) -> Any:
        name = uid(topic, value)
        self._notes.sent(name, txn=self._transactions.open)
        try:
            future = await super().send(topic, value, *args, **more)
        except Exception as error:
            self._notes.failed(name, error)
            raise

        def delivered(done: asyncio.Future[Any]) -> None:
            error = asyncio.CancelledError() if done.cancelled() else done.exception()
            if error is None:
                at = done.result()
                self._notes.acknowledged(name, TopicPartition(at.topic, at.partition), at.offset)
            else:
                self._notes.unknown(name, error)

        future.add_done_callback(delivered)
        return future

    async def begin_transaction(self) -> None:
        await super().begin_transaction()
        self._transactions.began()

    async def commit_transaction(self) -> None:
        with self._transactions.ending(commit=True):
            await super().commit_transaction()

    async def abort_transaction(self) -> None:
        with self._transactions.ending(commit=False):
            await super().abort_transaction()


class RecordingConsumer(aiokafka.AIOKafkaConsumer):  # type: ignore[misc]
    """`aiokafka.AIOKafkaConsumer`."""

    def __init__(self, *topics: str, history: History, who: str, **configs: Any) -> None:
        super().__init__(**configs)
        self._reading = Reading.of(history, who, configs)
        patterns = [topic for topic in topics if topic.startswith("^")]
        if patterns:
            self.subscribe(pattern="|".join(patterns), listener=_Listener(self, self._reading))
        elif topics:
            self.subscribe(topics, listener=_Listener(self, self._reading))

    @property
    def membership(self) -> tuple[str, int]:
        """Member id and generation; aiokafka has no public way to them."""
        coordinator = self._coordinator
        return coordinator.member_id, coordinator.generation

    def assign(self, partitions: list[Any]) -> None:
        super().assign(partitions)
        self._reading.placed(partitions)

    async def seek_to_beginning(self, *partitions: Any) -> bool:
        done: bool = await super().seek_to_beginning(*partitions)
        self._reading.placed(partitions or self.assignment())
        return done

    async def getmany(self, *partitions: Any, **more: Any) -> dict[Any, list[Any]]:
        found: dict[Any, list[Any]] = await super().getmany(*partitions, **more)
        self._reading.polled(
            Read(TopicPartition(*tp), each.offset, uid(each.topic, each.value))
            for tp, records in found.items()
            for each in records
        )
        return found

    async def commit(self) -> None:
        """As `AIOKafkaConsumer.commit`, without offsets."""
        with self._reading.committing(None, *self.membership):
            await super().commit()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: RecordingConsumer, reading: Reading) -> None:
        self._consumer = consumer
        self._reading = reading

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._reading.assigned([TopicPartition(*tp) for tp in assigned], self._consumer.membership[1])

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._reading.gone(TopicPartition(*tp) for tp in revoked)

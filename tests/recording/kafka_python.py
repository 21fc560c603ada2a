"""kafka-python's clients, recorded."""

from __future__ import annotations

from typing import Any

import kafka

from ottla.base.types import TopicPartition
from ottla.testing.history import History, Read
from tests.recording.notes import Reading, Transactions, uid


class RecordingProducer(kafka.KafkaProducer):  # type: ignore[misc]
    """`kafka.KafkaProducer`."""

    def __init__(self, history: History, who: str, **configs: Any) -> None:
        super().__init__(**configs)
        self._notes = history.producer(who)
        self._transactions = Transactions(self._notes, configs.get("transactional_id"))

    def send(self, topic: str, value: bytes, **more: Any) -> Any:
        name = uid(topic, value)
        self._notes.sent(name, txn=self._transactions.open)
        try:
            future = super().send(topic, value, **more)
        except Exception as error:
            self._notes.failed(name, error)
            raise
        future.add_callback(
            lambda at: self._notes.acknowledged(name, TopicPartition(at.topic, at.partition), at.offset)
        )
        future.add_errback(lambda error: self._notes.unknown(name, error))
        return future

    def begin_transaction(self) -> None:
        super().begin_transaction()
        self._transactions.began()

    def commit_transaction(self) -> None:
        with self._transactions.ending(commit=True):
            super().commit_transaction()

    def abort_transaction(self) -> None:
        with self._transactions.ending(commit=False):
            super().abort_transaction()


class RecordingConsumer(kafka.KafkaConsumer):  # type: ignore[misc]
    """`kafka.KafkaConsumer`."""

    def __init__(self, *topics: str, history: History, who: str, **configs: Any) -> None:
        super().__init__(**configs)
        self._reading = Reading.of(history, who, configs)
        patterns = [topic for topic in topics if topic.startswith("^")]
        # It hears of the topics before it joins. A leader of kafka-python 3.0.12 that joins again because of a topic it
        # has just heard of can lose its assignment: if a poll times out meanwhile, the next one sees nothing to do.
        for topic in topics:
            _ = self.topics() if patterns else self.partitions_for_topic(topic)
        if patterns:
            self.subscribe(pattern="|".join(patterns), listener=_Listener(self, self._reading))
        elif topics:
            self.subscribe(topics, listener=_Listener(self, self._reading))

    def assign(self, partitions: list[Any]) -> None:
        super().assign(partitions)
        self._reading.placed(partitions)

    def seek_to_beginning(self, *partitions: Any) -> None:
        super().seek_to_beginning(*partitions)
        self._reading.placed(partitions or self.assignment())

    def poll(self, *args: Any, **more: Any) -> dict[Any, list[Any]]:
        found: dict[Any, list[Any]] = super().poll(*args, **more)
        self._reading.polled(
            Read(TopicPartition(*tp), each.offset, uid(each.topic, each.value))
            for tp, records in found.items()
            for each in records
        )
        return found

    def commit(self, *args: Any, **more: Any) -> None:
        """As `KafkaConsumer.commit`, without offsets."""
        member = self.group_metadata()
        with self._reading.committing(None, member.member_id, member.generation_id):
            super().commit(*args, **more)


class _Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: RecordingConsumer, reading: Reading) -> None:
        self._consumer = consumer
        self._reading = reading

    def on_partitions_assigned(self, assigned: Any) -> None:
        generation = self._consumer.group_metadata().generation_id
        self._reading.assigned([TopicPartition(*tp) for tp in assigned], generation)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._reading.gone(TopicPartition(*tp) for tp in revoked)

    def on_partitions_lost(self, lost: Any) -> None:
        self._reading.gone((TopicPartition(*tp) for tp in lost), lost=True)

"""confluent-kafka's clients (librdkafka), recorded."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import confluent_kafka

from ottla.base.types import TopicPartition
from ottla.testing.history import History, Read
from tests.recording.notes import Reading, Transactions, uid

#: How librdkafka writes down what a member's offsets in a transaction carry: this, the generation, then strings.
_METADATA = b"CGMDv2:"


def member_of(metadata: bytes) -> tuple[int, str, str]:
    """Generation (member epoch, KIP-848), group id and member id in what `consumer_group_metadata` returns."""
    assert metadata.startswith(_METADATA), metadata
    (generation,) = struct.unpack_from("=i", metadata, len(_METADATA))
    group_id, member_id, _ = metadata[len(_METADATA) + 4 :].split(b"\0", 2)
    return generation, group_id.decode(), member_id.decode()


class RecordingProducer(confluent_kafka.Producer):  # type: ignore[misc]
    """`confluent_kafka.Producer`. `source` of `produce` names the record that the new one is made from."""

    def __init__(self, config: dict[str, Any], history: History, who: str) -> None:
        super().__init__(config)
        self._notes = history.producer(who)
        self._transactions = Transactions(self._notes, config.get("transactional.id"))

    def produce(
        self,
        topic: str,
        value: bytes | str,
        key: bytes | str | None = None,
        *,
        source: str | None = None,
        on_delivery: Callable[[Any, Any], object] | None = None,
        **more: Any,
    ) -> None:
        """As `Producer.produce`."""
        name = uid(topic, value)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self._notes.acknowledged(name, TopicPartition(topic, message.partition()), message.offset())
            else:
                self._notes.unknown(name, error)
            if on_delivery is not None:
                on_delivery(error, message)

        self._notes.sent(name, txn=self._transactions.open, source=source)
        try:
            super().produce(topic, value, key, on_delivery=delivered, **more)
        except BaseException as error:
            self._notes.failed(name, error)
            raise

    def begin_transaction(self) -> None:
        super().begin_transaction()
        self._transactions.began()

    def send_offsets_to_transaction(self, positions: list[Any], group_metadata: bytes, *timeout_s: float) -> None:
        super().send_offsets_to_transaction(positions, group_metadata, *timeout_s)
        if self._transactions.open is not None:
            generation, group, member_id = member_of(group_metadata)
            offsets = {TopicPartition(tp.topic, tp.partition): tp.offset for tp in positions if tp.offset >= 0}
            self._notes.offsets_sent(
                self._transactions.open, group, offsets, member_id=member_id, generation=generation
            )

    def commit_transaction(self, *timeout_s: float) -> None:
        with self._transactions.ending(commit=True):
            super().commit_transaction(*timeout_s)

    def abort_transaction(self, *timeout_s: float) -> None:
        with self._transactions.ending(commit=False):
            super().abort_transaction(*timeout_s)

    def given_up(self) -> None:
        """Nobody asks this producer again what has become of its records."""
        self.purge()
        with suppress(confluent_kafka.KafkaException):  # a fatal error is told with each call
            self.poll(0)


class RecordingConsumer(confluent_kafka.Consumer):  # type: ignore[misc]
    """`confluent_kafka.Consumer`."""

    def __init__(self, config: dict[str, Any], history: History, who: str) -> None:
        super().__init__(config)
        self._reading = Reading(
            history,
            who,
            config["group.id"],
            read_committed=config.get("isolation.level", "read_committed") == "read_committed",  # librdkafka's default
            instance_id=config.get("group.instance.id"),
        )

    def subscribe(self, topics: list[str]) -> None:
        """As `Consumer.subscribe`; what is assigned and revoked is noted."""

        def assigned(_consumer: Any, partitions: list[Any]) -> None:
            self._reading.assigned(_plain(partitions), member_of(self.consumer_group_metadata())[0])

        def revoked(_consumer: Any, partitions: list[Any]) -> None:
            self._reading.gone(_plain(partitions))

        def lost(_consumer: Any, partitions: list[Any]) -> None:
            self._reading.gone(_plain(partitions), lost=True)

        super().subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def assign(self, partitions: list[Any]) -> None:
        super().assign(partitions)
        self._moved(partitions)

    def seek(self, partition: Any) -> None:
        super().seek(partition)
        self._moved([partition])

    def _moved(self, partitions: list[Any]) -> None:
        self._reading.moved({TopicPartition(tp.topic, tp.partition): max(-1, tp.offset) for tp in partitions})

    def poll(self, *timeout_s: float) -> Any:
        message = super().poll(*timeout_s)
        self._polled([] if message is None else [message])
        return message

    def consume(self, *count: int, **more: Any) -> list[Any]:
        messages: list[Any] = super().consume(*count, **more)
        self._polled(messages)
        return messages

    def _polled(self, messages: list[Any]) -> None:
        self._reading.polled(
            Read(TopicPartition(each.topic(), each.partition()), each.offset(), uid(each.topic(), each.value()))
            for each in messages
            if each.error() is None
        )

    def commit(self, message: Any = None, offsets: list[Any] | None = None, *, asynchronous: bool = True) -> Any:
        """As `Consumer.commit`. Of one that is not waited for, nothing is noted."""
        asked: dict[str, Any] = {"message": message} if message is not None else {}
        told = None if message is None else {TopicPartition(message.topic(), message.partition()): message.offset() + 1}
        if offsets is not None:
            asked["offsets"] = offsets
            told = {TopicPartition(tp.topic, tp.partition): tp.offset for tp in offsets}
        if asynchronous:
            return super().commit(**asked, asynchronous=True)
        generation, _, member_id = member_of(self.consumer_group_metadata())
        with self._reading.committing(told, member_id, generation):
            return super().commit(**asked, asynchronous=False)


def _plain(partitions: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(tp.topic, tp.partition) for tp in partitions]

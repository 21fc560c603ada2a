"""Consume, transform, produce: each input record becomes one output record, exactly once (SPEC T11)."""

from collections.abc import Mapping

from ottla.base.types import TopicPartition
from ottla.client.consumer.consumer import AsyncConsumer
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.errors import (
    AbortableTransactionError,
    BufferExhaustedError,
    CommitFailedError,
    KafkaError,
    RequestTimeoutError,
)
from ottla.client.producer.producer import AsyncProducer
from ottla.testing.history.facts import Ended, OffsetsSent, Read, Sought
from sim.users.readers import Reading
from sim.users.transactors import OVER, Transactional

OUTPUT = "out"


class Transformer(Transactional, Reading):
    """One worker of the pipeline."""

    group = "pipeline"

    def config(self) -> dict[str, object]:
        """The configuration of the producer; its timeouts leave enough time for a whole transaction."""
        return {**super().config(), "delivery.timeout.ms": 12_000, "batch.size": self.rng.choice((400, 16_384))}

    async def live(self) -> None:
        producer = await self.begin(self.config())
        # a poll makes one transaction: it must be small enough for the timeouts
        sizes = {"max.poll.records": self.rng.choice((8, 20)), "max.partition.fetch.bytes": 100_000}
        consumer = self.consumer(self.world.topics, **{"enable.auto.commit": False}, **sizes)
        while not self.drained:
            records = await self.poll(consumer, 1.0)
            if not records:
                continue
            txn = self.transaction_name()
            try:
                committed = await self._one(producer, consumer, txn, records)
            except OVER as error:
                self.note("over", f"{txn}: {error!r}", Ended(txn, "unknown"))
                await producer.close()
                producer = await self.begin(self.config())
                committed = False
            if not committed:
                await self._rewind(consumer)
            await self.pause(1.0 if self.rng.random() < 0.05 else 0.02)
        await producer.close()
        await self.leave(consumer)

    async def _one(
        self,
        producer: AsyncProducer,
        consumer: AsyncConsumer,
        txn: str,
        records: list[Read],
    ) -> bool:
        await self.begin_transaction(producer, txn)
        commit = self.rng.random() < 0.9
        try:
            for _, _, uid in records:
                await self.send(producer, OUTPUT, f"{self.who}.{len(self.clients)}-{self._count()}:{uid}", txn)
            offsets = {tp: OffsetAndMetadata(offset + 1) for tp, offset, _ in records}
            member = self.member_of(consumer)
            await producer.send_offsets_to_transaction(offsets, member)
            self.note_offsets(txn, offsets, member)
        except OVER:
            raise
        except (
            AbortableTransactionError,
            CommitFailedError,
            BufferExhaustedError,
            RequestTimeoutError,
            KafkaError,
        ) as error:
            self.note("given up", f"{txn}: {error!r}")
            commit = False
        return await self.end(producer, txn, commit=commit)

    def member_of(self, consumer: AsyncConsumer) -> ConsumerGroupMetadata:
        """As whom the group's positions are sent to a transaction."""
        return consumer.group_metadata()

    def note_offsets(
        self, txn: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: ConsumerGroupMetadata
    ) -> None:
        """The group's positions are in the transaction."""
        positions = {tp: each.offset for tp, each in offsets.items()}
        text = f"{txn} of {member.member_id or 'nobody'}/{member.generation_id}: "
        fact = OffsetsSent(txn, self.group, positions, member.member_id, member.generation_id)
        self.note("offsets sent", text + ", ".join(f"{tp}@{offset}" for tp, offset in positions.items()), fact)

    def _count(self) -> int:
        self._record += 1
        return self._record

    async def _rewind(self, consumer: AsyncConsumer) -> None:
        """Go back to the committed offsets, so that what was not committed is read again."""
        while True:
            owned = sorted(consumer.assignment())
            try:
                committed = await consumer.committed(owned)
            except (KafkaError, RequestTimeoutError) as error:
                self.note("not rewound", repr(error))
                await self.pause(0.2)
                continue
            still = [tp for tp in owned if tp in consumer.assignment()]
            for tp in still:
                if tp in committed:
                    consumer.seek(tp, committed[tp].offset)
                else:
                    consumer.seek_to_beginning([tp])
            positions = {tp: committed[tp].offset if tp in committed else 0 for tp in still}
            self.note("rewound", ", ".join(f"{tp}@{offset}" for tp, offset in positions.items()), Sought(positions))
            return

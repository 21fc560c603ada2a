"""One batch: records of the source, and the transaction in which what they make is written."""

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.client.core.producer.outcome import NO_TIMESTAMP, UNKNOWN_OFFSET, WHOLE_BATCH, Outcome
from ottla.client.errors import AbortableTransactionError, IllegalStateError
from ottla.client.exactly_once.faults import passes
from ottla.client.exactly_once.settings import Settings
from ottla.client.producer.delivery import Delivery
from ottla.client.producer.producer import AsyncProducer

_NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()
_NO_PARTITION = -1
COMMITTED = "it was committed"


class AnyBatch:
    """What batches of asyncio and of blocking code share. Iterate over it: these are its records."""

    def __init__(
        self,
        records: list[ConsumerRecord],
        offsets: dict[TopicPartition, OffsetAndMetadata],
        settings: Settings,
    ) -> None:
        """`offsets` are to be committed with it: where to go on after its records."""
        self._records = records
        self._settings = settings
        #: Topics that are read, whatever the brokers make of the source's pattern.
        self._read = {tp.topic for tp in offsets}
        self._sink_is_read = settings.sink in self._read
        self._taken = 0
        self._over = ""
        self._aborted = False
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        for number, record in enumerate(self._records, 1):
            self._taken = max(self._taken, number)
            yield record

    @property
    def records(self) -> tuple[ConsumerRecord, ...]:
        """All its records at once; they count as taken."""
        self._taken = len(self._records)
        return tuple(self._records)

    def skip_rest(self) -> None:
        """The records that were not taken are done, too: they are never read again."""
        self._taken = len(self._records)

    def abort(self) -> None:
        """Give it up: nothing that it has sent will be seen, and the loop gets the same records again. Raises
        IllegalStateError when it is over."""
        self._require_open()
        self._aborted = True
        self._over = "it was aborted"

    # what the loop uses

    @property
    def aborted(self) -> bool:
        """Whether the user has given it up."""
        return self._aborted

    @property
    def next_untaken(self) -> ConsumerRecord | None:
        """The first record that the user has not had; None if there is none."""
        return self._records[self._taken] if self._taken < len(self._records) else None

    @property
    def starts(self) -> dict[TopicPartition, int]:
        """Its first offset in each partition: where to go back to."""
        found: dict[TopicPartition, int] = {}
        for record in self._records:
            found.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return found

    def end(self, why: str) -> None:
        """Nothing more can be sent in it."""
        self._over = self._over or why

    def _destination(self, topic: str | None, *, to_source: bool) -> str:
        """Where a record goes. Raises ValueError for a topic that is read, unless that is wanted."""
        if topic is None:
            topic, is_read = self._settings.sink, self._sink_is_read
        else:
            is_read = topic in self._read or self._settings.reads(topic)
        if is_read and not to_source:
            raise ValueError(
                f"the topic {topic} is a source of this loop: what is written there is worked on again, perhaps "
                "without end. Name another topic; or say send(…, to_source=True) if records are to come again"
            )
        return topic

    def _require_open(self) -> None:
        if self._over:
            lost = ", so this record is missing in it" if self._over == COMMITTED else ""
            raise IllegalStateError(
                f"this batch is over ({self._over}{lost}): send in the batch that the loop has given last, and wait "
                "for all tasks and threads that work on it before the loop goes on"
            )


class AsyncBatch(AnyBatch):
    """A batch of asyncio code."""

    def __init__(
        self,
        records: list[ConsumerRecord],
        offsets: dict[TopicPartition, OffsetAndMetadata],
        producer: AsyncProducer,
        settings: Settings,
    ) -> None:
        super().__init__(records, offsets, settings)
        self._producer = producer

    async def send(
        self,
        value: Any = None,
        *,
        key: Any = None,
        topic: str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = _NO_HEADERS,
        to_source: bool = False,
    ) -> Delivery:
        """Write a record to the sink, or to `topic`, in the transaction of this batch; see `AsyncProducer.send`.

        Its Delivery need not be awaited: the batch is not committed unless all were delivered. Raises IllegalStateError
        when the batch is over, ValueError for a topic that the loop reads (`to_source` allows it: the record is worked
        on again, as for a retry), and what `AsyncProducer.send` raises.
        """
        self._require_open()
        to = self._destination(topic, to_source=to_source)
        try:
            return await self._producer.send(
                to,
                value,
                key=key,
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=headers,
            )
        except AbortableTransactionError as error:
            return not_delivered(to, error)

    async def flush(self) -> None:
        """Wait until all that was sent is at the brokers; readers see it when the batch is committed."""
        await self._producer.flush()


def not_delivered(topic: str, error: AbortableTransactionError) -> Delivery:
    """The Delivery of a record that was not sent, because its transaction has failed already. The batch will be done
    again, so the user's loop may go on. Raises `error` if doing it again would not help."""
    if not passes(error):
        raise error
    outcome = Outcome(TopicPartition(topic, _NO_PARTITION))
    outcome.settle(UNKNOWN_OFFSET, NO_TIMESTAMP, error)
    return Delivery(outcome, WHOLE_BATCH, NO_TIMESTAMP)

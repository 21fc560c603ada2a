"""A batch on its way. First it takes records; later it has bytes, a sequence, and attempts."""

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

from ottla.base.require import require
from ottla.base.types import TopicPartition
from ottla.client.core.producer.identity import NO_IDENTITY, NO_SEQUENCE, NOBODY, SEVERAL, ProducerIdentity
from ottla.client.core.producer.outcome import Outcome
from ottla.wire.batch import HEADER_BYTES, Buffer, set_producer
from ottla.wire.compression import Compression
from ottla.wire.records import BatchBuilder, decode_batch


class ProducerBatch:
    """One record batch of one partition, from its first record to its fate."""

    __slots__ = (
        "_sealed_bytes",
        "_sealed_count",
        "append",
        "attempts",
        "base_sequence",
        "builder",
        "callbacks",
        "created_s",
        "first_place",
        "identity",
        "last_error",
        "number",
        "on_wire",
        "outcome",
        "payload",
        "perhaps_written",
        "reserved_bytes",
        "retry_at_s",
        "sent_to",
        "sequence_reset",
        "settled",
        "stamped_as",
        "tp",
        "transactional",
        "whole_perhaps_written",
    )

    def __init__(
        self,
        tp: TopicPartition,
        number: tuple[int, ...],
        builder: BatchBuilder,
        reserved_bytes: int,
    ) -> None:
        self.tp = tp
        #: Its place in the order of the partition's batches. A half has the number of the whole and 0 or 1 behind it.
        self.number = number
        #: When it was begun: the time of the core's first event after that.
        self.created_s = inf
        #: Place of its first record in the batch that the user's records were put into. A half begins inside it.
        self.first_place = 0
        #: Its part of `buffer.memory`.
        self.reserved_bytes = reserved_bytes
        self.outcome = Outcome(tp)
        #: By turns what the user got for a record, and the user's function to call with it when the batch is settled.
        #: No pairs: they would be twice as many objects for Python's garbage collection to look at.
        self.callbacks: list[Any] = []
        self.builder: BatchBuilder | None = builder
        #: (timestamp_ms, key, value, headers) → place in the batch, or -1 if the batch is full.
        self.append = builder.try_append
        self.payload: Buffer | None = None
        self.identity: ProducerIdentity = NO_IDENTITY
        self.base_sequence = NO_SEQUENCE
        self.sequence_reset = False
        self.transactional = False
        #: Identity, sequence and transactional bit in `payload`'s header.
        self.stamped_as: tuple[ProducerIdentity, int, bool] = (NO_IDENTITY, NO_SEQUENCE, False)
        self.attempts = 0
        #: The broker that it was sent to; SEVERAL if its attempts went to more than one.
        self.sent_to = NOBODY
        #: It was sent, and an answer may come.
        self.on_wire = False
        #: An earlier attempt ended without a clear answer.
        self.perhaps_written = False
        #: It is a part of a batch that may have been written as a whole before it was split.
        self.whole_perhaps_written = False
        #: It has its final outcome.
        self.settled = False
        self.last_error: Exception | None = None
        self.retry_at_s = 0.0
        self._sealed_count = 0
        self._sealed_bytes = 0

    @property
    def record_count(self) -> int:
        """How many records it holds. Any thread may ask."""
        builder = self.builder  # read once: another thread sets it to None when it encodes the batch
        return self._sealed_count if builder is None else builder.record_count

    @property
    def size_bytes(self) -> int:
        """Its size; before it is encoded, the size without compression. Any thread may ask."""
        payload = self.payload
        if payload is not None:
            return len(payload)
        builder = self.builder
        return self._sealed_bytes if builder is None else builder.size_bytes

    def to_call(self) -> Iterator[tuple[Any, Callable[[Any], object]]]:
        """What the user got for a record, and the function to call with it, of each record that has one."""
        one = iter(self.callbacks)
        return zip(one, one, strict=True)

    def seal(self, compression: Compression, level: int | None) -> None:
        """Encode the records, with the identity and the sequence that the batch has now. It takes no more records."""
        if self.payload is None:
            builder = self.builder
            require(builder is not None, "a batch without records is sealed")
            assert builder is not None
            self._sealed_count = builder.record_count
            self._sealed_bytes = builder.size_bytes
            self.stamped_as = (self.identity, self.base_sequence, self.transactional)
            self.payload = builder.seal(*self.identity, self.base_sequence, self.transactional, compression, level)
            self.release_builder()

    def split(self) -> "tuple[ProducerBatch, ProducerBatch]":
        """Two batches of about half the bytes each; the user's Deliveries now depend on these (KIP-126).

        The batch was sent and has at least two records; the caller uses it no more. The halves have no sequence yet.
        """
        require(self.payload is not None and self.record_count > 1, "a batch that cannot be split is split")
        assert self.payload is not None
        records = decode_batch(self.payload)
        first = BatchBuilder(HEADER_BYTES + (self._sealed_bytes - HEADER_BYTES) // 2)
        at = 0
        while first.try_append(*records[at][1:]) >= 0:
            at += 1
        second = BatchBuilder(self._sealed_bytes)
        for record in records[at:]:
            second.try_append(*record[1:])
        require(first.record_count + second.record_count == len(records), "records were lost in a split")
        halves = tuple(
            ProducerBatch(self.tp, (*self.number, n), builder, reserved_bytes)
            for n, builder, reserved_bytes in (
                (0, first, self.reserved_bytes // 2),
                (1, second, self.reserved_bytes - self.reserved_bytes // 2),
            )
        )
        self.outcome.split(at, halves[0].outcome, halves[1].outcome)
        halves[0].first_place, halves[1].first_place = self.first_place, self.first_place + at
        for record_fate, callback in self.to_call():
            halves[record_fate.index >= halves[1].first_place].callbacks += (record_fate, callback)
        return halves[0], halves[1]

    def stamp(self) -> Buffer:
        """The bytes, with the producer id, epoch, sequence and transactional bit that the batch has now."""
        require(self.payload is not None, "a batch is sent before it is encoded")
        assert self.payload is not None
        wanted = (self.identity, self.base_sequence, self.transactional)
        if wanted != self.stamped_as:
            self.payload = stamped = bytearray(self.payload)
            set_producer(stamped, *self.identity, self.base_sequence, transactional=self.transactional)
            self.stamped_as = wanted
        return self.payload

    def goes_to(self, node_id: int) -> None:
        """It is sent to this broker now."""
        self.sent_to = node_id if self.sent_to in (NOBODY, node_id) else SEVERAL

    def release(self) -> None:
        """Free the memory of its bytes."""
        self.release_builder()
        self.payload = None

    def release_builder(self) -> None:
        """Free the memory of the records before encoding. The batch takes no more records."""
        self.append = _full
        if self.builder is not None:
            self._sealed_count = self.builder.record_count  # first, because another thread may ask for the count
            self.builder = None


def _full(timestamp_ms: int, key: bytes | None, value: bytes | None, headers: object) -> int:
    return -1

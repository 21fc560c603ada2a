"""A batch on its way: first it fills, then it has bytes, a sequence, and attempts."""

from collections.abc import Callable
from math import inf
from typing import Any

from ottla.base.require import require
from ottla.base.types import TopicPartition
from ottla.client.core.producer.identity import NO_IDENTITY, NO_SEQUENCE, ProducerIdentity
from ottla.client.core.producer.outcome import Outcome
from ottla.wire.batch import HEADER_BYTES, set_producer
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
        #: Counts the batches of the partition: their order, whatever happens to them. Halves add a place of their own.
        self.number = number
        #: When it was begun, as the core has seen it.
        self.created_s = inf
        #: Place of its first record in the batch that the users' records were put into, of which it may be a part.
        self.first_place = 0
        #: What it takes of `buffer.memory`.
        self.reserved_bytes = reserved_bytes
        self.outcome = Outcome(tp)
        #: Who wants to hear of a record's fate: what was made for the record, and the user's function.
        self.callbacks: list[tuple[Any, Callable[[Any], object]]] = []
        self.builder: BatchBuilder | None = builder
        #: (timestamp_ms, key, value, headers) → place in the batch, or -1 when it is full.
        self.append = builder.try_append
        self.payload: bytes | bytearray | None = None
        self.identity: ProducerIdentity = NO_IDENTITY
        self.base_sequence = NO_SEQUENCE
        self.sequence_reset = False
        self.transactional = False
        #: Identity and sequence in `payload`'s header.
        self.stamped_as: tuple[ProducerIdentity, int, bool] = (NO_IDENTITY, NO_SEQUENCE, False)
        self.attempts = 0
        #: It was sent, and an answer may come.
        self.on_wire = False
        #: An attempt ended without a clear answer.
        self.perhaps_written = False
        #: The batch that this one is a part of may have been written before it was split.
        self.whole_perhaps_written = False
        #: Its users know its fate.
        self.settled = False
        self.last_error: Exception | None = None
        self.retry_at_s = 0.0
        self._sealed_count = 0
        self._sealed_bytes = 0

    @property
    def record_count(self) -> int:
        """How many records it holds. Any thread may ask."""
        builder = self.builder  # read once: the loop takes it away when the batch is encoded
        return self._sealed_count if builder is None else builder.record_count

    @property
    def size_bytes(self) -> int:
        """Its size, before compression while it is still filling. Any thread may ask."""
        payload = self.payload
        if payload is not None:
            return len(payload)
        builder = self.builder
        return self._sealed_bytes if builder is None else builder.size_bytes

    def seal(self, compression: Compression, level: int | None) -> None:
        """Encode what was collected, as sent by who it is sent by now; nothing can be added any more."""
        if self.payload is None:
            builder = self.builder
            require(builder is not None, "a batch without records is sealed")
            assert builder is not None
            self._sealed_count = builder.record_count
            self._sealed_bytes = builder.size_bytes
            self.stamped_as = (self.identity, self.base_sequence, self.transactional)
            self.payload = builder.build(*self.identity, self.base_sequence, self.transactional, compression, level)
            self.release_builder()

    def split(self) -> "tuple[ProducerBatch, ProducerBatch]":
        """Two batches of half the bytes each, or as near as whole records allow; users' Deliveries follow (KIP-126).

        The batch was sent, has at least two records, and is dropped by its owner. The halves have no sequence yet.
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
        for record_fate, callback in self.callbacks:
            halves[record_fate.index >= halves[1].first_place].callbacks.append((record_fate, callback))
        return halves[0], halves[1]

    def stamp(self) -> bytes | bytearray:
        """The bytes with producer id, epoch, sequence and the transactional bit as they are now."""
        require(self.payload is not None, "a batch is sent before it is encoded")
        assert self.payload is not None
        wanted = (self.identity, self.base_sequence, self.transactional)
        if wanted != self.stamped_as:
            self.payload = stamped = bytearray(self.payload)
            set_producer(stamped, *self.identity, self.base_sequence, transactional=self.transactional)
            self.stamped_as = wanted
        return self.payload

    def release(self) -> None:
        """Let go of the bytes."""
        self.release_builder()
        self.payload = None

    def release_builder(self) -> None:
        """Let go of the records as they were collected; the batch takes no more."""
        self.append = _full
        if self.builder is not None:
            self._sealed_count = self.builder.record_count  # first, for those who count meanwhile
            self.builder = None


def _full(timestamp_ms: int, key: bytes | None, value: bytes | None, headers: object) -> int:
    return -1

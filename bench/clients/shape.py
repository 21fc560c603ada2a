"""What clients send and read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Final, NamedTuple

from bench.broker_figures import new_topic
from ottla import Producer, TopicPartition

#: Words of which values are made. Compression finds in them what it finds in logs and JSON, not one letter.
_WORDS: Final = 2_000
_POOL: Final = 1_000
#: Records of a poll, and of a transaction.
POLL: Final = 5_000
TRANSACTION: Final = 500


class Shape(NamedTuple):
    """Records of one size, in so many partitions, with this compression."""

    records: int
    size_bytes: int = 100
    partitions: int = 1
    codec: str = "none"

    def __str__(self) -> str:
        size = "1 KB" if self.size_bytes == 1_000 else f"{self.size_bytes} B"
        parts = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        return ", ".join([size, parts, *([] if self.codec == "none" else [self.codec])])

    @property
    def pool(self) -> list[bytes]:
        """Values that come again and again: the same in every run."""
        draw = random.Random(self.size_bytes)
        words = [draw.randbytes(draw.randint(2, 5)).hex().encode() for _ in range(_WORDS)]
        texts = (b" ".join(draw.choices(words, k=self.size_bytes // 5 + 1)) for _ in range(_POOL))
        return [text[: self.size_bytes] for text in texts]

    def values(self) -> Iterator[bytes]:
        """One for each record."""
        return islice(cycle(self.pool), self.records)

    def topic(self, bootstrap: str) -> str:
        """A new, empty one."""
        return new_topic(bootstrap, self.partitions)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """All of them."""
        return [TopicPartition(topic, number) for number in range(self.partitions)]

    def filled(self, bootstrap: str) -> str:
        """A topic with these records, made once in a process; batches of 1 MB at most, evenly in the partitions."""
        if self not in _FILLED:
            topic = _FILLED[self] = self.topic(bootstrap)
            with Producer(self.producer(bootstrap)) as producer:
                for number, value in enumerate(self.values()):
                    producer.send(topic, value, partition=number % self.partitions)
        return _FILLED[self]

    def producer(self, bootstrap: str) -> dict[str, object]:
        """Settings of our producer."""
        size = {"batch.size": 1_000_000, "buffer.memory": 1_000_000_000}
        return {"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": self.codec, **size}

    def consumer(self, bootstrap: str) -> dict[str, object]:
        """Settings of our consumer."""
        return {"bootstrap.servers": bootstrap, "enable.auto.commit": False, "max.poll.records": POLL}


_FILLED: dict[Shape, str] = {}

"""The partitions that this node leads, as requests reach them."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from ottla.base.types import TopicPartition
from ottla.broker.disk import Space
from ottla.broker.runtime.faults import DiskFaults
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.slices import Slices
from ottla.broker.runtime.syncs import Syncs
from ottla.broker.runtime.wakes import Wakes

T = TypeVar("T")


class LedPartitions(Protocol):
    """Partitions by topic and number. Making and deleting them is for `Topics`."""

    @property
    def faults(self) -> DiskFaults: ...

    @property
    def syncs(self) -> Syncs: ...

    @property
    def wakes(self) -> Wakes: ...

    def find(self, topic: str, partition: int, /) -> Partition | None: ...

    def all(self) -> Iterable[Partition]: ...

    def until_free(self, tp: TopicPartition, /) -> "Iterator[asyncio.Future[None]]": ...

    def space(self) -> Space: ...

    def beside(self, work: Callable[[], T], /) -> "asyncio.Future[T]": ...

    async def write_checkpoint(self, slices: Slices) -> None: ...


class HasPartitions(Protocol):
    """Needs partitions."""

    @property
    def partitions(self) -> LedPartitions: ...

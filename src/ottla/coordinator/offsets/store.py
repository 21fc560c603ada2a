"""The committed offsets of one shard, and those of transactions that are still open.

Only `apply_*` change it, in the order of the log, in operation and at recovery alike. Offsets of an open transaction
wait under their producer id; the transaction's marker makes them committed offsets or drops them. When a partition has
a plain and a transactional commit, the later record wins, whenever the marker comes. Otherwise compaction, which keeps
the later record, would change the outcome (Apache Kafka's `recordOffset` rule, KAFKA-4851).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.base.types import TopicPartition
from ottla.wire.offsets_records import OffsetCommitKey, OffsetCommitValue


class Committed(NamedTuple):
    """An offset, and the place of its record in the shard's order of records."""

    value: OffsetCommitValue
    order: int


_NONE: Final[Mapping[TopicPartition, Committed]] = MappingProxyType({})


class OffsetStore:
    """The offsets of all groups of a shard."""

    def __init__(self) -> None:
        self._order = 0
        self._committed: dict[str, dict[TopicPartition, Committed]] = {}
        #: Pending offsets, by producer id.
        self._pending: dict[int, dict[OffsetCommitKey, Committed]] = {}
        #: Which producers have a pending offset, by group and partition. Empty collections are removed.
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}

    # -- questions

    def of_group(self, group_id: str) -> Mapping[TopicPartition, Committed]:
        """The committed offsets of a group."""
        return self._committed.get(group_id, _NONE)

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset for this partition."""
        return partition in self._open.get(group_id, ())

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction has any offset of this group."""
        return group_id in self._open

    def pending_partitions(self, group_id: str) -> Iterator[TopicPartition]:
        """The partitions for which open transactions have offsets."""
        yield from self._open.get(group_id, ())

    def values(self, group_id: str, partition: TopicPartition) -> Iterator[OffsetCommitValue]:
        """What is committed for a partition, and what waits in open transactions."""
        committed = self._committed.get(group_id, _NONE).get(partition)
        if committed is not None:
            yield committed.value
        for producer_id in self._open.get(group_id, {}).get(partition, ()):
            yield self._pending[producer_id][OffsetCommitKey(group_id, *partition)].value

    def group_ids(self) -> Iterator[str]:
        """Groups with offsets, committed or in open transactions."""
        yield from self._committed
        yield from (group_id for group_id in self._open if group_id not in self._committed)

    # -- changes

    def apply_commit(self, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        """A plain commit's record."""
        self._order += 1
        self._put(key, Committed(value, self._order))

    def apply_transactional(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        """A record inside a transaction: it waits for the marker."""
        self._order += 1
        self._pending.setdefault(producer_id, {})[key] = Committed(value, self._order)
        producers = self._open.setdefault(key.group, {}).setdefault(TopicPartition(key.topic, key.partition), set())
        producers.add(producer_id)

    def apply_tombstone(self, key: OffsetCommitKey) -> None:
        """A deletion removes the committed offset and all pending ones."""
        self._order += 1
        partition = TopicPartition(key.topic, key.partition)
        offsets = self._committed.get(key.group)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._committed[key.group]
        for producer_id in list(self._open.get(key.group, {}).get(partition, ())):
            self._pending[producer_id].pop(key, None)
            self._close(producer_id, key)

    def apply_tombstones(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """The same for many partitions of a group."""
        if group_id in self._open:
            for partition in partitions:
                self.apply_tombstone(OffsetCommitKey(group_id, *partition))
            return
        self._order += 1
        offsets = self._committed.get(group_id)
        if offsets is not None:
            for partition in partitions:
                offsets.pop(partition, None)
            if not offsets:
                del self._committed[group_id]

    def apply_marker(self, producer_id: int, *, commit: bool) -> None:
        """The end of a transaction."""
        for key, pending in self._pending.pop(producer_id, {}).items():
            self._close(producer_id, key)
            before = self._committed.get(key.group, _NONE).get(TopicPartition(key.topic, key.partition))
            if commit and (before is None or before.order < pending.order):
                self._put(key, pending)

    def _put(self, key: OffsetCommitKey, committed: Committed) -> None:
        self._committed.setdefault(key.group, {})[TopicPartition(key.topic, key.partition)] = committed

    def _close(self, producer_id: int, key: OffsetCommitKey) -> None:
        partition = TopicPartition(key.topic, key.partition)
        partitions = self._open[key.group]
        partitions[partition].discard(producer_id)
        if not partitions[partition]:
            del partitions[partition]
        if not partitions:
            del self._open[key.group]

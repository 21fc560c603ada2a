"""The committed offsets of one shard, and those of transactions that are still open.

Only `apply_*` change it, in the order of the log, in operation and at recovery alike. Offsets of an open transaction
wait under their producer id; the transaction's marker makes them committed offsets or drops them. When a partition has
a plain and a transactional commit, the later record wins, whenever the marker comes. Otherwise compaction, which keeps
the later record, would change the outcome (Apache Kafka's `recordOffset` rule, KAFKA-4851).

A transaction may have more offsets than one turn of the event loop has room for. So its end is applied in steps, and
from the first one on every question is answered as after the last: nobody sees a transaction that ended in part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.base.limits import MAX_OFFSETS_PER_STEP
from ottla.base.require import require
from ottla.base.types import TopicPartition
from ottla.wire.offsets_records import OffsetCommitKey, OffsetCommitValue


class Committed(NamedTuple):
    """An offset, and the place of its record in the shard's order of records."""

    value: OffsetCommitValue
    order: int


_NONE: Final[Mapping[TopicPartition, Committed]] = MappingProxyType({})


class _AsEnded(Mapping[TopicPartition, Committed]):
    """A group's committed offsets as they will be when those of a transaction are among them."""

    def __init__(self, committed: Mapping[TopicPartition, Committed], more: Mapping[TopicPartition, Committed]) -> None:
        self._committed = committed
        self._more = more

    def __getitem__(self, partition: TopicPartition) -> Committed:
        more = self._more.get(partition)
        return self._committed[partition] if more is None else _later(self._committed.get(partition), more)

    def __iter__(self) -> Iterator[TopicPartition]:
        yield from self._committed
        yield from (partition for partition in self._more if partition not in self._committed)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _later(committed: Committed | None, ended: Committed) -> Committed:
    return ended if committed is None or committed.order < ended.order else committed


class _Ending(NamedTuple):
    """The transaction whose end is being applied."""

    producer_id: int
    commit: bool


class OffsetStore:
    """The offsets of all groups of a shard."""

    def __init__(self) -> None:
        self._order = 0
        self._committed: dict[str, dict[TopicPartition, Committed]] = {}
        #: Pending offsets, by producer id and group.
        self._pending: dict[int, dict[str, dict[TopicPartition, Committed]]] = {}
        #: Which producers have a pending offset, by group and partition. Empty collections are removed.
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}
        self._ending: _Ending | None = None

    # -- questions

    @property
    def is_ending(self) -> bool:
        """Whether the end of a transaction is applied in part."""
        return self._ending is not None

    def of_group(self, group_id: str) -> Mapping[TopicPartition, Committed]:
        """The committed offsets of a group."""
        committed = self._committed.get(group_id, _NONE)
        if self._ending is None or not self._ending.commit:
            return committed
        more = self._pending[self._ending.producer_id].get(group_id)
        return committed if more is None else _AsEnded(committed, more)

    def count(self, group_id: str) -> int:
        """For how many partitions a group has committed offsets, at most: while a transaction ends some count twice."""
        return len(self._committed.get(group_id, _NONE)) if self._ending is None else self.size(group_id)

    def size(self, group_id: str) -> int:
        """How many offsets a group has, those in open transactions too; a partition with both counts twice."""
        return len(self._committed.get(group_id, _NONE)) + len(self._open.get(group_id, ()))

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset for this partition."""
        producers = self._open.get(group_id, {}).get(partition, ())
        return bool(producers) and (self._ending is None or any(each != self._ending.producer_id for each in producers))

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
            yield self._pending[producer_id][group_id][partition].value

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
        partition = TopicPartition(key.topic, key.partition)
        offsets = self._pending.setdefault(producer_id, {}).setdefault(key.group, {})
        offsets[partition] = Committed(value, self._order)
        self._open.setdefault(key.group, {}).setdefault(partition, set()).add(producer_id)

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
            del self._pending[producer_id][key.group][partition]
            self._close(producer_id, key.group, partition)

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

    def apply_marker(self, producer_id: int, *, commit: bool, at_once: int = MAX_OFFSETS_PER_STEP) -> Iterator[None]:
        """The end of a transaction, in steps of `at_once` offsets. Nothing else may be applied before the last one."""
        require(self._ending is None, "another transaction is ending")
        pending = self._pending.get(producer_id)
        if pending is None:
            return
        self._ending = _Ending(producer_id, commit)
        room = at_once
        for group_id, offsets in pending.items():
            committed = self._committed.setdefault(group_id, {}) if commit and offsets else {}
            for partition, each in offsets.items():
                if not room:
                    yield
                    room = at_once
                room -= 1
                self._close(producer_id, group_id, partition)
                if commit:
                    committed[partition] = _later(committed.get(partition), each)
        del self._pending[producer_id]
        self._ending = None

    def _put(self, key: OffsetCommitKey, committed: Committed) -> None:
        self._committed.setdefault(key.group, {})[TopicPartition(key.topic, key.partition)] = committed

    def _close(self, producer_id: int, group_id: str, partition: TopicPartition) -> None:
        partitions = self._open[group_id]
        partitions[partition].discard(producer_id)
        if not partitions[partition]:
            del partitions[partition]
        if not partitions:
            del self._open[group_id]

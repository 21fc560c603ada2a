"""A worked example of an assignor in Python: members get the same amount of work, not the same number of partitions.

    group.consumer.assignors=uniform,range,ottla.assign.server.lag_weighted:LagWeighted

and a consumer asks for it with `group.remote.assignor=lag-weighted`. Work is what the group has not read yet. Only the
coordinator knows that of all partitions at one time, so no assignor of the client's side could do this.

A partition that nobody has read yet weighs as much as an average one. Every partition has a small weight of its own, so
that members with nothing to catch up on have as many partitions each. A partition stays with the member that has it,
unless that member has more than its share, and another one would have less with it. So nothing moves for nothing: one
partition that is more than a share stays where it is, and members without work take none from those that have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from ottla.assign.server.types import GroupSpec, Partitions

_Partition: TypeAlias = tuple[bytes, int]

#: The weight of a partition without any lag, in records.
_BASE: Final = 100
#: How much more than its share a member may keep, so that small changes of the lag move nothing.
_TOLERANCE: Final = 1.2


class LagWeighted:
    """See the module."""

    name = "lag-weighted"
    #: The coordinator fills in `GroupSpec.lags`.
    wants_lags = True

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        """Keep what members have, give the rest to whoever has least; then those that have too much give some away."""
        work = _Work(group)
        for partition in work.heaviest_first(work.free):
            work.give(partition, work.least(partition))
        while work.even_out():  # each step makes two members more alike, so there is a last one
            pass
        return work.target()


class _Work:
    """Who has which partitions, and how much work that is."""

    def __init__(self, group: GroupSpec) -> None:
        self._weights = _weights(group)
        self._readers: dict[bytes, list[str]] = {}
        self._has: dict[str, list[_Partition]] = {member_id: [] for member_id in group.members}
        self._load = dict.fromkeys(group.members, 0)
        #: What nobody has.
        self.free = set(self._weights)
        for member_id, member in group.members.items():
            for topic_id in member.topic_ids:
                self._readers.setdefault(topic_id, []).append(member_id)
                for number in member.assigned.get(topic_id, ()):
                    if (topic_id, number) in self.free:
                        self.give((topic_id, number), member_id)
        self._most = sum(self._weights.values()) / max(len(group.members), 1) * _TOLERANCE

    def heaviest_first(self, partitions: Iterable[_Partition]) -> list[_Partition]:
        return sorted(partitions, key=lambda each: (-self._weights[each], each))

    def give(self, partition: _Partition, member_id: str) -> None:
        self.free.discard(partition)
        self._has[member_id].append(partition)
        self._load[member_id] += self._weights[partition]

    def least(self, partition: _Partition) -> str:
        """Of those that read it, the member with the least work."""
        return min(self._readers[partition[0]], key=lambda member_id: (self._load[member_id], member_id))

    def even_out(self) -> bool:
        """Members with more than their share give to those that then have less than they. Whether anything moved."""
        moved = False
        for member_id, given in self._has.items():
            heaviest_first = self.heaviest_first(given)
            for partition in heaviest_first[1:] + heaviest_first[:1]:  # the heaviest only if the others are not enough
                if self._load[member_id] <= self._most:
                    break
                other = self.least(partition)
                if self._load[other] + self._weights[partition] < self._load[member_id]:
                    given.remove(partition)
                    self._load[member_id] -= self._weights[partition]
                    self.give(partition, other)
                    moved = True
        return moved

    def target(self) -> dict[str, dict[bytes, list[int]]]:
        found: dict[str, dict[bytes, list[int]]] = {}
        for member_id, given in self._has.items():
            numbers = found[member_id] = {}
            for topic_id, number in sorted(given):
                numbers.setdefault(topic_id, []).append(number)
        return found


def _weights(group: GroupSpec) -> dict[_Partition, int]:
    """The weight of every partition that a member reads."""
    read = {topic_id for member in group.members.values() for topic_id in member.topic_ids}
    lags = [lag for numbers in group.lags.values() for lag in numbers.values()]
    unknown = sum(lags) // len(lags) if lags else 0
    return {
        (topic_id, number): _BASE + group.lags.get(topic_id, {}).get(number, unknown)
        for topic_id in sorted(read)
        for number in range(group.topics[topic_id].partitions)
    }

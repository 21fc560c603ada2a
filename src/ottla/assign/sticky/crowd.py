"""Members by how many partitions they have: who has fewest of those that want a topic?"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush


class _Alike:
    """Members that want the same topics and are in the same rack. A heap with entries that may be out of date."""

    def __init__(self, wanted: frozenset[str], rack: str | None) -> None:
        self.wanted = wanted
        self.rack = rack
        self.entries: list[int] = []


class Crowd:
    """The members' sizes. An entry of a heap is size * (number of members) + member: small sizes first, then names."""

    def __init__(self, wanted: list[frozenset[str]], racks: list[str | None], sizes: list[int]) -> None:
        self.sizes = sizes
        self._count = len(sizes)
        kinds: dict[tuple[frozenset[str], str | None], _Alike] = {}
        self._kind = [kinds.setdefault(key, _Alike(*key)) for key in zip(wanted, racks, strict=True)]
        self._wanting: dict[str, list[_Alike]] = {}
        for kind in kinds.values():
            for topic in kind.wanted:
                self._wanting.setdefault(topic, []).append(kind)
        for member, kind in enumerate(self._kind):
            kind.entries.append(sizes[member] * self._count + member)
        for kind in kinds.values():
            heapify(kind.entries)
        #: Topic → the fewest partitions that a member has that wants it; forgotten when one of these members changes.
        self._fewest: dict[str, int] = {}

    def smallest(self, topic: str) -> int:
        """The member with the fewest partitions of those that want `topic`. Some member must want it."""
        return min(map(self._top, self._wanting[topic])) % self._count

    def smallest_near(self, topic: str, racks: frozenset[str]) -> int | None:
        """The same, of the members that have no rack or one of `racks`."""
        kinds = [kind for kind in self._wanting[topic] if kind.rack is None or kind.rack in racks]
        return min(map(self._top, kinds)) % self._count if kinds else None

    def fewest(self, topic: str) -> int:
        """How many partitions the smallest member has."""
        found = self._fewest.get(topic)
        if found is None:
            found = self._fewest[topic] = min(map(self._top, self._wanting[topic])) // self._count
        return found

    def change(self, member: int, by: int) -> None:
        """The member has got a partition (1), or given one away (-1)."""
        self.sizes[member] += by
        kind = self._kind[member]
        heappush(kind.entries, self.sizes[member] * self._count + member)
        if self._fewest:
            for topic in kind.wanted:
                self._fewest.pop(topic, None)

    def _top(self, kind: _Alike) -> int:
        entries, sizes, count = kind.entries, self.sizes, self._count
        while sizes[entries[0] % count] != entries[0] // count:
            heappop(entries)
        return entries[0]


def unevenness(sizes: Iterable[int]) -> int:
    """The sum of the differences between all pairs of sizes: 0 if all are the same."""
    in_order = sorted(sizes)
    return sum(size * (2 * place - len(in_order) + 1) for place, size in enumerate(in_order))

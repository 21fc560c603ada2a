"""Which member gets the next partition of a topic, and which one gives it: for `heterogeneous`.

A topic's subscribers stand in order of how many partitions they have. On the left is the range of those that take: all
of its members stand at one level. Each takes one partition in turn; then the level is one higher, and members that
stand at it already join the range. On the right it is the same with those that give, downwards. Members that have
nothing to give of this topic leave the right range. When the two levels differ by one at most the topic is even.
"""

from __future__ import annotations

from collections.abc import Sequence


class Balancer:
    """See the module. `sizes` is the number of partitions by member; it changes while the balancer works."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self._members: list[int] = []
        #: The range that takes is [0, _takers_end), the one that gives [_givers_start, _givers_end).
        self._takers_end = self._givers_start = self._givers_end = 0
        self._takers_level = self._givers_level = 0
        self._next_taker = self._next_giver = 0

    def begin(self, members: Sequence[int]) -> int:
        """Begin with the subscribers of a topic; returns how far apart the ends are."""
        sizes = self._sizes
        self._members = sorted(members, key=lambda member: (sizes[member], member))
        least, most = sizes[self._members[0]], sizes[self._members[-1]]
        self._takers_end, self._takers_level, self._next_taker = 0, least - 1, 0
        self._givers_start = self._givers_end = len(self._members)
        self._givers_level, self._next_giver = most + 1, len(self._members) - 1
        return most - least

    def next_least_loaded(self) -> int:
        """The member that takes the next partition."""
        if self._next_taker >= self._takers_end:
            self._takers_level += 1
            while self._takers_end < len(self._members) and self._size(self._takers_end) == self._takers_level:
                self._takers_end += 1
            self._next_taker = 0
        self._next_taker += 1
        return self._members[self._next_taker - 1]

    def next_most_loaded(self) -> int | None:
        """The member that gives the next partition; None when no member is left that can."""
        if self._next_giver < self._givers_start:
            if self._givers_end <= self._givers_start and self._givers_start > 0:
                self._givers_level = self._size(self._givers_start - 1)  # the whole range had nothing to give
            else:
                self._givers_level -= 1
            while self._givers_start > 0 and self._size(self._givers_start - 1) == self._givers_level:
                self._givers_start -= 1
            self._next_giver = self._givers_end - 1
        if self._next_giver < 0:
            return None
        self._next_giver -= 1
        return self._members[self._next_giver + 1]

    def exclude_most_loaded(self) -> None:
        """The member that was named last has nothing to give: it leaves the range."""
        members, at, end = self._members, self._next_giver + 1, self._givers_end - 1
        members[at], members[end] = members[end], members[at]
        self._givers_end = end

    def is_balanced(self) -> bool:
        """Whether those that give and those that take differ by one partition at most."""
        return self._givers_level - self._takers_level <= 1

    def _size(self, at: int) -> int:
        return self._sizes[self._members[at]]

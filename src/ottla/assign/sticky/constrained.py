"""Dividing when all members want the same topics: every member gets its share, the first few one more.

1. A member keeps what it holds, up to its share. With racks, only what is near it.
2. With racks: what is left goes in a circle to members that are near it and below their shares.
3. The rest goes in a circle to members below their shares, then to those that may have one more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from ottla.assign.sticky.board import Board, Held
from ottla.assign.sticky.racks import Racks
from ottla.base.require import require


class Constrained:
    """One division. `given` has the numbers of each member's partitions; `moved` those that somebody else held."""

    def __init__(self, board: Board, held: Held) -> None:
        self._board = board
        self._held = held
        self._racks = Racks(board)
        self._share, self._extras = divmod(len(board.partitions), len(board.members))
        #: How many members have one more than the share. Never more than `_extras`.
        self._with_extra = 0
        self.given: list[list[int]] = [[] for _ in board.members]
        self.moved: set[int] = set()
        #: Partition → the member that held it and does not keep it.
        self._dropped: dict[int, int] = {}
        #: Members below their share; members that have it and may get one more.
        self._below: list[int] = []
        self._at_share: dict[int, None] = {}

    def divide(self) -> None:
        """Fill `given` and `moved`."""
        for member in self._held.served:
            self._keep(member)
        self._below.sort()
        self._at_share = dict.fromkeys(sorted(self._at_share))
        taken = bytearray(len(self._board.partitions))
        for partitions in self.given:
            for partition in partitions:
                taken[partition] = 1
        left = [partition for partition, is_taken in enumerate(taken) if not is_taken]
        if self._racks.matter:
            left.sort(key=self._racks.members_near.__getitem__)
            left = self._fill_near(left)
        self._fill(left)
        self._find_moved()

    # what is kept

    def _keep(self, member: int) -> None:
        held, twice = self._held.of[member], self._held.claimed_twice
        if self._racks.matter:
            near = []
            for partition in held:
                if self._racks.apart(member, partition):
                    self._dropped[partition] = member
                else:
                    near.append(partition)
            held = near
        if twice:
            held = [partition for partition in held if partition not in twice]
        if len(held) < self._share:
            self.given[member] = list(held)
            self._below.append(member)
            return
        count = self._share
        if self._with_extra < self._extras:
            if len(held) > self._share:
                count += 1
                self._count_extra()
            else:
                self._at_share[member] = None
        self._keep_first(member, held, count)

    def _keep_first(self, member: int, held: list[int], count: int) -> None:
        if len(held) == count:
            self.given[member] = list(held)
            return
        in_order = sorted(held, key=self._across_topics)
        self.given[member] = in_order[:count]
        self._dropped.update(dict.fromkeys(in_order[count:], member))

    def _across_topics(self, partition: int) -> tuple[int, int]:
        return self._board.partitions[partition].partition, partition

    def _count_extra(self) -> None:
        self._with_extra += 1
        if self._with_extra == self._extras:
            self._at_share.clear()

    # what is new

    def _find_moved(self) -> None:
        twice = self._held.claimed_twice
        doubtful = twice | self._dropped.keys()
        if doubtful:
            for member, given in enumerate(self.given):
                self.moved.update(p for p in doubtful.intersection(given) if p in twice or self._dropped[p] != member)

    def _fill_near(self, left: list[int]) -> list[int]:
        """Returns the partitions that nobody who is near them can take."""
        circle = _CircleOfRacks(self._racks, self._below)
        rest = []
        for partition in left:
            racks = self._racks.of_partition[partition]
            member = circle.next_near(racks)
            if member is not None:
                self._give_near(partition, member, circle)
                continue
            member = next((m for m in self._at_share if self._racks.of_member[m] in racks), None)
            if member is None:
                rest.append(partition)
                continue
            self.given[member].append(partition)
            del self._at_share[member]
            self._count_extra()
        self._below = circle.members
        return rest

    def _give_near(self, partition: int, member: int, circle: _CircleOfRacks) -> None:
        self.given[member].append(partition)
        if len(self.given[member]) < self._share:
            return
        circle.remove(member)
        if self._with_extra < self._extras:
            self._at_share[member] = None

    def _fill(self, left: list[int]) -> None:
        below, turn, share = self._below, 0, self._share
        at_share = deque(self._at_share)
        for partition in left:
            if not below:
                require(at_share, "partitions are left, and no member may take one")
                self.given[at_share.popleft()].append(partition)
                continue
            if turn == len(below):
                turn = 0
            given = self.given[below[turn]]
            given.append(partition)
            if len(given) == share:
                at_share.append(below.pop(turn))
            else:
                turn += 1


class _CircleOfRacks:
    """Members in a circle, of which the next one in certain racks is asked for."""

    def __init__(self, racks: Racks, members: list[int]) -> None:
        self._racks = racks
        self._in_rack: dict[str, list[int]] = {}
        for member in members:
            rack = racks.of_member[member]
            if rack is not None:
                self._in_rack.setdefault(rack, []).append(member)
        self._all = members
        self._gone: set[int] = set()
        #: The circle goes on with the first member from here.
        self._from = 0

    @property
    def members(self) -> list[int]:
        """Those that were not removed, in order."""
        return [member for member in self._all if member not in self._gone]

    def next_near(self, racks: frozenset[str]) -> int | None:
        """The next member in one of `racks`; the circle goes on behind it."""
        found: tuple[bool, int] | None = None
        for rack in racks:
            members = self._in_rack.get(rack)
            if members:
                place = bisect_left(members, self._from)
                behind = place == len(members)
                candidate = behind, members[0 if behind else place]
                if found is None or candidate < found:
                    found = candidate
        if found is None:
            return None
        self._from = found[1] + 1
        return found[1]

    def remove(self, member: int) -> None:
        """The member takes no more."""
        self._gone.add(member)
        members = self._in_rack[self._racks.of_member[member] or ""]
        del members[bisect_left(members, member)]

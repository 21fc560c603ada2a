"""Dividing when members want different topics.

1. A member keeps what it holds and still wants. With racks, only what is near it.
2. What is left goes, topic by topic, to the member that has fewest partitions of those that want it: topics with the
   fewest members first. With racks, members that are near it come before the others.
3. While some member has at least two more than another one that wants one of its partitions, that partition moves:
   back to its owner of an older generation if that helps, else to the member with the fewest. If the whole is no
   more even afterwards, nothing moves.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.assign.sticky.board import Board, Claim, Held
from ottla.assign.sticky.crowd import Crowd, unevenness
from ottla.assign.sticky.movements import Movements
from ottla.assign.sticky.racks import Racks
from ottla.assign.types import java_order

_NOBODY = -1


class General:
    """One division. `given` has the numbers of each member's partitions."""

    def __init__(self, board: Board, held: Held, claims: Sequence[Claim]) -> None:
        self._board = board
        self._racks = Racks(board)
        wanting = dict.fromkeys(board.topics, 0)
        for wanted in board.wanted:
            for topic in wanted:
                wanting[topic] += 1
        self._topics = sorted(board.topics, key=lambda topic: (wanting[topic], java_order(topic)))
        #: Topics of which no other division is possible.
        self._fixed = {topic for topic in board.topics if wanting[topic] < 2}
        self._owner = [_NOBODY] * len(board.partitions)
        self._revokes = False
        self._keep(held)
        self._crowd = Crowd(board.wanted, self._racks.of_member, self._sizes())
        self._movements = Movements()
        self._earlier = self._earlier_owners(held, claims)

    @property
    def given(self) -> list[list[int]]:
        """The numbers of each member's partitions."""
        given: list[list[int]] = [[] for _ in self._board.members]
        for partition, owner in enumerate(self._owner):
            given[owner].append(partition)
        return given

    def divide(self) -> None:
        """Give everything to somebody."""
        in_order = [partition for topic in self._topics for partition in self._board.span[topic]]
        free = [partition for partition in in_order if self._owner[partition] == _NOBODY]
        began_empty = len(free) == len(in_order)
        if self._racks.matter:
            self._hand_out_near(free)
        self._hand_out(free)
        if self._is_even():
            return
        before = list(self._owner)
        if not self._revokes:
            self._even_out(self._movable(free))
        moved = self._even_out(self._movable(in_order))
        if moved and not began_empty and self._unevenness(self._owner) >= self._unevenness(before):
            self._owner = before

    # what is kept, and what is handed out

    def _keep(self, held: Held) -> None:
        names = self._board.partitions
        apart = self._racks.apart if self._racks.matter else None
        for member, partitions in enumerate(held.of):
            wanted = self._board.wanted[member]
            for partition in partitions:
                if names[partition][0] not in wanted or (apart is not None and apart(member, partition)):
                    self._revokes = True
                else:
                    self._owner[partition] = member

    def _sizes(self) -> list[int]:
        sizes = [0] * len(self._board.members)
        for owner in self._owner:
            if owner != _NOBODY:
                sizes[owner] += 1
        return sizes

    def _hand_out_near(self, free: Sequence[int]) -> None:
        for partition in free:
            topic = self._board.partitions[partition].topic
            member = self._crowd.smallest_near(topic, self._racks.of_partition[partition])
            if member is not None:
                self._owner[partition] = member
                self._crowd.change(member, 1)

    def _hand_out(self, free: Sequence[int]) -> None:
        names = self._board.partitions
        for partition in free:
            if self._owner[partition] == _NOBODY:
                member = self._crowd.smallest(names[partition][0])
                self._owner[partition] = member
                self._crowd.change(member, 1)

    # evening out

    def _earlier_owners(self, held: Held, claims: Sequence[Claim]) -> dict[int, int]:
        """For partitions that members of older generations claim: the newest of them, if it still wants the topic."""
        newest = max(claim.generation_id for claim in claims)
        found: dict[int, tuple[int, int]] = {}
        for member in held.served:
            partitions, generation_id = claims[member]
            if generation_id >= newest:
                continue
            for number in map(self._board.number_of.get, partitions):
                if number is not None and (number not in found or generation_id > found[number][1]):
                    found[number] = member, generation_id
        return {
            number: member
            for number, (member, _) in found.items()
            if self._board.partitions[number].topic in self._board.wanted[member]
        }

    def _movable(self, partitions: Sequence[int]) -> list[int]:
        return [partition for partition in partitions if self._board.partitions[partition].topic not in self._fixed]

    def _is_even(self) -> bool:
        sizes = [size for member, size in enumerate(self._crowd.sizes) if self._takes_part(member)]
        return not sizes or max(sizes) - min(sizes) <= 1

    def _takes_part(self, member: int) -> bool:
        return not self._board.wanted[member] <= self._fixed

    def _unevenness(self, owners: Sequence[int]) -> int:
        sizes = [0] * len(self._board.members)
        for owner in owners:
            sizes[owner] += 1
        return unevenness(size for member, size in enumerate(sizes) if self._takes_part(member))

    def _even_out(self, partitions: Sequence[int]) -> bool:
        """Move partitions until no move makes it more even. Returns whether anything has moved."""
        crowd, owners = self._crowd, self._owner
        names = self._board.partitions
        ever, again = False, True
        while again:
            again = False
            for partition in partitions:
                size = crowd.sizes[owners[partition]]
                earlier = self._earlier.get(partition)
                if earlier is not None and size > crowd.sizes[earlier] + 1:
                    receiver = earlier
                elif size > crowd.fewest(names[partition].topic) + 1:
                    receiver = crowd.smallest(names[partition].topic)
                else:
                    continue
                self._move(partition, receiver)
                ever = again = True
        return ever

    def _move(self, partition: int, receiver: int) -> None:
        names, owners = self._board.partitions, self._owner
        chosen = self._movements.better_choice(names[partition], owners[partition], receiver)
        partition = self._board.number_of[chosen]
        owner = owners[partition]
        self._movements.add(chosen, owner, receiver)
        owners[partition] = receiver
        self._crowd.change(owner, -1)
        self._crowd.change(receiver, 1)

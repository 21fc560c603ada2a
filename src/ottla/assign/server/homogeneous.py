"""`uniform` for members that all subscribe to the same topics: even to one partition, and as sticky as that allows.

Every member has a quota: the partitions divided by the members, and one more for as many members as the rest. A member
keeps what it has up to its quota. What it has above that, and what nobody has, goes to members below their quota.

The one more goes to the first members that need it. A member gives it up while enough members stand behind it to take
it, unless it has that many partitions already: then taking it away would move one for nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from ottla.assign.server.types import AssignorError, GroupSpec, Partitions


class HomogeneousBuilder:
    """One assignment. See the module."""

    def __init__(self, group: GroupSpec, topic_ids: Sequence[bytes]) -> None:
        self._group = group
        self._topic_ids = topic_ids
        self._wanted = frozenset(topic_ids)
        self._free: deque[tuple[bytes, int]] = deque()
        self._target: dict[str, dict[bytes, list[int]]] = {}
        #: How many partitions a member below its quota still needs.
        self._below: dict[str, int] = {}
        self._quota = 0
        self._extra = 0

    def build(self) -> Mapping[str, Partitions]:
        """The new target; AssignorError when a topic is not there."""
        if not self._topic_ids:
            return {}
        total = self._find_free()
        self._quota, self._extra = divmod(total, len(self._group.members))
        for at, member_id in enumerate(self._group.members):
            self._keep(at, member_id)
        for member_id, needed in self._below.items():
            target = self._target[member_id]
            for _ in range(min(needed, len(self._free))):
                topic_id, partition = self._free.popleft()
                target.setdefault(topic_id, []).append(partition)
        if self._free:
            raise AssignorError("Partitions were left unassigned")
        return self._target

    def _find_free(self) -> int:
        owned, total = self._group.assigned(), 0
        for topic_id in self._topic_ids:
            topic = self._group.topics.get(topic_id)
            if topic is None:
                raise AssignorError("Members are subscribed to a topic which doesn't exist in the topic metadata.")
            taken = owned.get(topic_id, ())
            self._free.extend((topic_id, number) for number in range(topic.partitions) if number not in taken)
            total += topic.partitions
        return total

    def _keep(self, at: int, member_id: str) -> None:
        """What the member keeps, and what it may still get."""
        takes_extra = self._extra > 0
        left = self._quota + takes_extra
        kept: dict[bytes, list[int]] = {}
        for topic_id, numbers in self._group.members[member_id].assigned.items():
            if topic_id not in self._wanted:
                continue
            mine = list(numbers[:left])
            self._free.extend((topic_id, number) for number in numbers[len(mine) :])
            left -= len(mine)
            if mine:
                kept[topic_id] = mine
        if left > 0 and takes_extra and len(self._group.members) - at > self._extra:
            left -= 1
            takes_extra = False
        if left > 0:
            self._below[member_id] = left
        self._extra -= takes_extra
        self._target[member_id] = kept

"""Watches: each waits for one change of one znode, is told once, and is gone. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from sim.zookeeper_era.tree import Change, Happened


class Watch(Enum):
    """What was asked when the watch was left: `exists`, `getData` or `getChildren`."""

    EXISTENCE = "existence"
    DATA = "data"
    CHILDREN = "children"


class Notification(NamedTuple):
    """What a session is told: that something changed, and not what it is now. To know that, it has to read again."""

    session: int
    change: Change


#: Which watches a change fires. A watch for existence waits for data too, as ZooKeeper has it.
_FIRED_BY = {
    Happened.CREATED: (Watch.EXISTENCE,),
    Happened.DELETED: (Watch.EXISTENCE, Watch.DATA, Watch.CHILDREN),
    Happened.DATA: (Watch.EXISTENCE, Watch.DATA),
    Happened.CHILDREN: (Watch.CHILDREN,),
}


class Watches:
    """The watches that clients of one server have left there."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[Watch, str], set[int]] = {}

    def leave(self, watch: Watch, path: str, session: int) -> None:
        """A session waits for the next change. The same watch twice is one."""
        self._waiting.setdefault((watch, path), set()).add(session)

    def fire(self, changes: Iterable[Change]) -> list[Notification]:
        """Who has to be told of these changes. Those watches are gone; a session is told of a change once."""
        told = []
        for change in changes:
            sessions: set[int] = set()
            for watch in _FIRED_BY[change.what]:
                sessions |= self._waiting.pop((watch, change.path), set())
            told += [Notification(session, change) for session in sorted(sessions)]
        return told

    def forget(self, session: int) -> None:
        """The session is over, and its watches with it."""
        for waiting in self._waiting.values():
            waiting.discard(session)

    def count(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

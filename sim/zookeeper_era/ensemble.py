"""An ensemble: one log of writes, servers that have applied more or less of it, sessions. Pure: time is an argument.

A write goes to the leader, which gives it its place in the log. Each server applies the log in order, when the caller
says so: a server that is behind answers reads from an older tree. That is all that ZooKeeper promises its readers, and
two clients on two servers may see two different groups at one moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from sim.zookeeper_era.tree import Change, Node, Tree, ZooKeeperError
from sim.zookeeper_era.watches import Notification, Watch, Watches

#: `tickTime`: sessions are looked at once a tick, so one lasts up to a tick longer than its time-out.
TICK_MS: Final = 2_000


class SessionExpiredError(ZooKeeperError):
    """The session is over; its ephemerals are gone."""


class Create(NamedTuple):
    """A new znode, ephemeral or not."""

    path: str
    data: str = ""
    ephemeral: bool = False


class SetData(NamedTuple):
    """New data; -1 is any version."""

    path: str
    data: str
    version: int = -1


class Delete(NamedTuple):
    """A znode goes; -1 is any version."""

    path: str
    version: int = -1


class EndSession(NamedTuple):
    """The client has closed its session, or the leader has not heard of it for too long."""


Write: TypeAlias = Create | SetData | Delete | EndSession


class Entry(NamedTuple):
    """One place in the log."""

    session: int
    write: Write


class Applied(NamedTuple):
    """What came of one entry on one server."""

    entry: Entry
    refused: ZooKeeperError | None
    notifications: tuple[Notification, ...]


class Server:
    """One server: its tree, as far as it has applied the log, and the watches of its clients."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.watches = Watches()
        #: How many entries of the log are in the tree.
        self.applied = 0

    def get(self, path: str, session: int, *, watch: bool = False) -> Node:
        """Raises NoNodeError, and then leaves no watch."""
        node = self.tree.get(path)
        if watch:
            self.watches.leave(Watch.DATA, path, session)
        return node

    def children(self, path: str, session: int, *, watch: bool = False) -> tuple[str, ...]:
        """Raises NoNodeError, and then leaves no watch."""
        names = self.tree.children(path)
        if watch:
            self.watches.leave(Watch.CHILDREN, path, session)
        return names

    def exists(self, path: str, session: int, *, watch: bool = False) -> bool:
        """Leaves its watch also where nothing is yet."""
        if watch:
            self.watches.leave(Watch.EXISTENCE, path, session)
        return self.tree.exists(path)

    def apply(self, entry: Entry) -> Applied:
        """The next entry of the log. The same entry is refused, or not, on every server."""
        self.applied += 1
        refused: ZooKeeperError | None = None
        changes: list[Change] = []
        try:
            changes = self._change(entry)
        except ZooKeeperError as error:
            refused = error
        told = tuple(self.watches.fire(changes))
        if isinstance(entry.write, EndSession):
            self.watches.forget(entry.session)
            told = tuple(each for each in told if each.session != entry.session)
        return Applied(entry, refused, told)

    def _change(self, entry: Entry) -> list[Change]:
        match entry.write:
            case Create(path, data, ephemeral):
                return self.tree.create(path, data, entry.session if ephemeral else 0)
            case SetData(path, data, version):
                return self.tree.set(path, data, version)
            case Delete(path, version):
                return self.tree.delete(path, version)
            case EndSession():
                return self.tree.end_session(entry.session)


@dataclass(slots=True)
class Ensemble:
    """See the module. Server 0 leads."""

    servers: list[Server]
    log: list[Entry] = field(default_factory=list)
    #: Open session → (its time-out, when it is over unless the leader hears of it), in milliseconds.
    _sessions: dict[int, tuple[int, float]] = field(default_factory=dict)
    _last_session: int = 0

    @classmethod
    def of(cls, count: int, *paths: str) -> Ensemble:
        """So many servers that have these paths, and are all up to date."""
        ensemble = cls([Server() for _ in range(count)])
        for server in ensemble.servers:
            server.tree.make(paths)
        return ensemble

    @property
    def leader(self) -> Server:
        return self.servers[0]

    def open_session(self, timeout_ms: int, now_ms: float) -> int:
        """A new session's number, from 1 on."""
        self._last_session += 1
        self._sessions[self._last_session] = (timeout_ms, now_ms + timeout_ms)
        return self._last_session

    def touch(self, session: int, now_ms: float) -> None:
        """The client was heard of. Raises SessionExpiredError."""
        if session not in self._sessions:
            raise SessionExpiredError(f"session {session}")
        timeout_ms, _ = self._sessions[session]
        self._sessions[session] = (timeout_ms, now_ms + timeout_ms)

    def propose(self, session: int, write: Write, now_ms: float) -> Applied:
        """Give a write its place in the log; the leader applies it at once. Raises SessionExpiredError."""
        self.touch(session, now_ms)
        if isinstance(write, EndSession):
            del self._sessions[session]
        return self._append(Entry(session, write))

    def tick(self, now_ms: float) -> list[Applied]:
        """End the sessions that the leader has not heard of for too long."""
        over = [session for session, (_, until_ms) in self._sessions.items() if until_ms <= now_ms]
        for session in over:
            del self._sessions[session]
        return [self._append(Entry(session, EndSession())) for session in over]

    def catch_up(self, number: int, upto: int) -> list[Applied]:
        """A server applies the log up to (not with) the entry `upto`."""
        server = self.servers[number]
        return [server.apply(entry) for entry in self.log[server.applied : upto]]

    def _append(self, entry: Entry) -> Applied:
        self.log.append(entry)
        return self.leader.apply(entry)

"""The ensemble in the event loop: requests and answers take their time, followers lag behind, sessions are timed.

A client has one server. That answers reads from its own tree; a write goes to the leader, and is answered when the
client's own server has applied it, so that a client sees what it has written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Final

from sim.loop import START_S, SimLoop
from sim.zookeeper_era import paths
from sim.zookeeper_era.ensemble import (
    TICK_MS,
    Applied,
    Create,
    Delete,
    EndSession,
    Ensemble,
    Server,
    SessionExpiredError,
    SetData,
    Write,
)
from sim.zookeeper_era.ledger import Ledger
from sim.zookeeper_era.tree import Change, Node, ZooKeeperError
from sim.zookeeper_era.watches import Notification
from sim.zookeeper_era.weather import Line, Weather

_SERVERS: Final = 3
#: Every rebalance of every consumer reads them all.
_BROKERS: Final = 3

#: What a request does on its server: it answers, or raises a ZooKeeperError.
Read = Callable[[Server, int], Any]


@dataclass(slots=True)
class _Place:
    """Whose a session is, and where it is attached."""

    client: str
    server: int
    to_client: Line
    heard: Callable[[Change], None]
    #: Answers that wait until this server has applied an entry of the log, by its place.
    waiting: dict[int, tuple[asyncio.Future[Any], Any]] = field(default_factory=dict)


class Service:
    """See the module."""

    def __init__(self, loop: SimLoop, weather: Weather, ledger: Ledger) -> None:
        self.loop = loop
        self.weather = weather
        self.ledger = ledger
        brokers = (f"{paths.BROKERS}/{number}" for number in range(_BROKERS))
        self.ensemble = Ensemble.of(_SERVERS, paths.IDS, paths.OWNERS, paths.OFFSETS, paths.TOPIC_PATH, *brokers)
        for server in self.ensemble.servers:
            server.tree.set(paths.TOPIC_PATH, str(ledger.partitions))
        self._places: dict[int, _Place] = {}
        #: When a follower has applied what was given to it last.
        self._applies_at_s = [0.0] * _SERVERS
        loop.call_later(TICK_MS / 1_000, self._tick, context=Context())

    def now_ms(self) -> float:
        """Milliseconds since the beginning."""
        return (self.loop.time() - START_S) * 1_000

    # -- what arrives

    def attach(self, place: _Place, timeout_ms: int) -> int:
        """A new session."""
        session = self.ensemble.open_session(timeout_ms, self.now_ms())
        self._places[session] = place
        return session

    def read(self, session: int, read: Read, answer: asyncio.Future[Any]) -> None:
        """Answer from the tree of the client's server."""
        place = self._places[session]
        try:
            self.ensemble.touch(session, self.now_ms())
            place.to_client.send(_settle, answer, read(self.ensemble.servers[place.server], session))
        except ZooKeeperError as error:
            place.to_client.send(_settle, answer, error)

    def write(self, session: int, write: Write, answer: asyncio.Future[Any]) -> None:
        """Give it to the leader; answer when the client's server has applied it."""
        place = self._places[session]
        try:
            applied = self.ensemble.propose(session, write, self.now_ms())
        except SessionExpiredError as error:
            place.to_client.send(_settle, answer, error)
            return
        position = len(self.ensemble.log)
        place.waiting[position] = (answer, applied.refused)
        self._spread([applied])
        if isinstance(write, SetData | Create) and applied.refused is None:
            folder, _, name = write.path.rpartition("/")
            if folder == paths.OFFSETS:
                self.ledger.committed(place.client, int(name), accepted=True)

    def ping(self, session: int, answer: asyncio.Future[Any]) -> None:
        """The client is there."""
        self.read(session, lambda server, session: None, answer)

    # -- the log's way to the followers

    def _spread(self, applied: list[Applied]) -> None:
        """The leader has applied these; the followers come later."""
        self._tell(0, applied)
        upto = len(self.ensemble.log)
        for number in range(1, _SERVERS):
            at_s = self.loop.time() + self.weather.lag_ms() / 1_000
            at_s = self._applies_at_s[number] = max(at_s, self._applies_at_s[number] + 1e-6)
            self.loop.call_at(at_s, self._catch_up, number, upto, context=Context())

    def _catch_up(self, number: int, upto: int) -> None:
        self._tell(number, self.ensemble.catch_up(number, upto))

    def _tell(self, number: int, applied: list[Applied]) -> None:
        """Notifications first, then answers: nobody sees new data before it is told that there is some."""
        for each in applied:
            for notification in each.notifications:
                self._notify(notification)
        done = self.ensemble.servers[number].applied
        for place in self._places.values():
            if place.server == number:
                for position in [position for position in place.waiting if position <= done]:
                    place.to_client.send(_settle, *place.waiting.pop(position))

    def _notify(self, notification: Notification) -> None:
        self.ledger.notifications += 1
        place = self._places[notification.session]
        place.to_client.send(place.heard, notification.change)

    def _tick(self) -> None:
        self._spread(self.ensemble.tick(self.now_ms()))
        self.loop.call_later(TICK_MS / 1_000, self._tick, context=Context())


def _settle(answer: asyncio.Future[Any], value: object) -> None:
    if answer.done():
        return
    if isinstance(value, Exception):
        answer.set_exception(value)
    else:
        answer.set_result(value)


class Client:
    """A client as the consumers had it (ZkClient): it pings, and goes on in a new session when its own is over.

    `changes` has what the server tells: a Change, or None for a new session.
    """

    def __init__(self, service: Service, name: str, session_timeout_ms: int) -> None:
        self._service = service
        self._name = name
        self._server = service.weather.rng.randrange(_SERVERS)
        self._timeout_ms = session_timeout_ms
        self._to_server = Line(service.loop, service.weather)
        self.changes: asyncio.Queue[Change | None] = asyncio.Queue()
        self._session = 0
        self._renewing = asyncio.Lock()

    async def start(self) -> None:
        """Open a session. `keep_alive` has to run from now on."""
        await self._new_session()

    async def keep_alive(self) -> None:
        """Ping, three times a session."""
        while True:
            await asyncio.sleep(self._timeout_ms / 3_000)
            self._service.ledger.keep_alives += 1
            await self._asked(self._service.ping)

    async def close(self) -> None:
        """End the session: the ephemerals go."""
        await self._write(EndSession(), "write")

    async def get(self, path: str, *, watch: bool = False) -> Node:
        """Raises NoNodeError."""
        node: Node = await self._read(lambda server, session: server.get(path, session, watch=watch))
        return node

    async def children(self, path: str, *, watch: bool = False) -> tuple[str, ...]:
        """Raises NoNodeError."""
        names: tuple[str, ...] = await self._read(lambda server, session: server.children(path, session, watch=watch))
        return names

    async def exists(self, path: str, *, watch: bool = False) -> bool:
        """Whether it is there."""
        there: bool = await self._read(lambda server, session: server.exists(path, session, watch=watch))
        return there

    async def create(self, path: str, data: str = "", *, ephemeral: bool = False, counted: str = "write") -> None:
        """Raises NodeExistsError, NoNodeError."""
        await self._write(Create(path, data, ephemeral), counted)

    async def set(self, path: str, data: str, *, counted: str = "write") -> None:
        """Raises NoNodeError."""
        await self._write(SetData(path, data), counted)

    async def delete(self, path: str) -> None:
        """Raises NoNodeError."""
        await self._write(Delete(path), "write")

    async def _read(self, read: Read) -> Any:
        self._service.ledger.requests["read"] += 1
        return await self._asked(lambda session, answer: self._service.read(session, read, answer))

    async def _write(self, write: Write, counted: str) -> None:
        self._service.ledger.requests[counted] += 1
        await self._asked(lambda session, answer: self._service.write(session, write, answer))

    async def _asked(self, request: Callable[[int, asyncio.Future[Any]], None]) -> Any:
        """Ask, and ask again in a new session if this one is over."""
        while True:
            session = self._session
            answer: asyncio.Future[Any] = self._service.loop.create_future()
            self._to_server.send(request, session, answer)
            try:
                return await answer
            except SessionExpiredError:
                async with self._renewing:
                    if session == self._session:
                        await self._new_session()
                        self.changes.put_nowait(None)

    async def _new_session(self) -> None:
        answer: asyncio.Future[int] = self._service.loop.create_future()
        to_client = Line(self._service.loop, self._service.weather)

        def attach() -> None:
            place = _Place(self._name, self._server, to_client, self.changes.put_nowait)
            session = self._service.attach(place, self._timeout_ms)
            to_client.send(_settle, answer, session)

        self._to_server.send(attach)
        self._session = await answer

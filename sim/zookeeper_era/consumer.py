"""A consumer as Kafka 0.8 had it: it reads the group from ZooKeeper, computes its own share, and claims it.

What was published of ZookeeperConsumerConnector, in the order in which it goes:

1. Register: an ephemeral node below `ids`. Leave watches on the children of `ids` and on the topic's data.
2. Rebalance, and again whenever a watch has fired. Nobody leads: every consumer does this by itself.
   a. Read brokers, members, each member's subscription, and the topic's partitions.
   b. Stop the fetchers, commit, and delete one's own nodes below `owners`.
   c. Sort partitions and members; the own share is a range by the own place among the members.
   d. Create an ephemeral owner node for each partition of it. If one exists, somebody else still holds it: give back
      those that were got, wait `rebalance.backoff.ms`, begin again at a; at most `rebalance.max.retries` times.
   e. Read the committed offsets, start the fetchers.
3. After that many failures it owns nothing until a watch fires again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, Final, NamedTuple

from sim.loop import HOST
from sim.zookeeper_era import paths
from sim.zookeeper_era.service import Client, Service
from sim.zookeeper_era.tree import NodeExistsError, NoNodeError
from sim.zookeeper_era.weather import Weather


class Settings(NamedTuple):
    """The old consumers' settings, with their defaults, and one interval for commits that both ways share."""

    session_timeout_ms: int = 6_000  # zookeeper.session.timeout.ms
    max_retries: int = 4  # rebalance.max.retries
    backoff_ms: int = 2_000  # rebalance.backoff.ms, zookeeper.sync.time.ms
    commit_interval_ms: int = 5_000  # auto.commit.interval.ms


DEFAULTS: Final = Settings()


def share(partitions: tuple[int, ...], members: tuple[str, ...], name: str) -> tuple[int, ...]:
    """Range: each member's share by its place among the sorted members; the first ones get one more."""
    place = sorted(members).index(name)
    each, more = divmod(len(partitions), len(members))
    begin = place * each + min(place, more)
    return tuple(sorted(partitions)[begin : begin + each + (place < more)])


class Consumer:
    """See the module."""

    def __init__(self, name: str, service: Service, weather: Weather, settings: Settings = DEFAULTS) -> None:
        self.name = name
        self._service = service
        self._ledger = service.ledger
        self._weather = weather
        self._settings = settings
        self._client = Client(service, name, settings.session_timeout_ms)
        self._triggered = asyncio.Event()
        #: What it has claimed, and reads.
        self._owned: tuple[int, ...] = ()
        self._position = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """The process starts."""
        self._spawn(self._live())

    def crash(self) -> None:
        """kill -9. Its session lives on until ZooKeeper has not heard of it for long enough."""
        self._service.loop.kill(self.name)

    def leave(self) -> None:
        """A clean end: commit, close the session."""
        for task in self._tasks:
            task.cancel()
        self._spawn(self._say_goodbye(self._owned))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        context = Context()
        context.run(HOST.set, self.name)
        self._tasks.append(self._service.loop.create_task(coroutine, context=context))

    async def _live(self) -> None:
        await self._client.start()
        self._spawn(self._client.keep_alive())
        self._spawn(self._commit_often())
        await self._register()
        self._spawn(self._hear())
        await self._rebalance()
        while True:
            await self._triggered.wait()
            await self._rebalance()

    async def _say_goodbye(self, owned: tuple[int, ...]) -> None:
        await self._commit(owned)
        await self._client.close()

    # -- 1: in the group

    async def _register(self) -> None:
        try:
            await self._client.create(paths.member(self.name), paths.TOPIC, ephemeral=True)
        except NodeExistsError:
            await self._client.set(paths.member(self.name), paths.TOPIC)
        await self._watch_members()
        await self._client.exists(paths.TOPIC_PATH, watch=True)

    async def _watch_members(self) -> None:
        """A watch fires once, so it is left anew after every notification; that is two reads."""
        await self._client.exists(paths.IDS, watch=True)
        await self._client.children(paths.IDS, watch=True)

    async def _hear(self) -> None:
        while True:
            change = await self._client.changes.get()
            if change is None:  # a new session: nothing of the old one is left in ZooKeeper, and it must not be deleted
                self._owned = ()
                await self._register()
            elif change.path == paths.IDS:
                await self._watch_members()
            else:
                await self._client.exists(change.path, watch=True)
            self._triggered.set()

    # -- 2: the rebalance

    async def _rebalance(self) -> None:
        self._triggered.clear()
        self._ledger.rebalances += 1
        for _ in range(self._settings.max_retries):
            try:
                if await self._attempt():
                    return
            except NoNodeError:  # what was read a moment ago is gone: a member that has left
                pass
            self._ledger.failed_attempts += 1
            await asyncio.sleep(self._settings.backoff_ms / 1_000)
        self._ledger.given_up += 1
        self._ledger.stops(self.name, self._service.now_ms())

    async def _attempt(self) -> bool:
        members, partitions = await self._look_around()
        await asyncio.sleep(self._weather.stop_ms() / 1_000)
        self._ledger.stops(self.name, self._service.now_ms())
        await self._release()
        if self.name not in members:  # an older view, in which it is not there yet
            return False
        mine = share(partitions, members, self.name)
        self._ledger.takes(self.name, mine, self._service.now_ms())
        if not await self._claim(mine):
            return False
        for partition in mine:
            await self._offset(partition)
        self._owned = mine
        self._ledger.reads(self.name, mine, self._service.now_ms())
        return True

    async def _look_around(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The members that subscribe to the topic, and its partitions, as this consumer's server shows them."""
        for broker in await self._client.children(paths.BROKERS):
            await self._client.get(f"{paths.BROKERS}/{broker}")
        names = await self._client.children(paths.IDS)
        subscribed = [name for name in names if (await self._client.get(paths.member(name))).data == paths.TOPIC]
        partitions = int((await self._client.get(paths.TOPIC_PATH)).data)
        return tuple(subscribed), tuple(range(partitions))

    async def _release(self) -> None:
        """Commit, and give back what it owned."""
        owned, self._owned = self._owned, ()
        await self._commit(owned)
        for partition in owned:
            try:
                await self._client.delete(paths.owner(partition))
            except NoNodeError:
                continue

    async def _claim(self, mine: tuple[int, ...]) -> bool:
        """All of them, or none: what was got is given back when another one was not to be had."""
        got = []
        for partition in mine:
            try:
                await self._client.create(paths.owner(partition), self.name, ephemeral=True)
            except NodeExistsError:
                continue
            got.append(partition)
        if len(got) == len(mine):
            return True
        for partition in got:
            await self._client.delete(paths.owner(partition))
        return False

    # -- offsets

    async def _offset(self, partition: int) -> None:
        if await self._client.exists(paths.offset(partition)):
            await self._client.get(paths.offset(partition))

    async def _commit_often(self) -> None:
        while True:
            await asyncio.sleep(self._settings.commit_interval_ms / 1_000)
            await self._commit(self._owned)

    async def _commit(self, partitions: tuple[int, ...]) -> None:
        """One write for each partition. ZooKeeper takes it from anyone."""
        self._position += 1
        for partition in partitions:
            try:
                await self._client.set(paths.offset(partition), str(self._position), counted="offset write")
            except NoNodeError:
                await self._create_offset(partition)

    async def _create_offset(self, partition: int) -> None:
        try:
            await self._client.create(paths.offset(partition), str(self._position), counted="offset write")
        except NodeExistsError:
            await self._client.set(paths.offset(partition), str(self._position), counted="offset write")

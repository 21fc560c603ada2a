"""A driver around a core that only keeps what it is told, for the tests of the shell."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from ottla.client.config.admin import admin_config
from ottla.client.core.intents import Ask, Channel, Connect, Core, Target
from ottla.client.core.metadata import ClusterSnapshot
from ottla.client.errors import ClientError
from ottla.client.net.cluster import Cluster
from ottla.client.net.supervisor import Supervisor
from ottla.client.shell.driver import Driver
from ottla.wire.apis import ApiKey
from ottla.wire.messages.metadata import MetadataRequest
from tests.client.fake_kafka import NODE_ID
from tests.client.scripted_broker import ScriptedBroker

FAULT = ZeroDivisionError("nobody expects this")
PATIENCE_MS = 60_000


class SmallCore(Core):
    """Keeps every event. A user's call is kept until `finish`; `intend` is for the next event."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[Any, ...]] = []
        self.news = asyncio.Event()

    def _keep(self, *event: Any) -> None:
        self.events.append(event)
        self.news.set()

    async def saw(self, name: str) -> tuple[Any, ...]:
        """The first event of this name; waits for it."""
        while not (found := [event for event in self.events if event[0] == name]):
            self.news.clear()
            await self.news.wait()
        return found[0]

    def names(self) -> list[str]:
        return [event[0] for event in self.events]

    # a user's

    def do(self, intent: object, now_s: float) -> None:
        self._keep("do", intent)
        self.intend(intent)

    def call(self, call: Any, now_s: float) -> None:
        self._keep("call", call)

    def fail(self, now_s: float) -> None:
        raise FAULT

    # the shell's

    def metadata(self, before: ClusterSnapshot, after: ClusterSnapshot, now_s: float) -> None:
        self._keep("metadata", before, after)

    def woken(self, now_s: float) -> None:
        self.wake_at_s = None
        self._keep("woken", now_s)

    def answered(self, ticket: Any, answer: Any, now_s: float) -> None:
        self._keep("answered", ticket, answer)

    def failed(self, ticket: Any, error: ClientError, now_s: float) -> None:
        self._keep("failed", ticket, error)

    def abandoned(self, call: Any, now_s: float) -> None:
        self._keep("abandoned", call)

    def connected(self, node_id: int, channel: Channel, now_s: float) -> None:
        self._keep("connected", node_id, channel)

    def unreachable(self, node_id: int, channel: Channel, error: ClientError, now_s: float) -> None:
        self._keep("unreachable", node_id, channel, error)

    def disconnected(self, node_id: int, channel: Channel, now_s: float) -> None:
        self._keep("disconnected", node_id, channel)


class Shell(NamedTuple):
    """A driver with what it joins."""

    driver: Driver
    core: SmallCore
    cluster: Cluster
    supervisor: Supervisor
    broker: ScriptedBroker

    def do(self, *wanted: object) -> None:
        """Have the core intend these things, one event each."""
        for intent in wanted:
            self.driver.feed(self.core.do, intent)


@asynccontextmanager
async def shell(lock: Any = None) -> AsyncIterator[Shell]:
    async with ScriptedBroker({"t": 1}) as broker:
        cluster = Cluster(admin_config(broker.config()), random.Random(0))
        core, supervisor = SmallCore(), Supervisor("the client")
        made = Driver(core, cluster, supervisor, logging.getLogger("ottla.client"), lock=lock)
        try:
            yield Shell(made, core, cluster, supervisor, broker)
        finally:
            made.stop()
            await supervisor.close()
            await cluster.close()


@asynccontextmanager
async def connected_shell() -> AsyncIterator[Shell]:
    """The cluster is known, and a connection open."""
    async with shell() as it:
        await it.cluster.start()
        await it.cluster.ensure_metadata(PATIENCE_MS)
        it.do(Connect(NODE_ID))
        assert await it.core.saw("connected") == ("connected", NODE_ID, Channel.MAIN)
        yield it


def ask(ticket: object, to: Target, **how: Any) -> Ask:
    return Ask(ticket, to, ApiKey.METADATA, MetadataRequest(topics=()), PATIENCE_MS, **how)

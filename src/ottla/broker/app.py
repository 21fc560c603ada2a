"""Puts the broker together: data directory, metadata, partitions, coordinators, listener, and its regular work."""

import asyncio
import logging
import os
import random
import time

from ottla.base.clock import Clock, SystemClock
from ottla.base.errors import StorageError
from ottla.broker.config import BrokerConfig
from ottla.broker.disk import Disk
from ottla.broker.handlers.dispatch import Dispatcher
from ottla.broker.listeners import EVERYWHERE
from ottla.broker.node import Node, expect_coordinators, load_coordinators, make_node
from ottla.broker.recover import Recovered, recover
from ottla.broker.runtime.timers import Timers
from ottla.broker.runtime.upkeep import Upkeep
from ottla.broker.server import Listener
from ottla.broker.storage import DirectoryDisk

_log = logging.getLogger(__name__)


class BrokerApp:
    """One broker in the running event loop. Call `start` once, and then `stop` once."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock | None = None,
        disk: Disk | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self.clock = clock or SystemClock()
        self._rng = rng or random.SystemRandom()
        self._disk: Disk = disk or DirectoryDisk(config.data_dir)
        self._listener: Listener | None = None
        self._dispatcher: Dispatcher | None = None
        self._loading: asyncio.Task[None] | None = None
        self._upkeep: Upkeep | None = None
        self._recovered: Recovered | None = None
        self.node: Node | None = None

    async def start(self) -> tuple[str, int]:
        """Recover the data directory and listen. Returns the host and port.

        Raises StorageError for a directory that cannot be used, OSError for an address that cannot be used.
        """
        started = time.monotonic()
        config = self._config
        self._disk.lock()
        try:
            self.node = self._recover()
            expect_coordinators(self.node)
            self._dispatcher = Dispatcher(self.node)
            self._listener = Listener(
                self._dispatcher,
                self.clock,
                name=config.listener_name,
                max_request_bytes=config.int("socket.request.max.bytes"),
                max_connections=config.int("max.connections"),
                max_idle_ms=config.int("connections.max.idle.ms"),
                max_queued_bytes=config.int("queued.max.request.bytes"),
            )
            endpoint = config.listener
            host, port = await self._listener.listen(
                endpoint.host, endpoint.port, config.int("socket.listen.backlog.size")
            )
        except BaseException:
            self._disk.unlock()
            raise
        advertised = config.advertised
        self.node.identity.host = _told((advertised or endpoint).host)
        self.node.identity.port = advertised.port if advertised is not None and advertised.port else port
        self._upkeep = Upkeep(
            config, self.clock, self.node.timers, self.node.slices, self.node.partitions, self._listener
        )
        self._upkeep.start()
        self._loading = asyncio.get_running_loop().create_task(load_coordinators(self.node))
        node_id, took_s = self.node.identity.node_id, time.monotonic() - started
        _log.info("broker %d listens on %s:%d after %.3f s", node_id, host, port, took_s)
        return host, port

    async def loaded(self) -> None:
        """Wait until every coordinator answers."""
        if self._loading is not None:
            await asyncio.shield(self._loading)

    async def import_handlers(self) -> None:
        """Import, while others are served, what the first request of each API would import. Only once it has started.

        A broker that has served for long may have no file left to open then, or find the files of another version.
        """
        assert self.node is not None
        assert self._dispatcher is not None
        await self.node.slices.run(self._dispatcher.load())

    @property
    def quiet_since_ms(self) -> int:
        """When a client has said or heard something last, by the broker's monotonic clock. Only once it has started."""
        assert self._listener is not None
        return self._listener.active_ms

    async def stop(self) -> None:
        """Stop in order: no more requests, everything flushed, the mark of a clean shutdown left.

        StorageError when the disk refuses a write; the broker has stopped nevertheless.
        """
        if self._listener is not None:
            await self._listener.close()
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._upkeep is not None:
            await self._upkeep.stop()
        if self._recovered is not None:
            await self._recovered.partitions.syncs.close()
        if self.node is not None:
            await self.node.slices.close()
            await self.node.events.close()
            self.node.timers.close()
        try:
            if self._recovered is not None:
                self._recovered.close()
        except StorageError as fault:
            raise StorageError(
                f"stopped without the mark of a clean stop, the next start checks the logs: {fault}"
            ) from None
        finally:
            self._disk.unlock()

    def _recover(self) -> Node:
        config, clock = self._config, self.clock
        self._recovered = recovered = recover(config, clock, self._disk, self._rng)
        timers = Timers(clock, asyncio.get_running_loop())
        return make_node(
            config, recovered.properties, clock, self._rng, timers, recovered.metadata, recovered.partitions
        )


def _told(host: str) -> str:
    """The host that clients are told: the machine's name when the listener is on every interface."""
    return os.uname().nodename if host in EVERYWHERE else host

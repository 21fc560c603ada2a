"""Puts the broker together: data directory, metadata, partitions, coordinators, listener, and its regular work."""

import asyncio
import logging
import os
import random
import time
from typing import Final

from ottla.base.clock import Clock, SystemClock
from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.broker.config import BrokerConfig
from ottla.broker.disk import Disk
from ottla.broker.handlers.dispatch import Dispatcher
from ottla.broker.listeners import EVERYWHERE
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.metadata.damage import refuse_damage
from ottla.broker.metadata.end_mark import EndMark
from ottla.broker.metadata.names import METADATA_TOPIC
from ottla.broker.metadata.properties import load_or_create
from ottla.broker.node import Node, expect_coordinators, load_coordinators, make_node
from ottla.broker.runtime.directories import must_hold_no_partitions
from ottla.broker.runtime.manifest import sealed_properties
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.timers import Timers
from ottla.broker.runtime.upkeep import Upkeep
from ottla.broker.server import Listener
from ottla.broker.storage import DirectoryDisk

_log = logging.getLogger(__name__)

#: The metadata log does not follow the broker's settings for topics. All topics of a request are one batch in it, and
#: there must be room for as many partitions as `base.limits` allows.
_METADATA_CONFIGS: Final = {"max.message.bytes": str(64 * 1_048_576), "segment.bytes": str(1_073_741_824)}


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
        self._clock = clock or SystemClock()
        self._rng = rng or random.SystemRandom()
        self._disk: Disk = disk or DirectoryDisk(config.data_dir)
        self._listener: Listener | None = None
        self._loading: asyncio.Task[None] | None = None
        self._upkeep: Upkeep | None = None
        self._metadata: ClusterMetadata | None = None
        self._partitions: Partitions | None = None
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
            self._listener = Listener(
                Dispatcher(self.node),
                self._clock,
                max_request_bytes=config.int("socket.request.max.bytes"),
                max_connections=config.int("max.connections"),
                max_idle_ms=config.int("connections.max.idle.ms"),
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
            config, self._clock, self.node.timers, self.node.slices, self.node.partitions, self._listener
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
        if self._partitions is not None:
            await self._partitions.syncs.close()
        if self.node is not None:
            await self.node.slices.close()
            self.node.events.close()
            self.node.timers.close()
        try:
            self._close_files()
        except StorageError as fault:
            raise StorageError(
                f"stopped without the mark of a clean stop, the next start checks the logs: {fault}"
            ) from None
        finally:
            self._disk.unlock()

    def _close_files(self) -> None:
        if self._metadata is None or self._partitions is None:
            return
        clean = False
        try:
            self._metadata.close()
            clean = True
        finally:
            self._partitions.close(clean=clean)

    def _recover(self) -> Node:
        config, clock, disk = self._config, self._clock, self._disk
        properties = load_or_create(
            disk,
            self._rng,
            node_id=config.int("node.id"),
            cluster_id=config.text("cluster.id"),
            sealed=sealed_properties(disk.own_files()),
        )
        folder = f"{METADATA_TOPIC}-0"
        is_whole = refuse_damage(disk, folder)
        partitions = Partitions(config, clock, disk, self._rng)
        log = partitions.open_log(TopicPartition(METADATA_TOPIC, 0), None, _METADATA_CONFIGS)
        if log.end_offset == 0:
            must_hold_no_partitions(disk)
        metadata = ClusterMetadata(log, EndMark(disk.open_folder(folder)), properties.node_id, clock)
        deleted_ids = metadata.load()
        partitions.recover(metadata.image, deleted_ids)
        metadata.mend_producer_ids(
            (each.producer_id for part in partitions.all() for each in part.log.active_producers()),
            is_whole=is_whole,
        )
        self._metadata, self._partitions = metadata, partitions
        timers = Timers(clock, asyncio.get_running_loop())
        return make_node(config, properties, clock, self._rng, timers, metadata, partitions)


def _told(host: str) -> str:
    """The host that clients are told: the machine's name when the listener is on every interface."""
    return os.uname().nodename if host in EVERYWHERE else host

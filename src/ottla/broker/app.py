"""Puts the broker together: data directory, metadata, partitions, coordinators, listener, and its regular work."""

import asyncio
import logging
import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from ottla.assign.server import ServerAssignor
from ottla.base.clock import Clock, SystemClock
from ottla.base.errors import OttlaError, StorageError
from ottla.base.secret import Secret
from ottla.broker.config import BrokerConfig
from ottla.broker.connections import Connections, limits_of
from ottla.broker.disk import Disk
from ottla.broker.handlers.dispatch import Dispatcher
from ottla.broker.listeners import EVERYWHERE, Endpoint
from ottla.broker.listeners import Listener as Configured
from ottla.broker.listening import Listener
from ottla.broker.node import Node, expect_coordinators, load_coordinators, make_node
from ottla.broker.recover import Recovered, recover
from ottla.broker.runtime.assigning import server_assignors
from ottla.broker.runtime.timers import Timers
from ottla.broker.runtime.upkeep import Upkeep
from ottla.broker.session import Session
from ottla.broker.storage import DirectoryDisk

if TYPE_CHECKING:
    from ottla.broker.authentication.sasl import Sasl

_log = logging.getLogger(__name__)


class CannotListenError(OttlaError):
    """An address cannot be had: it is in use, or not one of this machine."""


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
        self._dispatcher: Dispatcher | None = None
        self._connections = Connections(
            self.clock,
            limits=limits_of(config),
            max_idle_ms=config.int("connections.max.idle.ms"),
            max_queued_bytes=config.int("queued.max.request.bytes"),
        )
        self._listeners: list[Listener] = []
        self._sasl: list[Sasl] = []
        #: Users to be added at the start, with their passwords, if there are none of these names.
        self.first_users: Mapping[str, Secret] = {}
        #: Where each listener listens, by its name; known after `start`.
        self.bound: dict[str, Endpoint] = {}
        self._loading: asyncio.Task[None] | None = None
        self._electing: asyncio.Task[None] | None = None
        self._upkeep: Upkeep | None = None
        self._recovered: Recovered | None = None
        self.node: Node | None = None

    async def start(self) -> Endpoint:
        """Recover the data directory and listen. Returns the host and port of the first listener.

        Raises ConfigError before anything is touched if there is an assignor that cannot be used, StorageError for a
        directory that cannot be used, CannotListenError for an address that cannot be used.
        """
        started = time.monotonic()
        config = self._config
        assignors = server_assignors(config.list("group.consumer.assignors"))
        self._disk.lock()
        try:
            self.node = self._recover(assignors)
            self._make_up_elections(self.node)
            self._connections.limits.rate_of_address = self.node.image.quotas.of_address
            expect_coordinators(self.node)
            await self._listen(self.node)
        except BaseException:
            try:
                await self.stop()
            except StorageError as fault:
                _log.warning("%s", fault)
            raise
        connections = self._connections
        self._upkeep = Upkeep(config, self.clock, self.node.timers, self.node.slices, self.node.partitions, connections)
        self._upkeep.start()
        self._loading = asyncio.get_running_loop().create_task(load_coordinators(self.node))
        node_id, took_s = self.node.identity.node_id, time.monotonic() - started
        where = ", ".join(f"{name}://{bound}" for name, bound in self.bound.items())
        _log.info("broker %d listens on %s after %.3f s", node_id, where, took_s)
        return self.bound[config.listeners[0].name]

    def _make_up_elections(self, node: Node) -> None:
        """Before anybody can change a topic."""
        if self._recovered is not None and self._recovered.elections.are_owed:
            elections = self._recovered.elections
            making_up = elections.make_up(partial(node.topics.elect, elections))
            self._electing = asyncio.get_running_loop().create_task(making_up)

    async def _listen(self, node: Node) -> None:
        """Open every listener, in the order of the configuration. Nobody may come before all addresses are there."""
        config = self._config
        dispatch = self._dispatcher = Dispatcher(node)
        for each in config.listeners:
            name, endpoint, _, advertised = each
            listener = self._make_listener(dispatch, each)
            self._listeners.append(listener)
            for sasl in self._sasl[-1:] if each.protocol.has_sasl else ():
                await sasl.start()
            backlog = config.int("socket.listen.backlog.size")
            with _listening_on(endpoint):
                host, port = await listener.bind(endpoint.host, endpoint.port, backlog)
            self.bound[name] = Endpoint(host, port)
            told_port = advertised.port if advertised is not None and advertised.port else port
            node.identity.told[name] = Endpoint(_told((advertised or endpoint).host), told_port)
        for listener, each in zip(self._listeners, config.listeners, strict=True):
            with _listening_on(each.endpoint):
                await listener.listen()
        for each in config.listeners:
            if not each.endpoint.is_local and not config.asks_who_they_are(each):
                who = "does what ACLs allow User:ANONYMOUS" if node.access.is_on else "may read and change everything"
                _log.warning(
                    "listener %s (%s) can be reached from other machines and asks nobody who they are: "
                    "whoever reaches it %s (docs/security.md)",
                    each.name,
                    each.endpoint,
                    who,
                )

    def _make_listener(self, dispatch: Dispatcher, configured: Configured) -> Listener:
        listener = self._listener_of(dispatch, configured)
        if configured.protocol.has_sasl:
            from ottla.broker.authentication.sasl import Gate, Sasl

            assert self.node is not None
            secret = sha256(b"ottla" + self.node.identity.directory_id).digest()
            failed = partial(self._not_authenticated, self.node)
            sasl = Sasl(self._config, configured, self.node.image, self.clock, self._rng, secret=secret, failed=failed)
            self._sasl.append(sasl)
            listener.guard(partial(Gate, sasl), sasl.max_receive_bytes)
        return listener

    def _not_authenticated(self, node: Node, session: Session, mechanism: str, why: str) -> None:
        host = session.client_host
        self._connections.tell(host, f"{host} could not authenticate by listener {session.listener}: {why}")
        node.access.unauthenticated(session, mechanism, why)

    def _listener_of(self, dispatch: Dispatcher, configured: Configured) -> Listener:
        config, max_request_bytes = self._config, self._config.int("socket.request.max.bytes")
        if configured.protocol.has_tls:
            from ottla.broker.authentication.tls import ServerTls, tls_keys
            from ottla.broker.tls_listener import TlsListener

            tls = ServerTls(tls_keys(config, configured))
            listener = TlsListener(
                dispatch, self.clock, self._connections, name=configured.name, max_request_bytes=max_request_bytes
            )
            return listener.secure(tls)
        return Listener(
            dispatch, self.clock, self._connections, name=configured.name, max_request_bytes=max_request_bytes
        )

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
        return self._connections.active_ms

    async def stop(self) -> None:
        """Stop in order: no more requests, everything flushed, the mark of a clean shutdown left. No-op behind a start
        that has failed: it has ended in the same way.

        StorageError when the disk refuses a write; the broker has stopped nevertheless.
        """
        await self._end_connections()
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._electing is not None:
            self._electing.cancel()
            await asyncio.gather(self._electing, return_exceptions=True)
        if self._upkeep is not None:
            await self._upkeep.stop()
        recovered, self._recovered = self._recovered, None
        if recovered is not None:
            await recovered.partitions.syncs.close()
        if self.node is not None:
            await self.node.slices.close()
            self.node.searches.close()
            await self.node.events.close()
            self.node.timers.close()
        try:
            if recovered is not None:
                recovered.close(self._config.int("num.recovery.threads.per.data.dir"))
        except StorageError as fault:
            raise StorageError(
                f"stopped without the mark of a clean stop, the next start checks the logs: {fault}"
            ) from None
        finally:
            self._disk.unlock()

    async def _end_connections(self) -> None:
        """Return when nobody is served any more, nor will be."""
        for listener in self._listeners:
            listener.stop()
        self._connections.close()
        for sasl in self._sasl:
            await sasl.stop()
        for listener in self._listeners:
            await listener.stopped()
        await self._connections.ended()

    def _recover(self, assignors: Mapping[str, ServerAssignor]) -> Node:
        config, clock = self._config, self.clock
        self._recovered = recovered = recover(config, clock, self._disk, self._rng)
        if self.first_users:
            from ottla.broker.authentication.users import add_users

            add_users(recovered.metadata, self.first_users, self._rng)
        timers = Timers(clock, asyncio.get_running_loop())
        return make_node(
            config,
            recovered.properties,
            clock,
            self._rng,
            timers,
            recovered.metadata,
            recovered.partitions,
            assignors,
        )


@contextmanager
def _listening_on(endpoint: Endpoint) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise CannotListenError(f"cannot listen on {endpoint}: {fault.strerror or fault}") from None


def _told(host: str) -> str:
    """The host that clients are told: the machine's name when the listener is on every interface."""
    return os.uname().nodename if host in EVERYWHERE else host

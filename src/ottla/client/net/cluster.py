"""The cluster as a client sees it: connections to brokers, and metadata that is kept fresh.

One task asks for metadata: every `metadata.max.age.ms`, and after each `request_update`, which is called when something
that is known turns out to be out of date. `refreshed` waits for the next metadata. When no known broker can be reached,
the task tries the addresses of `bootstrap.servers` again (KIP-899).

Several clients may share a cluster, at once or one after the other. Give it to them as an argument, and close it
yourself after you have closed them.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from ottla.client.config import CommonConfig
from ottla.client.core.backoff import Backoff
from ottla.client.core.intents import Channel, CoordinatorKind
from ottla.client.core.metadata import ClusterSnapshot, Node, checked_topic
from ottla.client.core.negotiation import BrokerVersions
from ottla.client.core.tracked import Tracked
from ottla.client.errors import (
    AuthenticationError,
    ClientError,
    DisconnectedError,
    InternalError,
    RequestTimeoutError,
)
from ottla.client.net.authentication import Opener
from ottla.client.net.connection import Connection
from ottla.client.net.retry import Deadline, repeat
from ottla.client.net.supervisor import Supervisor
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

log = logging.getLogger("ottla.client")

T = TypeVar("T")
#: Called with the snapshots before and after a change.
Listener = Callable[[ClusterSnapshot, ClusterSnapshot], object]
#: Called with broker and channel when their connection has been lost or closed.
DisconnectListener = Callable[[int, Channel], object]


class _Peer:
    """The connection to one broker for one channel, and what is known of earlier attempts to open it."""

    def __init__(self, backoff: Backoff) -> None:
        self.backoff = backoff
        #: The earliest time for the next attempt to connect.
        self.not_before_s = 0.0
        self.connection: Connection | None = None
        #: The attempt that is under way.
        self.connecting: asyncio.Future[Connection] | None = None


class Cluster:
    """Connections and metadata. All methods belong to one event loop."""

    def __init__(self, config: CommonConfig, rng: random.Random, *, auto_create_topics: bool = False) -> None:
        self.config = config
        self.rng = rng
        self.snapshot = ClusterSnapshot()
        self.supervisor = Supervisor("the client's view of the cluster")
        #: Where coordinators are, for all clients that share this.
        self.coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._listeners: list[Listener] = []
        self._disconnect_listeners: list[DisconnectListener] = []
        self._tracked = Tracked(auto_create_topics=auto_create_topics)
        #: Brokers of `bootstrap.servers`; their ids are negative.
        self._bootstrap = [Node(-1 - i, h, p) for i, (h, p) in enumerate(config.bootstrap_addresses())]
        self._peers: dict[tuple[int, Channel], _Peer] = {}
        self._opener = Opener(config, rng, self.supervisor.spawn)
        #: Set when metadata is to be asked for.
        self._wanted = asyncio.Event()
        #: Those who wait in `refreshed`.
        self._waiters: list[asyncio.Future[None]] = []
        self._updater: asyncio.Task[None] | None = None
        self._last_error: ClientError | None = None
        self.supervisor.on_crash(self._crashed)

    async def start(self) -> None:
        """Begin to keep metadata. Does not wait for a broker. Raises an error if the cluster has ended."""
        self.supervisor.check()
        if self._updater is None:
            self._updater = self.supervisor.spawn(self._keep_metadata(), "ottla-metadata")
            self.request_update()

    async def close(self) -> None:
        """Ask for no more metadata, and close every connection. Idempotent."""
        await self.supervisor.close()
        self._disconnect_listeners.clear()
        for peer in list(self._peers.values()):
            if peer.connection is not None:
                peer.connection.close()

    def _crashed(self, failure: InternalError) -> None:
        for peer in list(self._peers.values()):
            if peer.connection is not None:
                peer.connection.abort(failure)

    # listeners

    def on_update(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after every change of the snapshot. Returns a function that removes the listener."""
        self._listeners.append(listener)
        return lambda: _remove(self._listeners, listener)

    def on_disconnect(self, listener: DisconnectListener) -> Callable[[], None]:
        """Call `listener` when a connection is lost or closed. Returns a function that removes the listener."""
        self._disconnect_listeners.append(listener)
        return lambda: _remove(self._disconnect_listeners, listener)

    # repeated attempts

    def backoff(self) -> Backoff:
        """Pauses from `retry.backoff.ms` to `retry.backoff.max.ms`."""
        return Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, self.rng)

    async def retrying(self, attempt: Callable[[], Awaitable[T]], *, what: str, timeout_ms: float) -> T:
        """Call `attempt` until it succeeds; ask for metadata after each failure. Raises what `repeat` raises."""
        return await repeat(
            attempt,
            what=what,
            deadline=Deadline(timeout_ms),
            backoff=self.backoff(),
            failed=lambda error: self.request_update(),
        )

    # connections

    def open_connection(self, node_id: int, channel: Channel = Channel.MAIN) -> Connection | None:
        """The open connection to a broker, if there is one."""
        peer = self._peers.get((node_id, channel))
        return peer.connection if peer is not None and peer.connection is not None and peer.connection.is_open else None

    async def connection(self, node_id: int, channel: Channel = Channel.MAIN) -> Connection:
        """An open connection to a broker; connects if there is none. Raises DisconnectedError, RequestTimeoutError."""
        connection = self.open_connection(node_id, channel)
        if connection is not None:
            return connection
        self.supervisor.check()
        peer = self._peer(node_id, channel)
        if peer.connecting is None:
            peer.connecting = self.supervisor.future()
            peer.connecting.add_done_callback(_retrieve_exception)
            self.supervisor.spawn(self._connect(node_id, channel, peer), f"ottla-connect-{node_id}")
        return await asyncio.shield(peer.connecting)

    async def request(
        self,
        node_id: int,
        api: ApiKey,
        message: tuple[Any, ...],
        *,
        timeout_ms: float | None = None,
        cap: int | None = None,
        least: int | None = None,
        channel: Channel = Channel.MAIN,
    ) -> Any:
        """Send `message` to a broker, in the highest version that both support, and return the decoded answer.

        Raises DisconnectedError, RequestTimeoutError, UnsupportedVersionError.
        """
        connection = await self.connection(node_id, channel)
        version = connection.choose(api, cap, least)
        if timeout_ms is None:
            timeout_ms = self.config.request_timeout_ms
        return await connection.send(api, version, message, timeout_ms)

    async def request_any(
        self, api: ApiKey, message: tuple[Any, ...], *, timeout_ms: float | None = None, cap: int | None = None
    ) -> Any:
        """Like `request`, to the broker with the fewest requests in flight."""
        return await self.request(self.least_loaded(), api, message, timeout_ms=timeout_ms, cap=cap)

    def least_loaded(self) -> int:
        """The broker to ask when any will do. Connected brokers with few requests in flight come first.

        While no broker is known, it is one of `bootstrap.servers`.
        """
        now = asyncio.get_running_loop().time()

        def cost(node_id: int) -> tuple[int, float, float]:
            connection = self.open_connection(node_id)
            if connection is not None:
                return 0, connection.in_flight, self.rng.random()
            waits = max(0.0, self._peer(node_id).not_before_s - now)
            return 1, waits, self.rng.random()

        return min(self._known_nodes(), key=cost)

    async def versions(self) -> BrokerVersions:
        """Versions and feature levels, from any broker."""
        return (await self.connection(self.least_loaded())).versions

    def _known_nodes(self) -> list[int]:
        return list(self.snapshot.nodes) or [node.node_id for node in self._bootstrap]

    def _peer(self, node_id: int, channel: Channel = Channel.MAIN) -> _Peer:
        peer = self._peers.get((node_id, channel))
        if peer is None:
            config = self.config
            backoff = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, self.rng)
            peer = self._peers[node_id, channel] = _Peer(backoff)
        return peer

    def _address(self, node_id: int) -> Node:
        known = self.snapshot.nodes.get(node_id)
        if known is None:
            known = next((node for node in self._bootstrap if node.node_id == node_id), None)
        if known is None:
            raise DisconnectedError(f"broker {node_id} is not in the cluster's metadata: its address is not known")
        return known

    async def _connect(self, node_id: int, channel: Channel, peer: _Peer) -> None:
        future = peer.connecting
        assert future is not None
        try:
            connection = await self._reach(node_id, channel, peer)
        except ClientError as error:
            peer.not_before_s = asyncio.get_running_loop().time() + peer.backoff.next_ms() / 1000
            peer.connecting = None
            if not isinstance(error, AuthenticationError):
                self.request_update()
            if not future.done():
                future.set_exception(error)
            return
        peer.backoff.succeeded()
        peer.connection, peer.connecting = connection, None
        if not future.done():
            future.set_result(connection)

    async def _reach(self, node_id: int, channel: Channel, peer: _Peer) -> Connection:
        wait_s = peer.not_before_s - asyncio.get_running_loop().time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        node = self._address(node_id)
        connection = await self._opener.open(node.host, node.port)
        if self._peers.get((node_id, channel)) is not peer:  # nobody would ever close it
            connection.close()
            raise DisconnectedError(f"broker {node_id} was forgotten: the client begins again from bootstrap.servers")
        connection.on_lost = partial(self._lost, node_id, channel)
        return connection

    def _lost(self, node_id: int, channel: Channel) -> None:
        for listener in list(self._disconnect_listeners):
            listener(node_id, channel)

    # metadata

    def track(self, topics: Iterable[str], *, by: object = None) -> bool:
        """Keep metadata of these topics, too, until `by` untracks them. Returns whether any of them is new.

        Without `by` nobody needs them: a topic is forgotten when a broker says that it is not there.
        With `auto_create_topics` the broker may create a topic that is not known, but only once for each call of
        `track`. So a client that no longer uses a topic does not create it again after it was deleted. Raises
        KafkaError, and tracks nothing, if no topic can have one of the names.
        """
        added = self._tracked.add({checked_topic(topic) for topic in topics}, self.snapshot.topics, by)
        if added:
            self.request_update()
        return added

    def untrack(self, topics: Iterable[str], *, by: object = None) -> None:
        """`by` does not need these topics any more: forget those that nobody else has tracked.

        While all topics are followed none is forgotten: a pattern has to find what it matches.
        """
        self._forget(self._tracked.remove(topics, by))

    def follow_all_topics(self, wanted: bool, *, by: object) -> None:
        """Keep metadata of all topics, not only of those that are tracked, as long as anybody wants that."""
        if wanted:
            self._tracked.follow_all(by)
        elif self._tracked.unfollow_all(by):
            # nobody will ask for these again, so a new leader would never be heard of
            self._forget(self.snapshot.topics.keys() - self._tracked.topics)

    def leave(self, by: object) -> None:
        """`by` has ended: it needs no topic any more, and does not follow all of them.

        What nobody else needs is forgotten if no broker describes it. The others stay, for whoever asks next.
        """
        self._forget(self._tracked.leave(by, self.snapshot.topics))
        self.follow_all_topics(False, by=by)

    @contextlib.contextmanager
    def tracking(self, topics: Iterable[str]) -> Iterator[bool]:
        """A block that needs these topics. Its value is whether any of them is new. Raises what `track` raises."""
        block = object()
        is_new = self.track(topics, by=block)
        try:
            yield is_new
        finally:
            self.leave(block)

    def _forget(self, topics: Collection[str]) -> None:
        if topics and not self._tracked.follows_all:
            self.learn(self.snapshot.without(topics))

    def learn_topics(self, topic_ids: Collection[bytes]) -> None:
        """Ask once for the topics that have these ids, which nobody tracks yet; does not wait."""
        self.supervisor.spawn(self._learn_topics(frozenset(topic_ids)), "ottla-learn-topics")

    async def _learn_topics(self, topic_ids: frozenset[bytes]) -> None:
        topics = tuple(MetadataRequestTopic(topic_id, None) for topic_id in sorted(topic_ids))
        try:
            response = await self._ask_for_topics(topics, create=False)
        except ClientError as error:
            log.debug("topics could not be looked up by id: %s", error)
            return
        self.learn(self.snapshot.updated(response, whole=False))

    def request_update(self) -> None:
        """Ask for metadata soon; does not wait."""
        self._wanted.set()

    async def refreshed(self, timeout_ms: float | None = None) -> None:
        """Wait for metadata that is asked for from now on. Raises RequestTimeoutError, AuthenticationError."""
        self.supervisor.check()
        if timeout_ms is None:
            timeout_ms = self.config.request_timeout_ms
        waiter = self.supervisor.future()
        self._waiters.append(waiter)
        self._wanted.set()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter
        except TimeoutError as error:
            if isinstance(error, ClientError):
                raise
            why = self._last_error or self._opener.waits_for_token
            raise RequestTimeoutError(
                f"no broker sent metadata within {timeout_ms:.0f} ms; bootstrap.servers is "
                f"{', '.join(self.config.bootstrap_servers)}{f': {why}' if why else ''}"
            ) from self._last_error

    async def ensure_metadata(self, timeout_ms: float) -> ClusterSnapshot:
        """The snapshot; waits while no broker is known yet. Raises RequestTimeoutError."""
        if not self.snapshot.nodes:
            await self.refreshed(timeout_ms)
        return self.snapshot

    async def look_up(self, topics: Iterable[str] | None) -> ClusterSnapshot:
        """A snapshot with these topics (None: all), as a broker describes them now. One attempt. It is not kept.

        Raises KafkaError for a name that no topic can have.
        """
        wanted = None if topics is None else frozenset(checked_topic(topic) for topic in topics)
        return self.snapshot.updated(await self._ask_for_metadata(wanted, create=False), whole=True)

    def learn(self, snapshot: ClusterSnapshot) -> None:
        """Replace the snapshot and call the listeners. Disconnect from brokers whose address has changed."""
        before, self.snapshot = self.snapshot, snapshot
        for (node_id, _), peer in list(self._peers.items()):
            known, node = before.nodes.get(node_id), snapshot.nodes.get(node_id)
            if known is None or node is None or peer.connection is None:
                continue
            if (known.host, known.port) != (node.host, node.port):
                peer.connection.abort(DisconnectedError(f"broker {node_id} has moved to {node.host}:{node.port}"))
        for listener in list(self._listeners):
            listener(before, snapshot)

    async def _keep_metadata(self) -> None:
        backoff, missing = self.backoff(), self.backoff()
        while True:
            wait_ms: float = self.config.metadata_max_age_ms
            if self._misses_topics():
                wait_ms = min(missing.next_ms(), wait_ms)
            else:
                missing.succeeded()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wanted.wait()
            self._wanted.clear()
            self._close_idle()
            waiters, self._waiters = self._waiters, []
            try:
                await self._update_metadata()
            except ClientError as error:
                log.debug("metadata could not be fetched: %s", error)
                self._last_error = error
                self._waiters += waiters
                if isinstance(error, AuthenticationError):  # it does not get better by itself
                    waiters, self._waiters = self._waiters, []
                    for waiter in [each for each in waiters if not each.done()]:
                        waiter.set_exception(error)
                else:
                    self._wanted.set()
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            backoff.succeeded()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
            # a short pause, so that many calls of `request_update` become few requests
            if not self._waiters:
                await asyncio.sleep(self.config.retry_backoff_ms / 1000 * 0.1)

    def _misses_topics(self) -> bool:
        """Whether a topic that somebody needs may be described soon: it is being made, or the broker that answered has
        not heard of it yet."""
        errors, tracked = self.snapshot.topic_errors.items(), self._tracked
        return any(code.retriable and (tracked.follows_all or topic in tracked.topics) for topic, code in errors)

    async def _update_metadata(self) -> None:
        whole = self._tracked.follows_all
        to_create = frozenset(self._tracked.to_create)
        if to_create:
            await self._ask_for(to_create, create=True)
        others = frozenset(self._tracked.topics - to_create)
        if whole or others or not to_create:
            await self._ask_for(None if whole else others, create=False)

    async def _ask_for(self, topics: frozenset[str] | None, *, create: bool) -> None:
        response = await self._ask_for_metadata(topics, create=create)
        self._last_error = None
        snapshot = self.snapshot.updated(response, whole=topics is None)
        self._tracked.to_create -= snapshot.topics.keys()
        asked = snapshot.topics.keys() if topics is None else topics
        self._tracked.drop(asked - snapshot.topics.keys())
        if not self._tracked.follows_all:  # some may have been untracked while the answer was on its way
            snapshot = snapshot.without(asked - self._tracked.topics)
        self.learn(snapshot)

    async def _ask_for_metadata(self, topics: frozenset[str] | None, *, create: bool) -> MetadataResponse:
        named = None if topics is None else tuple(MetadataRequestTopic(name=name) for name in sorted(topics))
        return await self._ask_for_topics(named, create=create)

    async def _ask_for_topics(
        self, topics: tuple[MetadataRequestTopic, ...] | None, *, create: bool
    ) -> MetadataResponse:
        response = await self._ask_somebody(MetadataRequest(topics=topics, allow_auto_topic_creation=create))
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._forget_nodes()
            raise DisconnectedError("the broker has told the client to begin again from bootstrap.servers")
        if not response.brokers:
            raise DisconnectedError("the broker's metadata names no broker: it does not know its cluster yet")
        return response

    async def _ask_somebody(self, request: MetadataRequest) -> MetadataResponse:
        candidates = [self.least_loaded()]
        if self.config.metadata_recovery_strategy == "rebootstrap":
            candidates += [n.node_id for n in self._bootstrap if n.node_id not in candidates]
        last: ClientError | None = None
        for node_id in candidates:
            try:
                response: MetadataResponse = await self.request(node_id, ApiKey.METADATA, request)
            except ClientError as error:
                if isinstance(error, AuthenticationError):
                    raise
                last = error
            else:
                return response
        raise last or DisconnectedError("no broker is known")

    def _forget_nodes(self) -> None:
        for peer in list(self._peers.values()):
            if peer.connection is not None:
                peer.connection.close()
        self._peers.clear()
        self.snapshot = self.snapshot._replace(nodes={})

    def _close_idle(self) -> None:
        """Close connections that were not used for `connections.max.idle.ms`, and those to `bootstrap.servers` once
        the brokers are known."""
        idle_ms = self.config.connections_max_idle_ms
        now = asyncio.get_running_loop().time()
        for (node_id, _), peer in list(self._peers.items()):
            connection = peer.connection
            if connection is None or connection.in_flight:
                continue
            unused_ms = (now - connection.last_used_s) * 1000
            if 0 <= idle_ms < unused_ms or (node_id < 0 and self.snapshot.nodes):
                connection.close()
                peer.connection = None


def _remove(listeners: list[T], listener: T) -> None:
    if listener in listeners:
        listeners.remove(listener)


def _retrieve_exception(connecting: "asyncio.Future[Connection]") -> None:
    """Callers that wait get the exception. If none waits any more, asyncio would log it as never retrieved."""
    if not connecting.cancelled():
        connecting.exception()

"""Where the coordinators of groups and transactions are (SPEC G1). They are found once, and again when they move."""

import asyncio
from typing import Any

from ottla.client.core.intents import COORDINATOR_MOVED, Channel, Coordinator, CoordinatorKind
from ottla.client.core.metadata import Node
from ottla.client.errors import ClientError, DisconnectedError, IncompleteAnswerError, raise_for
from ottla.client.net.cluster import Cluster
from ottla.client.net.connection import Connection
from ottla.wire.apis import ApiKey
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse


class Coordinators:
    """Finds coordinators and sends requests to them."""

    def __init__(self, cluster: Cluster, channel: Channel = Channel.MAIN) -> None:
        self._cluster = cluster
        self._channel = channel
        self._known = cluster.coordinators
        #: Lookups that are under way. Whoever needs the same coordinator waits for the same lookup.
        self._lookups: dict[tuple[CoordinatorKind, str], asyncio.Future[int]] = {}

    async def find(self, kind: CoordinatorKind, key: str) -> int:
        """Node id of the coordinator. One attempt: raises a retriable error while there is none.

        Callers who stop waiting do not end the lookup. Else many short calls would never learn the answer.
        """
        node_id = self._known.get((kind, key))
        if node_id is not None:
            return node_id
        lookup = self._lookups.get((kind, key))
        if lookup is None:
            supervisor = self._cluster.supervisor
            lookup = self._lookups[kind, key] = supervisor.future()
            supervisor.spawn(self._look_up(kind, key, lookup), "ottla-find-coordinator")
        return await asyncio.shield(lookup)

    def open_connection(self, kind: CoordinatorKind, key: str, channel: Channel) -> Connection | None:
        """The open connection to the coordinator, if it is known who that is, and there is one."""
        node_id = self._known.get((kind, key))
        return None if node_id is None else self._cluster.open_connection(node_id, channel)

    async def _look_up(self, kind: CoordinatorKind, key: str, lookup: "asyncio.Future[int]") -> None:
        try:
            node_id = await self._ask(kind, key)
        except ClientError as error:
            if not lookup.done():
                lookup.set_exception(error)
                lookup.exception()  # its callers may all have stopped waiting
        else:
            self._known[kind, key] = node_id
            if not lookup.done():
                lookup.set_result(node_id)
        finally:
            if self._lookups.get((kind, key)) is lookup:
                del self._lookups[kind, key]

    async def _ask(self, kind: CoordinatorKind, key: str) -> int:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
        response: FindCoordinatorResponse = await self._cluster.request_any(ApiKey.FIND_COORDINATOR, request)
        for found in response.coordinators:
            if found.key == key:
                raise_for(found.error_code, found.error_message)
                self._learn(Node(found.node_id, found.host, found.port))
                return found.node_id
        raise IncompleteAnswerError(f"the broker says nothing about the coordinator of {key}")

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """Find this coordinator again before the next request."""
        self._known.pop((kind, key), None)
        self._lookups.pop((kind, key), None)

    async def request(
        self,
        kind: CoordinatorKind,
        key: str,
        api: ApiKey,
        message: tuple[Any, ...],
        *,
        timeout_ms: float | None = None,
        cap: int | None = None,
        least: int | None = None,
        channel: Channel | None = None,
    ) -> Any:
        """Send `message` to the coordinator. When the connection fails, forget where the coordinator is.

        This does not look at error codes in the answer: give them to `check`.
        """
        node_id = await self.find(kind, key)
        try:
            return await self._cluster.request(
                node_id, api, message, timeout_ms=timeout_ms, cap=cap, least=least, channel=channel or self._channel
            )
        except ClientError as error:
            self.failed(Coordinator(kind, key), error)
            raise

    def failed(self, coordinator: Coordinator, error: Exception) -> None:
        """A request to it was not answered. When that was because of the connection, forget where it is."""
        if isinstance(error, DisconnectedError | TimeoutError):
            self.forget(coordinator.kind, coordinator.key)

    def check(self, kind: CoordinatorKind, key: str, code: int, message: str | None = None) -> None:
        """Raise the error that `code` means. Forget where the coordinator is if `code` says that it has moved."""
        if code in COORDINATOR_MOVED:
            self.forget(kind, key)
        raise_for(code, message)

    def _learn(self, node: Node) -> None:
        snapshot = self._cluster.snapshot
        if node.node_id not in snapshot.nodes:
            self._cluster.learn(snapshot._replace(nodes={**snapshot.nodes, node.node_id: node}))

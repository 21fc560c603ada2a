"""Where the coordinators of groups and transactions are (SPEC G1). They are found once, and again when they move."""

from typing import Any

from ottla.client.core.intents import COORDINATOR_MOVED, Channel, CoordinatorKind
from ottla.client.core.metadata import Node
from ottla.client.errors import DisconnectedError, IncompleteAnswerError, raise_for
from ottla.client.net.cluster import Cluster
from ottla.wire.apis import ApiKey
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse


class Coordinators:
    """Finds coordinators and sends requests to them."""

    def __init__(self, cluster: Cluster, channel: Channel = Channel.MAIN) -> None:
        self._cluster = cluster
        self._channel = channel
        self._known: dict[tuple[CoordinatorKind, str], int] = {}

    async def find(self, kind: CoordinatorKind, key: str) -> int:
        """Node id of the coordinator. One attempt: raises a retriable error while there is none."""
        node_id = self._known.get((kind, key))
        if node_id is not None:
            return node_id
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
        response: FindCoordinatorResponse = await self._cluster.request_any(ApiKey.FIND_COORDINATOR, request)
        for found in response.coordinators:
            if found.key == key:
                raise_for(found.error_code, found.error_message)
                self._learn(Node(found.node_id, found.host, found.port))
                self._known[kind, key] = found.node_id
                return found.node_id
        raise IncompleteAnswerError(f"the broker says nothing about the coordinator of {key}")

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """Find this coordinator again before the next request."""
        self._known.pop((kind, key), None)

    async def request(
        self,
        kind: CoordinatorKind,
        key: str,
        api: ApiKey,
        message: tuple[Any, ...],
        *,
        timeout_ms: float | None = None,
        cap: int | None = None,
        channel: Channel | None = None,
    ) -> Any:
        """Send `message` to the coordinator. When the connection fails, forget where the coordinator is.

        This does not look at error codes in the answer: give them to `check`.
        """
        node_id = await self.find(kind, key)
        try:
            return await self._cluster.request(
                node_id, api, message, timeout_ms=timeout_ms, cap=cap, channel=channel or self._channel
            )
        except (DisconnectedError, TimeoutError):
            self.forget(kind, key)
            raise

    def check(self, kind: CoordinatorKind, key: str, code: int, message: str | None = None) -> None:
        """Raise the error that `code` means. Forget where the coordinator is if `code` says that it has moved."""
        if code in COORDINATOR_MOVED:
            self.forget(kind, key)
        raise_for(code, message)

    def _learn(self, node: Node) -> None:
        snapshot = self._cluster.snapshot
        if node.node_id not in snapshot.nodes:
            self._cluster.learn(snapshot._replace(nodes={**snapshot.nodes, node.node_id: node}))

"""What all admin calls use: the cluster, its coordinators, and one way to retry."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.config.admin import admin_config
from ottla.client.core.intents import CoordinatorKind
from ottla.client.core.metadata import NO_LEADER, ClusterSnapshot
from ottla.client.errors import DisconnectedError, IllegalStateError, KafkaError
from ottla.client.net.cluster import Cluster
from ottla.client.net.coordinators import Coordinators
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

T = TypeVar("T")
SelfT = TypeVar("SelfT", bound="AdminBase")


class AdminBase:
    """Connection and retries of the admin client."""

    def __init__(self, config: Mapping[str, object]) -> None:
        """Raises ConfigError. Nothing is connected yet."""
        self.config = admin_config(config)
        self._cluster = Cluster(self.config, random.Random())
        self._coordinators = Coordinators(self._cluster)
        self._closed = False

    async def start(self) -> None:
        """Wait until the cluster is known. May be called again; every call does it too. Raises RequestTimeoutError."""
        if self._closed:
            raise IllegalStateError("the admin client is closed")
        await self._cluster.start()
        await self._cluster.ensure_metadata(self.config.default_api_timeout_ms)

    async def close(self) -> None:
        """Disconnect. Idempotent."""
        self._closed = True
        await self._cluster.close()

    def unfinished(self) -> str:
        """Nothing is lost with an admin client."""
        return ""

    async def abandon(self) -> str:
        """Close a client that the user did not close."""
        await self.close()
        return ""

    async def __aenter__(self: SelfT) -> SelfT:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _retry(self, attempt: Callable[[], Awaitable[T]], what: str, timeout_ms: float | None = None) -> T:
        await self.start()
        return await self._cluster.retrying(
            attempt, what=what, timeout_ms=timeout_ms or self.config.default_api_timeout_ms
        )

    async def _ask_controller(self, api: ApiKey, message: tuple[Any, ...]) -> Any:
        """The controller's answer. Any broker can be asked: it passes the request on (KIP-590)."""
        snapshot = self._cluster.snapshot
        known = snapshot.controller_id in snapshot.nodes
        node_id = snapshot.controller_id if known else self._cluster.least_loaded()
        return await self._cluster.request(node_id, api, message)

    async def _ask_coordinator(self, kind: CoordinatorKind, key: str, api: ApiKey, message: tuple[Any, ...]) -> Any:
        return await self._coordinators.request(kind, key, api, message)

    async def _leader(self, tp: TopicPartition) -> int:
        """Node id of a partition's leader. Raises a retriable error while there is none."""
        self._cluster.track([tp.topic])
        if self._cluster.snapshot.leader(tp) == NO_LEADER:
            await self._cluster.refreshed()
        leader = self._cluster.snapshot.leader(tp)
        if leader == NO_LEADER:
            code = self._cluster.snapshot.topic_errors.get(tp.topic, ErrorCode.LEADER_NOT_AVAILABLE)
            raise KafkaError.of(code, str(tp))
        return leader

    async def _ask_everybody(self, api: ApiKey, message: tuple[Any, ...]) -> list[Any]:
        """Every broker's answer."""
        nodes = list(self._cluster.snapshot.nodes)
        return await asyncio.gather(*(self._cluster.request(node_id, api, message) for node_id in nodes))

    async def _fresh_snapshot(
        self, *, all_topics: bool = False, topics: frozenset[str] = frozenset()
    ) -> ClusterSnapshot:
        """Metadata that the cluster has sent after this call."""
        self._cluster.all_topics = all_topics
        self._cluster.track(topics)
        await self._cluster.refreshed()
        if not self._cluster.snapshot.nodes:
            raise DisconnectedError("no broker is known")
        return self._cluster.snapshot

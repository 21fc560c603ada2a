"""What all admin calls use: requests that are repeated, on an own cluster or on a shared one."""

import random
from collections.abc import Mapping
from types import TracebackType
from typing import TypeVar

from ottla.client.config.admin import admin_config
from ottla.client.errors import IllegalStateError
from ottla.client.net.cluster import Cluster
from ottla.client.net.requests import Requests

SelfT = TypeVar("SelfT", bound="AdminBase")


class AdminBase:
    """How the admin client starts and ends."""

    def __init__(
        self, config: Mapping[str, object], *, cluster: Cluster | None = None, rng: random.Random | None = None
    ) -> None:
        """Raises ConfigError. Nothing is connected yet.

        A `cluster` is shared: the admin client does not close it. With `rng` a test controls chance.
        """
        self.config = admin_config(config)
        self._shares_cluster = cluster is not None
        self._cluster = cluster or Cluster(self.config, rng or random.Random())
        self._requests = Requests(self._cluster, "the admin client", self.config.default_api_timeout_ms)

    async def start(self) -> None:
        """Wait until the cluster is known. Every call does this, too. May be repeated. Raises RequestTimeoutError."""
        await self._requests.start()

    async def close(self) -> None:
        """Disconnect. Calls that still wait raise IllegalStateError. Idempotent."""
        await self._requests.close(IllegalStateError("the admin client is closed"))
        if not self._shares_cluster:
            await self._cluster.close()

    def unfinished(self) -> str:
        """What would be lost if the process ended now, in words: nothing."""
        return ""

    async def abandon(self) -> str:
        """Close it because the user did not. Returns what was lost: nothing."""
        await self.close()
        return ""

    async def __aenter__(self: SelfT) -> SelfT:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

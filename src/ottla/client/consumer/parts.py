"""The parts of a consumer that need a running loop, and who tells whom."""

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ottla.assign import Assignor
from ottla.base.types import TopicPartition
from ottla.client.config.consumer import ConsumerConfig
from ottla.client.consumer.callbacks import Callbacks
from ottla.client.consumer.commits import Commits
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.membership import Membership
from ottla.client.consumer.resets import OffsetReset, Resets
from ottla.client.core.consumer.fetch_buffer import FetchBuffer
from ottla.client.core.consumer.fetched import Decoding
from ottla.client.core.consumer.positions import Positions
from ottla.client.core.consumer.subscription import Subscription
from ottla.client.core.group_member import GroupMember
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.client.net.cluster import Cluster
from ottla.client.net.coordinators import Coordinators


class Shared(NamedTuple):
    """What all parts look at."""

    cluster: Cluster
    coordinators: Coordinators
    subscription: Subscription
    positions: Positions
    buffer: FetchBuffer


class Parts:
    """Fetcher, resets, commits and membership of one consumer, tied together."""

    def __init__(
        self,
        shared: Shared,
        config: ConsumerConfig,
        assignors: list[Assignor],
        decoding: Decoding,
        callbacks: Callbacks,
        *,
        committed: Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, OffsetAndMetadata]]] | None,
        news: Callable[[], None],
        changed: Callable[[], None],
        reset: Callable[[OffsetReset], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`news`: poll should look; `changed`: so should fetcher and resets; `failed`: poll should raise."""
        cluster, coordinators, subscription, positions, buffer = shared
        self.fetcher = Fetcher(
            cluster,
            positions,
            buffer,
            decoding,
            config,
            news=news,
            out_of_range=lambda state: self.resets.out_of_range(state),
            failed=failed,
        )
        self.resets = Resets(
            cluster,
            positions,
            config,
            now_ms=lambda: time.time_ns() // 1_000_000,
            committed=committed,
            happened=reset,
            done=changed,
            failed=failed,
        )
        self.commits = Commits(cluster, coordinators, self._member, subscription, positions, config, callbacks)
        self.membership = Membership(
            cluster,
            coordinators,
            subscription,
            positions,
            config,
            assignors,
            callbacks,
            auto_commit=self.commits.before_giving_up,
            changed=changed,
            failed=failed,
        )

    def _member(self) -> GroupMember:
        return self.membership.member

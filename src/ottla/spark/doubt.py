"""Whether a broker that says that records are gone may be wrong.

A leader that was deposed, and has not heard of it, has a log that ends where its successor's goes on; it says that
offsets behind its end do not exist. A broker that is cut off from its controller does not know topics and partitions
that were made since. Both may go on for as long as metadata may be out of date, so for that long what they say is asked
again, with fresh metadata. What can only have been true, and stays so, is no doubt: that the log begins later.

A partition with a single replica has no other leader: there a loss is believed at once.
"""

import asyncio
from collections.abc import Iterable

from ottla.base.types import TopicPartition
from ottla.client.net.cluster import Cluster


class Doubt:
    """One doubt, from the first bad news on. Belongs to the cluster's loop."""

    def __init__(self, cluster: Cluster, lasts_s: float) -> None:
        self._cluster = cluster
        self._lasts_s = lasts_s
        self._since_s: float | None = None

    def holds(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether to ask again, after a pause, since bad news of `partitions` has come. It asks for metadata, too."""
        snapshot = self._cluster.snapshot
        several = len(snapshot.nodes) > 1
        if not any(snapshot.may_have_another_leader(tp) or (several and not snapshot.has(tp)) for tp in partitions):
            return False
        now_s = asyncio.get_running_loop().time()
        self._since_s = now_s if self._since_s is None else self._since_s
        self._cluster.request_update()
        return now_s - self._since_s < self._lasts_s

    async def holds_after_a_pause(self, partitions: Iterable[TopicPartition]) -> bool:
        """`holds`, and the pause."""
        if not self.holds(partitions):
            return False
        await asyncio.sleep(self._cluster.config.retry_backoff_max_ms / 1000)
        return True

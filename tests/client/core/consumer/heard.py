"""What the user's rebalance callbacks hear, for tests of any kind of group."""

from ottla.base.types import TopicPartition
from tests.client.core.consumer.rig import Rig


class Heard:
    """Which callback was called, and with which partitions."""

    def __init__(self) -> None:
        self.said: list[tuple[str, list[TopicPartition]]] = []

    def subscribe(self, rig: Rig, *topics: str) -> None:
        """The user subscribes, with all three callbacks."""
        rig.subscribe(
            *topics,
            on_assigned=lambda tps: self.said.append(("assigned", tps)),
            on_revoked=lambda tps: self.said.append(("revoked", tps)),
            on_lost=lambda tps: self.said.append(("lost", tps)),
        )

"""What a world needs of those who serve its clients: the modelled cluster, or the real broker."""

from collections import Counter
from collections.abc import Sequence, Set
from typing import Protocol

from ottla.base.types import TopicPartition
from sim.check import Anomaly, LogRecord, Told


class Served(Protocol):
    """The brokers of a world."""

    #: What happened how often.
    counts: Counter[str]
    #: What the brokers' own checks have found.
    anomalies: list[Anomaly]

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers`."""
        ...

    @property
    def lost(self) -> Set[str]:
        """Records that may be gone although they were acknowledged, by value: a loss of power has taken them."""
        ...

    @property
    def rules(self) -> object:
        """What these brokers are like, for the history."""
        ...

    async def start(self) -> None:
        """Start every broker."""
        ...

    async def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic of the users'."""
        ...

    def calm(self) -> None:
        """The faults are over."""
        ...

    def healed(self) -> None:
        """A way through the network is open again."""
        ...

    @property
    def compacts(self) -> bool:
        """Whether the users' topics are compacted: then each record needs a key, and aborted ones may go."""
        ...

    # what the checkers look at in the end

    def records(self, tp: TopicPartition) -> list[LogRecord]:
        """What the partition holds."""
        ...

    def hanging(self, tp: TopicPartition) -> int | None:
        """The first offset of an open transaction in the partition, or None."""
        ...

    def judge(self, facts: Sequence[Told]) -> list[Anomaly]:
        """What the checkers find, less what damaged files explain."""
        ...

    def behind_loss(self, tp: TopicPartition, offset: int) -> int | None:
        """Where to go on behind what cannot be read at `offset`; None if no damaged file has taken any of `tp`."""
        ...

    def deleted_below(self, tp: TopicPartition) -> int:
        """Records below this offset may have been deleted."""
        ...

    def generation(self, group: str) -> int | None:
        """The generation of the group that the history was told last; None where none is ever counted again."""
        ...

    def positions(self, group: str) -> dict[TopicPartition, int] | None:
        """The group's committed offsets; None when no broker coordinates it."""
        ...

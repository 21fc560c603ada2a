"""What happens to a consumer, as `consumer.events()` tells it: the same events in both protocols of groups.

Unlike a callback an event asks for nothing and can be read at any time. A buffer keeps the newest until somebody takes
them, and says how many it had to drop. Times are seconds of the monotonic clock.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, TypeAlias

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.offset_reset import OffsetReset

#: Events that wait to be taken: hours of a group that rebalances every minute, and some hundred kilobytes at most
#: for a consumer with few partitions.
MAX_WAITING: Final = 1_000


class GenerationJoined(NamedTuple):
    """This consumer is a member of a generation of its group; in the consumer protocol (KIP-848), of an epoch."""

    member_id: str
    generation_id: int


class PartitionsAssigned(NamedTuple):
    """Partitions that are new; `total` is how many the consumer has now."""

    partitions: tuple[TopicPartition, ...]
    total: int


class PartitionsRevoked(NamedTuple):
    """Partitions were given up in order: what was read of them could still be committed."""

    partitions: tuple[TopicPartition, ...]


class PartitionsLost(NamedTuple):
    """Partitions were taken away: other members may have had them already, so nothing could be committed."""

    partitions: tuple[TopicPartition, ...]


class Expelled(NamedTuple):
    """The group goes on without this consumer, which did not want to leave. `reason` is for people."""

    reason: str


class Rebalanced(NamedTuple):
    """A rebalance is over for this consumer.

    `duration_s`: from its beginning, or the first news of it in the consumer protocol, until the new assignment was
    taken over. An eager consumer reads nothing meanwhile.
    """

    generation_id: int
    duration_s: float


class EventsDropped(NamedTuple):
    """So many events, older than those that follow, were not taken in time."""

    dropped: int


ConsumerEvent: TypeAlias = (
    GenerationJoined
    | PartitionsAssigned
    | PartitionsRevoked
    | PartitionsLost
    | Expelled
    | Rebalanced
    | OffsetReset
    | EventsDropped
)


class ConsumerEvents:
    """The newest events that nobody has taken.

    One thread adds, and another one may take: that of a blocking consumer's user. So what was added is counted after
    it can be seen, and what is missing is what was counted and not found.
    """

    def __init__(self) -> None:
        self._waiting: deque[ConsumerEvent] = deque(maxlen=MAX_WAITING)
        self._added = self._told = 0

    def add(self, event: ConsumerEvent) -> None:
        """It has happened."""
        self._waiting.append(event)
        self._added += 1

    def take(self) -> list[ConsumerEvent]:
        """All that has happened since the last call, the oldest first."""
        added, found = self._added, list[ConsumerEvent]()
        while self._waiting:
            found.append(self._waiting.popleft())
        dropped = max(0, added - self._told - len(found))
        self._told += len(found) + dropped
        return [EventsDropped(dropped), *found] if dropped else found

"""What a consumer wants to read: topics by name, by pattern, or partitions by hand. Only one of the three at a time."""

import re
from collections.abc import Callable, Iterable
from enum import Enum

from ottla.base.types import TopicPartition
from ottla.client.core.metadata import ClusterSnapshot, checked_topic
from ottla.client.errors import IllegalStateError

#: Hears of partitions that come or go; may be a coroutine function in asyncio.
RebalanceCallback = Callable[[list[TopicPartition]], object]


class Kind(Enum):
    """How partitions are chosen."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    BY_HAND = "by hand"


class Subscription:
    """The choice, and the callbacks that go with it."""

    def __init__(self) -> None:
        self.kind = Kind.NONE
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.on_assigned: RebalanceCallback | None = None
        self.on_revoked: RebalanceCallback | None = None
        self.on_lost: RebalanceCallback | None = None

    @property
    def by_group(self) -> bool:
        """Whether the group's coordinator gives the partitions."""
        return self.kind in (Kind.TOPICS, Kind.PATTERN)

    def subscribe(self, wanted: Iterable[str] | re.Pattern[str]) -> None:
        """Read topics, or whatever topics match; replaces what was subscribed. Raises IllegalStateError."""
        if self.kind is Kind.BY_HAND:
            raise IllegalStateError("partitions were assigned by hand: call unsubscribe() before subscribe()")
        if isinstance(wanted, re.Pattern):
            if not isinstance(wanted.pattern, str):
                raise TypeError(f"topics have names of type str, which {wanted!r} cannot match")
            self.kind, self.pattern, self.topics = Kind.PATTERN, wanted, frozenset()
            return
        if isinstance(wanted, str):
            raise TypeError("subscribe() takes a list of topics, or a compiled pattern; not a str")
        topics = frozenset(checked_topic(topic) for topic in wanted)
        self.kind, self.pattern, self.topics = Kind.TOPICS, None, topics

    def assign(self) -> None:
        """Partitions are chosen by hand. Raises IllegalStateError."""
        if self.by_group:
            raise IllegalStateError("topics are subscribed: call unsubscribe() before assign()")
        self.kind = Kind.BY_HAND

    def clear(self) -> None:
        """Read nothing."""
        self.__init__()  # type: ignore[misc]

    def match(self, snapshot: ClusterSnapshot, *, exclude_internal: bool) -> bool:
        """Take up the topics that match the pattern now; says whether they have changed."""
        if self.pattern is None:
            return False
        matched = frozenset(
            name
            for name, topic in snapshot.topics.items()
            if self.pattern.fullmatch(name) and not (exclude_internal and topic.is_internal)
        )
        changed = matched != self.topics
        self.topics = matched
        return changed

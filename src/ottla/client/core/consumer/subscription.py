"""What a consumer reads: topics by name, topics by pattern, or partitions by hand; one of the three at a time."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ottla.base.config import sendable
from ottla.base.types import TopicPartition
from ottla.client.core.metadata import ClusterSnapshot, checked_topic
from ottla.client.errors import IllegalStateError

#: Called with the partitions that come or go. In asyncio it may be a coroutine function.
RebalanceCallback = Callable[[list[TopicPartition]], object]


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A pattern that the brokers match against the names of all topics, in the syntax of RE2 (KIP-848).

    For `subscribe()` of a consumer with `group.protocol=consumer`. The client needs no metadata of all topics then, and
    all members of the group see a new topic at the same time.
    """

    pattern: str

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str) or not self.pattern:
            raise TypeError(f"a SubscriptionPattern needs a text that is not empty, not {self.pattern!r}")
        problem = sendable(self.pattern)
        if problem is not None:
            raise ValueError(f"a SubscriptionPattern {problem}")


#: What a user can subscribe to.
Wanted: TypeAlias = Iterable[str] | re.Pattern[str] | SubscriptionPattern


class Kind(Enum):
    """How partitions are chosen."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    BROKER_PATTERN = "pattern that the broker matches"
    BY_HAND = "by hand"


class Subscription:
    """The choice, and the callbacks that go with it."""

    def __init__(self, *, brokers_match: bool = False) -> None:
        """`brokers_match`: the group's protocol lets the brokers match a SubscriptionPattern."""
        self._brokers_match = brokers_match
        self.kind = Kind.NONE
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        #: The text of a SubscriptionPattern.
        self.broker_pattern: str | None = None
        self.on_assigned: RebalanceCallback | None = None
        self.on_revoked: RebalanceCallback | None = None
        self.on_lost: RebalanceCallback | None = None

    @property
    def by_group(self) -> bool:
        """Whether the group's coordinator gives the partitions."""
        return self.kind in (Kind.TOPICS, Kind.PATTERN, Kind.BROKER_PATTERN)

    def subscribe(self, wanted: Wanted) -> None:
        """Read these topics, or all that match. Replaces the subscription before. Raises IllegalStateError."""
        if isinstance(wanted, SubscriptionPattern) and not self._brokers_match:
            raise IllegalStateError(
                "the brokers match a SubscriptionPattern only for group.protocol=consumer: set that, or give a pattern "
                "that was compiled with re"
            )
        if self.kind is Kind.BY_HAND:
            raise IllegalStateError("partitions were assigned by hand: call unsubscribe() before subscribe()")
        if isinstance(wanted, SubscriptionPattern):
            self.kind, self.pattern, self.topics = Kind.BROKER_PATTERN, None, frozenset()
            self.broker_pattern = wanted.pattern
            return
        if isinstance(wanted, re.Pattern):
            if not isinstance(wanted.pattern, str):
                raise TypeError(f"{wanted!r} matches bytes, but names of topics are str: compile it from a str")
            self.kind, self.pattern, self.topics = Kind.PATTERN, wanted, frozenset()
            self.broker_pattern = None
            return
        if isinstance(wanted, str):
            raise TypeError(f"subscribe() takes a list of topics or a compiled pattern, not a str: write [{wanted!r}]")
        given: object = wanted
        if not isinstance(given, Iterable):
            raise TypeError(f"subscribe() takes a list of topics or a compiled pattern, not {wanted!r}")
        topics = frozenset(checked_topic(topic) for topic in wanted)
        self.kind, self.pattern, self.topics = Kind.TOPICS, None, topics
        self.broker_pattern = None

    def assign(self) -> None:
        """Partitions are chosen by hand. Raises IllegalStateError."""
        if self.by_group:
            raise IllegalStateError("topics are subscribed: call unsubscribe() before assign()")
        self.kind = Kind.BY_HAND

    def clear(self) -> None:
        """Read nothing."""
        self.__init__(brokers_match=self._brokers_match)  # type: ignore[misc]

    def match(self, snapshot: ClusterSnapshot, *, exclude_internal: bool) -> bool:
        """Subscribe to the topics that match the pattern now. Returns whether they have changed."""
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

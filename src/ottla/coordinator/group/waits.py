"""Who waited for whom in a rebalance of a consumer group (KIP-848), for its history.

A member is in the epoch of the target before it has all of its part: it waits for partitions that others have not given
up. Whom it waited for follows from what the others gave up meanwhile. The facts are only kept while the rebalance goes
on, and compared when its event is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Final, NamedTuple

from ottla.base.limits import MAX_EVENT_ITEMS, MAX_EVENT_NAMES
from ottla.coordinator.facts import Parts

#: Of a member whose part changes while it waits, so many of its last parts are compared with what others gave up.
_MOST_PARTS: Final = 8
#: In a rebalance that does not end, the oldest of what was given up is forgotten.
_MOST_GIVEN: Final = 10_000


class Wait(NamedTuple):
    """A member has waited for so long, for these members; `whom_count` says how many they are."""

    member_id: str
    ms: int
    whom: tuple[str, ...]
    whom_count: int


@dataclass(slots=True)
class _Waiting:
    """One member. Times on the monotonic clock, ms."""

    #: None: it does not wait now.
    since_ms: int | None = None
    #: How long it has waited before.
    total_ms: int = 0
    #: What it should have and had, as it was told.
    parts: deque[tuple[Parts, Parts]] = field(default_factory=lambda: deque(maxlen=_MOST_PARTS))

    def lasted_ms(self, at_ms: int) -> int:
        return self.total_ms + (0 if self.since_ms is None else at_ms - self.since_ms)

    def end(self, at_ms: int) -> None:
        self.total_ms, self.since_ms = self.lasted_ms(at_ms), None


class Waits:
    """What a rebalance has told of waiting and giving up so far."""

    def __init__(self) -> None:
        self._members: dict[str, _Waiting] = {}
        self._given: deque[tuple[str, Parts]] = deque(maxlen=_MOST_GIVEN)

    def lacks(self, member_id: str, wanted: Parts, has: Parts, at_ms: int) -> None:
        """A member waits, or still does."""
        waiting = self._members.setdefault(member_id, _Waiting())
        waiting.parts.append((wanted, has))
        if waiting.since_ms is None:
            waiting.since_ms = at_ms

    def lacks_nothing(self, member_id: str, at_ms: int) -> None:
        """A member does not wait any more."""
        waiting = self._members.get(member_id)
        if waiting is not None:
            waiting.end(at_ms)

    def gave(self, member_id: str, partitions: Parts) -> None:
        """A member has given these up, or some of them."""
        self._given.append((member_id, partitions))

    def gone(self, member_id: str) -> None:
        """A member is not in the group any more. It may have been waited for."""
        self._members.pop(member_id, None)

    def ended(self, at_ms: int) -> Waited:
        """The rebalance is over."""
        for waiting in self._members.values():
            waiting.end(at_ms)
        return Waited(self._members, tuple(self._given))


class Waited(NamedTuple):
    """What `Waits` knows at the end."""

    members: Mapping[str, _Waiting]
    given: tuple[tuple[str, Parts], ...]

    @property
    def weight(self) -> int:
        """How many things it holds on to."""
        return len(self.members) + len(self.given)

    def longest(self) -> Generator[None, None, list[Wait]]:
        """The longest waits, in steps: each looks at one member's part."""
        if not self.members:
            return []
        holders: dict[tuple[bytes, int], list[str]] = {}
        for member_id, partitions in self.given:
            for topic_id, numbers in partitions.items():
                for number in numbers:
                    holders.setdefault((topic_id, number), []).append(member_id)
            yield
        found = []
        for member_id, waiting in nlargest(MAX_EVENT_ITEMS, self.members.items(), key=lambda each: each[1].total_ms):
            whom: dict[str, None] = {}
            for wanted, has in waiting.parts:
                for topic_id, numbers in wanted.items():
                    for number in sorted(set(numbers) - set(has.get(topic_id, ()))):
                        whom |= dict.fromkeys(holders.get((topic_id, number), ()))
                yield
            whom.pop(member_id, None)
            found.append(Wait(member_id, waiting.total_ms, tuple(whom)[:MAX_EVENT_NAMES], len(whom)))
        return found

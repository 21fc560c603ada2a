"""Clients that are on their way into a group: they have asked for its coordinator, and have not joined yet.

With `group.initial.rebalance.delay.ms=0` the first member of a group would get a generation of its own, and who comes
a moment later waits until the first one sends its next heartbeat: 3 s. librdkafka connects anew between asking for the
coordinator and joining, and 50 ms pass until it has the topics, but for one of eight that is lucky. So a group that was
empty waits for those who have asked, though not for long: one may only have looked.

Not durable, and never wrong for long: a client may ask twice, or not come.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.clock import lasts
from ottla.base.limits import ARRIVAL_MS, MAX_AWAITED_GROUPS


class _Asked(NamedTuple):
    """How often a group's coordinator was asked for by clients that have not joined, and when last."""

    times: int
    last_ms: int


class Arrivals:
    """Who asked, by group; the group that was asked for last comes last."""

    def __init__(self) -> None:
        self._asked: dict[str, _Asked] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def asked(self, group_id: str, now_ms: int) -> None:
        """A client asks for the coordinator of an empty group."""
        times = self.on_their_way(group_id, now_ms)
        self._asked.pop(group_id, None)
        self._asked[group_id] = _Asked(times + 1, now_ms)
        oldest = next(iter(self._asked))
        if len(self._asked) > MAX_AWAITED_GROUPS or not lasts(self._asked[oldest].last_ms, ARRIVAL_MS, now_ms):
            del self._asked[oldest]

    def joined(self, group_id: str) -> None:
        """One of them has come."""
        asked = self._asked.pop(group_id, None)
        if asked is not None and asked.times > 1:
            self._asked[group_id] = asked._replace(times=asked.times - 1)

    def on_their_way(self, group_id: str, now_ms: int) -> int:
        """How many may still come."""
        asked = self._asked.get(group_id)
        return asked.times if asked is not None and lasts(asked.last_ms, ARRIVAL_MS, now_ms) else 0

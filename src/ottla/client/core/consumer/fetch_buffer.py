"""Fetches that wait to be taken, in the order they came.

The loop adds, the user's thread takes; `collections.deque` is safe for that.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.core.consumer.fetched import FetchedPartition

T = TypeVar("T")


class FetchBuffer:
    """The fetches of all partitions of one consumer."""

    def __init__(self) -> None:
        self._fetches: deque[FetchedPartition] = deque()
        self._made_room = False

    def __bool__(self) -> bool:
        return bool(self._fetches)

    @property
    def has_takeable(self) -> bool:
        """Whether there is something that a paused partition does not hold back."""
        return any(not fetch.state.paused and not fetch.is_void and not fetch.exhausted for fetch in self._fetches)

    def made_room(self) -> bool:
        """Whether a fetch was taken to its end since this was asked last: only then another one can be asked for."""
        made_room, self._made_room = self._made_room, False
        return made_room

    def add(self, fetch: FetchedPartition) -> None:
        """A fetch has come."""
        state = fetch.state
        state.added_fetches += 1
        state.added_bytes += fetch.size_bytes
        self._fetches.append(fetch)

    def take_records(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` records of partitions that are not paused. Raises what `FetchedPartition.take_records` raises.

        A partition that cannot go on then lets the others go first.
        """
        taken: list[ConsumerRecord] = []
        given: list[tuple[FetchedPartition, list[ConsumerRecord]]] = []
        paused: list[FetchedPartition] = []
        try:
            while self._fetches and len(taken) < limit:
                fetch = self._fetches[0]
                if not fetch.is_void and not fetch.exhausted:
                    if fetch.state.paused:
                        paused.append(self._fetches.popleft())
                        continue
                    try:
                        records = fetch.take_records(limit - len(taken))
                    except Exception:
                        if taken:  # first what is good; the next call meets the error again
                            break
                        self._others_first(fetch)
                        raise
                    given.append((fetch, records))
                    taken = taken + records if taken else records
                if fetch.is_void or fetch.exhausted:
                    self._fetches.popleft()
                    self._done(fetch)
        except BaseException as error:
            if not isinstance(error, Exception):  # the user's code was interrupted, and gets nothing
                self._give_back(given)
            raise
        finally:
            self._fetches.extendleft(reversed(paused))
        return taken

    def _give_back(self, given: list[tuple[FetchedPartition, list[ConsumerRecord]]]) -> None:
        for fetch, records in reversed(given):
            if fetch.exhausted:  # and so it was counted out
                fetch.state.taken_fetches -= 1
                fetch.state.taken_bytes -= fetch.size_bytes
                self._fetches.appendleft(fetch)
            fetch.give_back(records)

    def take_one_per_partition(self, take: Callable[[FetchedPartition], T]) -> dict[TopicPartition, T]:
        """What `take` makes of the oldest fetch of each partition that is not paused; it takes all that is good.

        Raises what `take` raises for the first of them; for a later one it is raised by the next call.
        """
        taken: dict[TopicPartition, T] = {}
        left: list[FetchedPartition] = []
        try:
            while self._fetches:
                fetch = self._fetches[0]
                if fetch.is_void or fetch.exhausted:
                    self._done(self._fetches.popleft())
                elif fetch.state.paused or fetch.state.tp in taken:
                    left.append(self._fetches.popleft())
                else:
                    try:
                        taken[fetch.state.tp] = take(fetch)
                    except Exception:
                        if taken:
                            break
                        self._others_first(fetch)
                        raise
                    if not fetch.exhausted:
                        left.append(self._fetches.popleft())
        finally:
            self._fetches.extendleft(reversed(left))
        return taken

    def _others_first(self, failed: FetchedPartition) -> None:
        """`failed` is the first: put what has come of other partitions before it. The loop may be adding meanwhile."""
        failed.told()
        if failed.exhausted:  # it had nothing but the error
            self._done(self._fetches.popleft())
            return
        fetches = [self._fetches.popleft() for _ in range(len(self._fetches))]
        fetches.sort(key=lambda fetch: fetch.state is failed.state)
        self._fetches.extendleft(reversed(fetches))

    def _done(self, fetch: FetchedPartition) -> None:
        self._made_room = True
        state = fetch.state
        if fetch.version == state.version:
            state.taken_fetches += 1
            state.taken_bytes += fetch.size_bytes

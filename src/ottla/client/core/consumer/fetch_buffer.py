"""Fetches that wait to be taken, in the order they came.

The loop adds, the user's thread takes; `collections.deque` is safe for that. The user's thread may be interrupted
(Ctrl-C) between any two steps. So a fetch stays in the deque until it was taken to its end, and before one is taken
from, its mark says how it stood: `put_back` undoes a take that did not come to its end.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.core.consumer.fetched import FetchedPartition
from ottla.client.core.consumer.positions import UNKNOWN_EPOCH, PartitionState

T = TypeVar("T")


class _Mark(NamedTuple):
    """How a fetch stood before it was taken from."""

    fetch: FetchedPartition
    position: int
    position_epoch: int
    taken_fetches: int
    taken_bytes: int

    def restore(self) -> None:
        fetch, state = self.fetch, self.fetch.state
        fetch.counted_out = False
        if not fetch.is_void:
            fetch.rewind(self.position, self.position_epoch)
            state.taken_fetches, state.taken_bytes = self.taken_fetches, self.taken_bytes


class OneByOne:
    """The records of one poll, for a `for` loop. Until it has got them all, `got` says how far it is in each partition.

    So what it has not got is not committed. When the loop is left early, the next poll goes on where it was left.
    """

    def __init__(self, marks: list[_Mark], records: list[ConsumerRecord]) -> None:
        self._records = records
        self._parts: dict[tuple[str, int], tuple[PartitionState, int]]
        self._parts = {mark.fetch.state.tp: (mark.fetch.state, mark.fetch.state.version) for mark in marks}
        for mark in reversed(marks):
            if not mark.fetch.is_void:
                mark.fetch.state.got = mark.position, mark.position_epoch

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Ends early when the user has sought or paused a partition meanwhile: what comes then is poll's to say."""
        tp: tuple[str, int] = ("", -1)
        for record in self._records:
            if record.partition != tp[1] or record.topic != tp[0]:
                tp = TopicPartition(record.topic, record.partition)
                state, version = self._parts[tp]
            if state.got is None or state.version != version or state.paused:
                return
            state.got = record.offset + 1, UNKNOWN_EPOCH if record.leader_epoch is None else record.leader_epoch
            yield record
        self._end()

    @property
    def is_left(self) -> bool:
        """Whether there are records that the loop has not got."""
        return any(state.got is not None for state, _ in self._parts.values())

    def go_on(self) -> None:
        """All was put back: leave out what the loop has got."""
        for state, _ in self._parts.values():
            if state.got is not None:
                state.position, state.position_epoch = state.got
        self._end()

    def _end(self) -> None:
        for state, _ in self._parts.values():
            state.got = None


class FetchBuffer:
    """The fetches of all partitions of one consumer."""

    def __init__(self) -> None:
        self._fetches: deque[FetchedPartition] = deque()
        self._made_room = False
        #: Of what the user may not have got yet.
        self._marks: list[_Mark] = []
        #: Those that get another order.
        self._moving: list[FetchedPartition] = []
        self._loop: OneByOne | None = None

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

    def one_by_one(self, records: list[ConsumerRecord]) -> Iterator[ConsumerRecord]:
        """What was taken last, for a `for` loop that may be left before its end."""
        self._loop = OneByOne(self._marks, records)
        return iter(self._loop)

    def handed_out(self) -> None:
        """The user has got what was taken; in a loop that was left, what the loop has got."""
        loop, self._loop = self._loop, None
        if loop is not None and loop.is_left:
            self.put_back()
            loop.go_on()
        self._marks = []

    def put_back(self) -> None:
        """The user has not got what was taken since `handed_out`: the next call takes it again."""
        for mark in reversed(self._marks):
            mark.restore()
        # Some are in the deque twice after this. When the second one's turn comes there is nothing left of it.
        self._fetches.extendleft(reversed(self._moving))
        self._fetches.extendleft([mark.fetch for mark in reversed(self._marks)])
        self._marks, self._moving = [], []

    def take_records(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` records of partitions that are not paused. Raises what `FetchedPartition.take_records` raises.

        A partition that cannot go on then lets the others go first.
        """
        taken: list[ConsumerRecord] = []
        for fetch in list(self._fetches):
            if len(taken) >= limit:
                break
            if not fetch.is_void and not fetch.exhausted:
                if fetch.state.paused:
                    continue
                self._mark(fetch)
                try:
                    records = fetch.take_records(limit - len(taken))
                except Exception:
                    if taken:  # first what is good; the next call meets the error again
                        break
                    self._others_first(fetch)
                    raise
                taken = taken + records if taken else records
            if not fetch.is_void and not fetch.exhausted:
                break
            self._drop(fetch)
        return taken

    def take_one_per_partition(self, take: Callable[[FetchedPartition], T]) -> dict[TopicPartition, T]:
        """What `take` makes of the oldest fetch of each partition that is not paused; it takes all that is good.

        Raises what `take` raises for the first of them; for a later one it is raised by the next call.
        """
        taken: dict[TopicPartition, T] = {}
        for fetch in list(self._fetches):
            if not fetch.is_void and not fetch.exhausted:
                if fetch.state.paused or fetch.state.tp in taken:
                    continue
                self._mark(fetch)
                try:
                    taken[fetch.state.tp] = take(fetch)
                except Exception:
                    if taken:
                        break
                    self._others_first(fetch)
                    raise
            if fetch.is_void or fetch.exhausted:
                self._drop(fetch)
        return taken

    def _mark(self, fetch: FetchedPartition) -> None:
        state = fetch.state
        self._marks.append(_Mark(fetch, state.position, state.position_epoch, state.taken_fetches, state.taken_bytes))

    def _others_first(self, failed: FetchedPartition) -> None:
        """`failed` is the first: put what has come of other partitions before it. The loop may be adding meanwhile."""
        failed.told()
        if failed.exhausted:  # it had nothing but the error
            self._drop(failed)
            return
        self._moving = list(self._fetches)
        for _ in self._moving:
            self._fetches.popleft()
        ordered = sorted(self._moving, key=lambda fetch: fetch.state is failed.state)
        self._fetches.extendleft(reversed(ordered))
        self._moving = []

    def _drop(self, fetch: FetchedPartition) -> None:
        self._fetches.remove(fetch)  # it is among the first
        self._made_room = True
        state = fetch.state
        if not fetch.counted_out and not fetch.is_void:
            fetch.counted_out = True
            state.taken_fetches += 1
            state.taken_bytes += fetch.size_bytes

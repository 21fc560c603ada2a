"""Fetches that wait until the user takes them, in the order in which they came.

The loop adds fetches, and the user's thread takes from them; `collections.deque` needs no lock for that. The user's
thread may be interrupted (Ctrl-C) between any two steps. So a fetch stays in the deque until all of it was taken. And
before something is taken from it, a mark keeps its state. If the take does not come to its end, `put_back` undoes it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.core.consumer.fetched import FetchedPartition
from ottla.client.core.consumer.positions import Got, PartitionState

T = TypeVar("T")


class _Mark(NamedTuple):
    """The state of a fetch before something was taken from it."""

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
    """The records of one poll, for a `for` loop. `PartitionState.got` says how far the loop is in each partition.

    So records that the loop has not got are not committed. When it is left early, the next poll goes on there.
    """

    def __init__(
        self, marks: list[_Mark], records: list[ConsumerRecord], runs: list[tuple[PartitionState, int]]
    ) -> None:
        """`runs` says of which partition how many of the records are, one after the other."""
        self._records = records
        self._runs = runs
        self._states = {mark.fetch.state.tp: mark.fetch.state for mark in marks}
        for mark in reversed(marks):
            if not mark.fetch.is_void:
                mark.fetch.state.got = Got((mark.position, mark.position_epoch))
        self._began = {tp: (state.got, state.version) for tp, state in self._states.items()}

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Ends early if the user calls seek or pause meanwhile: then the next poll decides what comes."""
        start = 0
        for state, count in self._runs:
            got, version = self._began[state.tp]
            # `rests` in the loop would be a call for each record.
            for record in self._records[start : start + count]:
                if got is None or state.got is not got or state.version != version or state.paused or state.unwanted:
                    return
                got.record = record
                yield record
            start += count
        self._end()

    @property
    def is_left(self) -> bool:
        """Whether there are records that the loop has not got."""
        return any(state.got is not None for state in self._states.values())

    def go_on(self) -> None:
        """All records were put back: pass over those that the loop has got."""
        for state in self._states.values():
            if state.got is not None:
                state.position, state.position_epoch = state.got.place
        self._end()

    def _end(self) -> None:
        for state in self._states.values():
            state.got = None


class FetchBuffer:
    """The fetches of all partitions of one consumer."""

    def __init__(self) -> None:
        self._fetches: deque[FetchedPartition] = deque()
        self._made_room = False
        #: Marks of the fetches whose records the user may not have got yet.
        self._marks: list[_Mark] = []
        #: Fetches that are out of the deque while their order is changed.
        self._moving: list[FetchedPartition] = []
        #: Of which partition how many records were taken last, one after the other.
        self._runs: list[tuple[PartitionState, int]] = []
        self._loop: OneByOne | None = None

    def __bool__(self) -> bool:
        return bool(self._fetches)

    @property
    def has_takeable(self) -> bool:
        """Whether something can be taken. What belongs to a paused partition cannot."""
        return any(not fetch.state.rests and not fetch.is_void and not fetch.exhausted for fetch in self._fetches)

    def made_room(self) -> bool:
        """Whether a fetch was taken to its end since the last call of this. Only then is there room for another one."""
        made_room, self._made_room = self._made_room, False
        return made_room

    def add(self, fetch: FetchedPartition) -> None:
        """A fetch has come."""
        state = fetch.state
        state.added_fetches += 1
        state.added_bytes += fetch.size_bytes
        self._fetches.append(fetch)

    def drop_void(self) -> None:
        """Let go of what was fetched at other positions. Nobody takes meanwhile: the user sets positions."""
        for fetch in [fetch for fetch in self._fetches if fetch.is_void]:
            self._fetches.remove(fetch)

    def one_by_one(self, records: list[ConsumerRecord]) -> Iterator[ConsumerRecord]:
        """The records that were taken last, for a `for` loop that may be left before its end."""
        self._loop = OneByOne(self._marks, records, self._runs)
        return iter(self._loop)

    def handed_out(self) -> None:
        """The user has got what was taken; if a `for` loop was left early, only what the loop has got."""
        loop, self._loop = self._loop, None
        if loop is not None and loop.is_left:
            self.put_back()
            loop.go_on()
        self._marks = []

    def put_back(self) -> None:
        """The user has not got what was taken since `handed_out`: the next call takes it again."""
        for mark in reversed(self._marks):
            mark.restore()
        # Some fetches are in the deque twice now. When the second entry comes, nothing is left of its fetch.
        self._fetches.extendleft(reversed(self._moving))
        self._fetches.extendleft([mark.fetch for mark in reversed(self._marks)])
        self._marks, self._moving = [], []

    def take_records(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` records of partitions that are not paused. Raises what `FetchedPartition.take_records` raises.

        The partition of a fetch that raises lets the others go first.
        """
        taken: list[ConsumerRecord] = []
        runs = self._runs = []
        for fetch in list(self._fetches):
            if len(taken) >= limit:
                break
            if not fetch.is_void and not fetch.exhausted:
                if fetch.state.rests:
                    continue
                self._mark(fetch)
                try:
                    records = fetch.take_records(limit - len(taken))
                except Exception:
                    if taken:  # return what is good; the next call finds the error again
                        break
                    self._others_first(fetch)
                    raise
                runs.append((fetch.state, len(records)))
                taken = taken + records if taken else records
            if not fetch.is_void and not fetch.exhausted:
                break
            self._drop(fetch)
        return taken

    def take_one_per_partition(self, take: Callable[[FetchedPartition], T]) -> dict[TopicPartition, T]:
        """The result of `take` for the oldest fetch of each partition that is not paused. It may leave some for later.

        If `take` raises for the first of them, this raises it. If it raises for a later one, the next call raises it.
        """
        taken: dict[TopicPartition, T] = {}
        for fetch in list(self._fetches):
            if not fetch.is_void and not fetch.exhausted:
                if fetch.state.rests or fetch.state.tp in taken:
                    continue
                self._mark(fetch)
                try:
                    taken[fetch.state.tp] = take(fetch)
                except Exception:
                    if taken:  # the next call begins with it: those before it may have something left
                        self._fetches.remove(fetch)
                        self._fetches.appendleft(fetch)
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
        """`failed` is the first fetch: move those of other partitions before it. The loop may add fetches meanwhile."""
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
        self._fetches.remove(fetch)  # quick, because it is among the first
        self._made_room = True
        state = fetch.state
        if not fetch.counted_out and not fetch.is_void:
            fetch.counted_out = True
            state.taken_fetches += 1
            state.taken_bytes += fetch.size_bytes

"""What all requests about positions have in common: one request for many partitions, and a pause after an error.

A partition is `looked_up` while a request about it is on its way. The request is asked in the eras of its partitions.
If the answer leaves a partition out, there will be another request about it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.era import Call, Ticket
from ottla.client.core.consumer.positions import PartitionState
from ottla.client.core.consumer.shared import Shared

T = TypeVar("T")


class Asking:
    """The requests of one kind."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._backoff = shared.backoff()
        self._retry_at_s = 0.0
        #: What `Shared.news` was when the pause after an error began; None if there is no such pause.
        self._news: int | None = None

    def ticket(self, call: Call, states: list[PartitionState], about: Any = None) -> Ticket:
        """The ticket of a request about these partitions, which is sent now."""
        for state in states:
            state.looked_up = True
        return self._shared.eras.of_partitions(call, states, about)

    def by_leader(self, states: Iterable[PartitionState]) -> dict[int, list[PartitionState]]:
        """The partitions by their leader; by NO_LEADER those for which metadata names none."""
        found: dict[int, list[PartitionState]] = {}
        for state in states:
            found.setdefault(self._shared.snapshot.leader(state.tp), []).append(state)
        return found

    def each(
        self, states: Mapping[TopicPartition, PartitionState], answers: Iterable[tuple[TopicPartition, T]], now_s: float
    ) -> Iterator[tuple[PartitionState, T]]:
        """The partitions of `states` that the answer has, each with its part of the answer."""
        self.over(states)
        failures, left_out = self._backoff.failures, dict(states)
        for tp, answer in answers:
            state = left_out.pop(tp, None)
            if state is not None:
                yield state, answer
        if left_out:
            self.later(now_s)
        elif self._backoff.failures == failures:  # nobody has called `later` meanwhile
            self._backoff.succeeded()

    def over(self, states: Mapping[TopicPartition, PartitionState]) -> None:
        """No request about these partitions is on its way any more."""
        for state in states.values():
            state.looked_up = False

    def later(self, now_s: float) -> None:
        """Ask again after a pause, and with fresh metadata. One pause follows all errors of an answer."""
        if self.retry_at_s(now_s) is None:
            self.pause(now_s, self._backoff.next_ms())
            self._news = self._shared.news
        self._shared.refresh()

    def pause(self, now_s: float, pause_ms: float) -> None:
        """Send no request for a while."""
        self._retry_at_s = now_s + pause_ms / 1000
        self._news = None

    def retry_at_s(self, now_s: float) -> float | None:
        """Until when no request is sent; None if one may be sent now. After an error that is so, too, as soon as there
        is news of a leader."""
        if self._news is not None and self._news != self._shared.news:
            self._backoff.succeeded()
            self._retry_at_s, self._news = now_s, None
        return self._retry_at_s if self._retry_at_s > now_s else None

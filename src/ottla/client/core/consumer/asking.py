"""What all questions about positions have in common: one question for many partitions, and a pause before the next one.

A partition is `looked_up` while somebody is asked about it. The question is asked in the partitions' eras; an answer
that leaves one of them out is no answer for it, and it is asked about again.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.era import Call, Ticket
from ottla.client.core.consumer.positions import PartitionState
from ottla.client.core.consumer.shared import Shared

T = TypeVar("T")


class Asking:
    """The questions of one kind."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._retry_at_s = 0.0

    def ticket(self, call: Call, states: list[PartitionState], about: Any = None) -> Ticket:
        """For a question about these partitions, which is asked now."""
        for state in states:
            state.looked_up = True
        return self._shared.eras.of_partitions(call, states, about)

    def by_leader(self, states: Iterable[PartitionState]) -> dict[int, list[PartitionState]]:
        """Whom to ask about which; NO_LEADER where metadata says nobody."""
        found: dict[int, list[PartitionState]] = {}
        for state in states:
            found.setdefault(self._shared.snapshot.leader(state.tp), []).append(state)
        return found

    def each(
        self, states: Mapping[TopicPartition, PartitionState], answers: Iterable[tuple[TopicPartition, T]], now_s: float
    ) -> Iterator[tuple[PartitionState, T]]:
        """What was answered about which of `states`."""
        self.over(states)
        left_out = dict(states)
        for tp, answer in answers:
            state = left_out.pop(tp, None)
            if state is not None:
                yield state, answer
        if left_out:
            self.later(now_s)

    def over(self, states: Mapping[TopicPartition, PartitionState]) -> None:
        """Nobody is asked about these any more."""
        for state in states.values():
            state.looked_up = False

    def later(self, now_s: float) -> None:
        """Ask again after a pause, with news of the cluster."""
        self.pause(now_s, self._shared.config.retry_backoff_ms)
        self._shared.refresh(now_s)

    def pause(self, now_s: float, pause_ms: float) -> None:
        """Ask nobody for a while."""
        self._retry_at_s = now_s + pause_ms / 1000

    def retry_at_s(self, now_s: float) -> float | None:
        """Until when nobody is asked; None when it may be asked now."""
        return self._retry_at_s if self._retry_at_s > now_s else None

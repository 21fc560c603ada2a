"""Leader epochs (KIP-320): after a change of leaders, whether the log still holds what was read (SPEC C5).

The new leader is asked where the epoch of the last record ends. Before the position means that the log was cut. It is
asked when everything that was fetched is taken: the position stands still then, and nobody but this core moves it.
"""

from collections.abc import Callable, Mapping

from ottla.base.types import TopicPartition
from ottla.client.core import intents
from ottla.client.core.consumer.answers import Next, meaning_of
from ottla.client.core.consumer.era import Call
from ottla.client.core.consumer.offset_reset import OffsetReset
from ottla.client.core.consumer.positions import NO_POSITION, UNKNOWN_EPOCH, PartitionState
from ottla.client.core.consumer.shared import Shared
from ottla.client.core.intents import Broker
from ottla.client.core.metadata import NO_LEADER
from ottla.client.errors import ClientError, KafkaError, LogTruncatedError, code_of
from ottla.wire.apis import ApiKey
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_CUT = "the log was cut at offset %d, of what was read offsets %d to %d are gone"


class Validation:
    """The positions that are doubtful. Fetching leaves them alone until they are not."""

    def __init__(self, shared: Shared, happened: Callable[[OffsetReset], None]) -> None:
        self._shared = shared
        self._happened = happened
        self._retry_at_s = 0.0
        #: Something that was fetched of a doubtful partition is to be taken first.
        self.waits_for_taker = False

    def metadata(self) -> None:
        """Leaders may have changed."""
        for state in self._shared.positions:
            epoch = self._shared.snapshot.leader_epoch(state.tp)
            if state.leader_epoch not in (UNKNOWN_EPOCH, epoch) and state.position_epoch != UNKNOWN_EPOCH:
                state.validate = True
            state.leader_epoch = epoch

    def advance(self, now_s: float) -> float | None:
        """Ask for what is doubtful; when to do it again."""
        by_leader: dict[int, list[PartitionState]] = {}
        self.waits_for_taker = False
        for state in self._shared.positions:
            if not state.validate or state.looked_up:
                continue
            if state.buffered_fetches:
                self.waits_for_taker = True
                continue
            if state.position_epoch == UNKNOWN_EPOCH or state.position == NO_POSITION:
                state.validate = False
            else:
                by_leader.setdefault(self._shared.snapshot.leader(state.tp), []).append(state)
        if not by_leader or now_s < self._retry_at_s:
            return self._retry_at_s if by_leader else None
        for leader, states in by_leader.items():
            if leader == NO_LEADER:
                self._shared.refresh(now_s)
            else:
                self._ask(leader, states)
        return self._retry_at_s if self._retry_at_s > now_s else None

    def _ask(self, leader: int, states: list[PartitionState]) -> None:
        shared = self._shared
        by_topic: dict[str, list[OffsetForLeaderPartition]] = {}
        for state in states:
            state.looked_up = True
            part = OffsetForLeaderPartition(
                state.tp.partition, shared.snapshot.leader_epoch(state.tp), state.position_epoch
            )
            by_topic.setdefault(state.tp.topic, []).append(part)
        request = OffsetForLeaderEpochRequest(
            -1, tuple(OffsetForLeaderTopic(name, tuple(parts)) for name, parts in by_topic.items())
        )
        ticket = shared.eras.of_partitions(Call.EPOCH_END, states)
        timeout_ms = shared.config.request_timeout_ms
        shared.ask_leader(ticket, Broker(leader), ApiKey.OFFSET_FOR_LEADER_EPOCH, request, timeout_ms)

    def answered(
        self, states: Mapping[TopicPartition, PartitionState], answer: OffsetForLeaderEpochResponse, now_s: float
    ) -> None:
        """OffsetForLeaderEpoch was answered."""
        left_out = dict(states)
        for state in states.values():
            state.looked_up = False
        for topic in answer.topics:
            for p in topic.partitions:
                asked = left_out.pop(TopicPartition(topic.topic, p.partition), None)
                if asked is None:
                    continue
                state = asked
                if p.error_code:
                    self._refused(state, p.error_code, now_s)
                    continue
                if 0 <= p.end_offset < state.position:
                    self._truncated(state, p.end_offset, now_s)
                else:
                    state.validate = False
        if left_out:
            self._later(now_s)

    def unanswered(self, states: Mapping[TopicPartition, PartitionState], error: ClientError, now_s: float) -> None:
        """The leader has not answered."""
        for state in states.values():
            state.looked_up = False
        self._later(now_s)
        if not error.retriable:
            self._shared.fail(error)

    def _refused(self, state: PartitionState, error_code: int, now_s: float) -> None:
        self._later(now_s)
        if meaning_of(Call.EPOCH_END, code_of(error_code)) is Next.FAIL:
            self._shared.fail(KafkaError.of(error_code, str(state.tp)))

    def _later(self, now_s: float) -> None:
        self._shared.refresh(now_s)
        self._retry_at_s = now_s + self._shared.config.retry_backoff_ms / 1000

    def _truncated(self, state: PartitionState, end_offset: int, now_s: float) -> None:
        before, config = state.position, self._shared.config
        if config.auto_offset_reset == "none":
            # asked again, and told again, until the user seeks: what follows in the log is not what followed before
            self._retry_at_s = now_s + config.retry_backoff_max_ms / 1000
            said = f"{state.tp}: {_CUT % (end_offset, end_offset, before - 1)}, seek() to go on"
            self._shared.fail(LogTruncatedError(said))
            return
        text = f"%s: {_CUT}; reading goes on there"
        self._shared.say(intents.WARNING, text, state.tp, end_offset, end_offset, before - 1)
        state.seek(end_offset)
        self._happened(OffsetReset(state.tp, before, end_offset))

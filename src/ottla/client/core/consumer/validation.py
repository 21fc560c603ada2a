"""Leader epochs (KIP-320): after a change of leaders, checks whether the log still holds what was read (SPEC C5).

The new leader is asked where the epoch of the last record ends. If that is before the position, the log was cut. The
request waits until the user has taken everything that was fetched: only then does the position stay where it is. A
fetch that was on its way may move it all the same; then the leader is asked again.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core import intents
from ottla.client.core.consumer.answers import Next, meaning_of
from ottla.client.core.consumer.asking import Asking
from ottla.client.core.consumer.era import Call, Ticket
from ottla.client.core.consumer.offset_reset import OffsetReset
from ottla.client.core.consumer.positions import NO_POSITION, UNKNOWN_EPOCH, PartitionState
from ottla.client.core.consumer.shared import Shared
from ottla.client.core.intents import Broker
from ottla.client.core.metadata import NO_LEADER
from ottla.client.core.offset_requests import epochs_request
from ottla.client.errors import ClientError, KafkaError, LogTruncatedError, code_of
from ottla.wire.apis import ApiKey
from ottla.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse

_CUT = "the log was cut at offset %d: offsets %d to %d, which were read before, are gone"
_ANOTHER_LOG = (
    "the leader does not know epoch %d, in which offset %d was read: the log was cut, or the topic was created again"
)


class _Asked(NamedTuple):
    """What the answer is about."""

    leader_epoch: int
    position: int


class Validation:
    """Checks positions that may be wrong (`validate`). A partition is not fetched until its check is over."""

    def __init__(
        self,
        shared: Shared,
        happened: Callable[[OffsetReset], None],
        reset: Callable[[PartitionState, float], None],
    ) -> None:
        """`happened` is called with positions that were replaced; `reset` replaces one as `auto.offset.reset` says."""
        self._shared = shared
        self._happened = happened
        self._reset = reset
        self._asking = Asking(shared)
        #: A check waits until the user has taken what was fetched of its partition.
        self.waits_for_taker = False

    def metadata(self) -> None:
        """There is new metadata: leaders may have changed."""
        for state in self._shared.positions:
            epoch = self._shared.snapshot.leader_epoch(state.tp)
            if state.leader_epoch not in (UNKNOWN_EPOCH, epoch) and state.position_epoch != UNKNOWN_EPOCH:
                state.validate = True
            state.leader_epoch = epoch

    def advance(self, now_s: float) -> float | None:
        """Ask about positions that must be checked. Returns when to look again."""
        doubtful: list[PartitionState] = []
        times: list[float] = []
        self.waits_for_taker = False
        for state in self._shared.positions:
            if not state.validate or state.looked_up:
                continue
            if state.buffered_fetches:
                self.waits_for_taker = True
            elif state.position_epoch == UNKNOWN_EPOCH or state.position == NO_POSITION:
                state.validate = False
            elif (until_s := self._old_until_s(state, now_s)) is not None:
                times.append(until_s)
                self._shared.refresh()
            else:
                doubtful.append(state)
        if doubtful and self._asking.retry_at_s(now_s) is None:
            for leader, states in self._asking.by_leader(doubtful).items():
                if leader == NO_LEADER:
                    self._shared.refresh()
                else:
                    self._ask(leader, states)
        retry_at_s = self._asking.retry_at_s(now_s)
        if doubtful and retry_at_s is not None:
            times.append(retry_at_s)
        return min(times, default=None)

    def _old_until_s(self, state: PartitionState, now_s: float) -> float | None:
        """Until when metadata counts as out of date, because the position is of a later epoch; None if it does not.

        The leader in such metadata does not lead any more, but may not know that yet. It would say that the log ends
        before the position. What metadata says for much longer than a broker lives without its controller is true: the
        topic was created again.
        """
        if not UNKNOWN_EPOCH < self._shared.snapshot.leader_epoch(state.tp) < state.position_epoch:
            state.old_since_s = None
            return None
        if state.old_since_s is None:
            state.old_since_s = now_s
        until_s = state.old_since_s + self._shared.old_metadata_s
        return until_s if now_s < until_s else None

    def _ask(self, leader: int, states: list[PartitionState]) -> None:
        shared = self._shared
        asked = {state.tp: _Asked(shared.snapshot.leader_epoch(state.tp), state.position) for state in states}
        request = epochs_request(shared.snapshot, {state.tp: state.position_epoch for state in states})
        ticket = self._asking.ticket(Call.EPOCH_END, states, asked)
        timeout_ms = shared.config.request_timeout_ms
        shared.ask_leader(ticket, Broker(leader), ApiKey.OFFSET_FOR_LEADER_EPOCH, request, timeout_ms)

    def answered(
        self,
        ticket: Ticket,
        states: Mapping[TopicPartition, PartitionState],
        answer: OffsetForLeaderEpochResponse,
        now_s: float,
    ) -> None:
        """OffsetForLeaderEpoch was answered."""
        answers = ((TopicPartition(topic.topic, p.partition), p) for topic in answer.topics for p in topic.partitions)
        for state, p in self._asking.each(states, answers, now_s):
            if ticket.about[state.tp] != (state.leader_epoch, state.position):
                continue  # there is another leader by now, or an older fetch has brought more: asked again
            if p.error_code:
                self._refused(state, p.error_code, now_s)
            elif p.end_offset < 0 or p.leader_epoch < 0:
                self._another_log(state, now_s)
            elif p.end_offset < state.position:
                self._truncated(state, p.end_offset, now_s)
            else:
                state.validate = False

    def unanswered(self, states: Mapping[TopicPartition, PartitionState], error: ClientError, now_s: float) -> None:
        """The leader has not answered."""
        self._asking.over(states)
        self._asking.later(now_s)
        if not error.retriable:
            self._shared.fail(error)

    def _refused(self, state: PartitionState, error_code: int, now_s: float) -> None:
        self._asking.later(now_s)
        if meaning_of(Call.EPOCH_END, code_of(error_code)) is Next.FAIL:
            self._shared.fail(KafkaError.of(error_code, str(state.tp)))

    def _another_log(self, state: PartitionState, now_s: float) -> None:
        what = _ANOTHER_LOG % (state.position_epoch, state.position - 1)
        if self._shared.config.auto_offset_reset == "none":
            self._tell_again(f"{state.tp}: {what}. Call seek() to say where to go on", now_s)
            return
        self._shared.say(intents.WARNING, "%s: %s", state.tp, what)
        self._reset(state, now_s)

    def _truncated(self, state: PartitionState, end_offset: int, now_s: float) -> None:
        before = state.position
        what = _CUT % (end_offset, end_offset, before - 1)
        if self._shared.config.auto_offset_reset == "none":
            self._tell_again(f"{state.tp}: {what}. Call seek() to say where to go on", now_s)
            return
        self._shared.say(intents.WARNING, "%s: %s; reading goes on there", state.tp, what)
        state.seek(end_offset)
        self._happened(OffsetReset(state.tp, before, end_offset))

    def _tell_again(self, said: str, now_s: float) -> None:
        """Ask again after a pause, and raise this again, until the user seeks: the log has other records there now."""
        self._asking.pause(now_s, self._shared.config.retry_backoff_max_ms)
        self._shared.fail(LogTruncatedError(said))

"""Finds positions: where to begin, and where to go on after a position was lost (SPEC O5).

A new partition begins at the offset that its group has committed. If there is none, or if the position is not in the
log, `auto.offset.reset` names a time, and the leader is asked for the offset of this time. Requests are asked in the
eras of their partitions. `looked_up` says that a request is on its way. A partition without a position is not fetched.

A position that is said not to be in the log is not replaced at once (Java's consumer does so). The leader is asked for
both ends of its log first: it may have started again without a deletion, or another one may lead. A position beyond the
end is doubted longer. The leader that says so may have been deposed without knowing it: its log ends where its
successor's goes on. If the leader epoch of the position is known, `validation` has found out; but many commit offsets
without it. Then the position is tried again for as long as metadata may be out of date. A partition with a single
replica has no other leader.
"""

from collections.abc import Callable, Iterable, Mapping

from ottla.base.types import TopicPartition
from ottla.client.config.consumer import reset_time
from ottla.client.core import intents
from ottla.client.core.consumer.answers import Next, meaning_of
from ottla.client.core.consumer.asking import Asking
from ottla.client.core.consumer.era import Call
from ottla.client.core.consumer.intents import ReadClock
from ottla.client.core.consumer.member import GroupMember
from ottla.client.core.consumer.offset_reset import OffsetReset
from ottla.client.core.consumer.positions import NO_POSITION, UNKNOWN_EPOCH, PartitionState
from ottla.client.core.consumer.shared import NOBODY_WAITS, Shared
from ottla.client.core.intents import Broker
from ottla.client.core.metadata import NO_LEADER
from ottla.client.core.offset_requests import LAST_VERSION_WITH_NAMES, committed_request, list_request
from ottla.client.errors import (
    ClientError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    code_of,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_offsets import ListOffsetsResponse
from ottla.wire.messages.offset_fetch import OffsetFetchResponse
from ottla.wire.special_timestamp import SpecialTimestamp

_BY_DURATION = "by_duration:"


class Resets:
    """Looks up the positions that are not known."""

    def __init__(self, shared: Shared, member: GroupMember, on_reset: Callable[[OffsetReset], object] | None) -> None:
        self._shared = shared
        self._member = member
        self._on_reset = on_reset
        self._asking = Asking(shared)
        #: A final error was found: nothing is asked until the next poll, which raises it and begins again.
        self._given_up = False

    def look_again(self) -> None:
        """The user polls, or has set positions: ask again, also after a final error."""
        self._given_up = False

    def out_of_range(self, state: PartitionState, now_s: float) -> None:
        """A leader says that the position is before the start of the log, or beyond its end: ask where these are."""
        if state.position_epoch != UNKNOWN_EPOCH or not self._shared.snapshot.may_have_another_leader(state.tp):
            state.out_of_range_since_s = None
        elif state.out_of_range_since_s is None:
            state.out_of_range_since_s = now_s
        state.doubt(SpecialTimestamp.EARLIEST)

    def replace(self, state: PartitionState, now_s: float) -> None:
        """The position is lost: go on as `auto.offset.reset` says."""
        self._by_policy([state], now_s)

    def advance(self, now_s: float) -> float | None:
        """Ask for the positions that are not known. Returns when to look again."""
        missing = [s for s in self._shared.positions if s.position == NO_POSITION and not s.looked_up]
        if not missing or self._given_up:
            return None
        if self._asking.retry_at_s(now_s) is None:
            self._start([s for s in missing if s.reset_to_ms is None], now_s)
            self._list([s for s in missing if s.reset_to_ms is not None and not s.looked_up])
        return self._asking.retry_at_s(now_s)

    # where the group has committed, else the policy

    def _start(self, new: list[PartitionState], now_s: float) -> None:
        shared = self._shared
        if not new:
            return
        if shared.config.group_id is None:
            self._without_offset(new, now_s)
            return
        request = committed_request(
            shared.snapshot,
            shared.group_id,
            [s.tp for s in new],
            require_stable=shared.config.read_committed,
            member=self._member.looks_up_as,
        )
        ticket = self._asking.ticket(Call.COMMITTED, new)
        shared.ask_coordinator(ticket, ApiKey.OFFSET_FETCH, request, cap=LAST_VERSION_WITH_NAMES)

    def committed(
        self, states: Mapping[TopicPartition, PartitionState], answer: OffsetFetchResponse, now_s: float
    ) -> None:
        """OffsetFetch was answered."""
        what = f"group {self._shared.group_id}"
        for group in answer.groups:
            if group.error_code:
                self._asking.over(states)
                self._refused(Call.COMMITTED, group.error_code, what, now_s)
                return
        answers = (
            (TopicPartition(topic.name, p.partition_index), p)
            for group in answer.groups
            for topic in group.topics
            for p in topic.partitions
        )
        without: list[PartitionState] = []
        for state, p in self._asking.each(states, answers, now_s):
            if p.error_code:
                self._refused(Call.COMMITTED, p.error_code, f"{what}, {state.tp}", now_s)
            elif p.committed_offset >= 0:
                state.seek(p.committed_offset, p.committed_leader_epoch)
            else:
                without.append(state)
        self._without_offset(without, now_s)

    def _without_offset(self, states: list[PartitionState], now_s: float) -> None:
        if not states:
            return
        if self._shared.config.auto_offset_reset == "none":
            names = ", ".join(str(s.tp) for s in states)
            text = f"no committed offset for {names}, and auto.offset.reset is none: call seek() to say where to begin"
            self._fail(NoOffsetForPartitionError(text))
        else:
            self._by_policy(states, now_s)

    def _by_policy(self, states: list[PartitionState], now_s: float) -> None:
        if self._shared.config.auto_offset_reset.startswith(_BY_DURATION):
            self._shared.intend(ReadClock(self._asking.ticket(Call.CLOCK, states)))
        else:
            self.clock_read({s.tp: s for s in states}, 0, now_s)

    def clock_read(self, states: Mapping[TopicPartition, PartitionState], now_ms: int, now_s: float) -> None:
        """The time of day is known (0 if it is not needed): set the time that `auto.offset.reset` names."""
        when = reset_time(self._shared.config.auto_offset_reset, now_ms)
        for state in states.values():
            if when is not None:
                state.lose(when)

    # times become offsets

    def _list(self, states: list[PartitionState]) -> None:
        shared = self._shared
        for leader, of_leader in self._asking.by_leader(states).items():
            if leader == NO_LEADER:
                self._leaderless(of_leader)
                continue
            doubtful = [s for s in of_leader if s.end_asked is not None]
            self._ask(leader, doubtful, read_committed=False)  # what is not committed yet is in the log
            lost = [s for s in of_leader if s.end_asked is None]
            self._ask(leader, lost, read_committed=shared.config.read_committed)

    def _ask(self, leader: int, states: list[PartitionState], *, read_committed: bool) -> None:
        shared = self._shared
        times = {s.tp: s.reset_to_ms for s in states if s.reset_to_ms is not None}
        if times:
            request = list_request(shared.snapshot, times, read_committed=read_committed)
            ticket = self._asking.ticket(Call.LIST, states)
            timeout_ms = shared.config.request_timeout_ms
            shared.ask_leader(ticket, Broker(leader), ApiKey.LIST_OFFSETS, request, timeout_ms)

    def _leaderless(self, states: Iterable[PartitionState]) -> None:
        """Metadata names no leader: there is none yet, or this client is not allowed to know."""
        for state in states:
            code = self._shared.snapshot.topic_errors.get(state.tp.topic, ErrorCode.LEADER_NOT_AVAILABLE)
            if meaning_of(Call.LIST, code) is Next.FAIL:
                self._fail(KafkaError.of(code, str(state.tp)))
        self._shared.refresh()

    def listed(
        self, states: Mapping[TopicPartition, PartitionState], answer: ListOffsetsResponse, now_s: float
    ) -> None:
        """ListOffsets was answered."""
        answers = (
            (TopicPartition(topic.name, p.partition_index), p) for topic in answer.topics for p in topic.partitions
        )
        for state, p in self._asking.each(states, answers, now_s):
            if p.error_code:
                self._refused(Call.LIST, p.error_code, str(state.tp), now_s)
            elif p.offset < 0:  # there is no record from that time or later
                state.lose(SpecialTimestamp.LATEST)
            elif state.end_asked is not None:
                self._end_found(state, state.end_asked, p.offset, now_s)
            else:
                self._found(state, p.offset)

    def _end_found(self, state: PartitionState, end: SpecialTimestamp, offset: int, now_s: float) -> None:
        """An end of the log is known, from which a position was thought to be lost."""
        config, since_s = self._shared.config, state.out_of_range_since_s
        left_s = 0.0 if since_s is None else since_s + self._shared.old_metadata_s - now_s
        if end is SpecialTimestamp.EARLIEST and state.lost_at >= offset:
            state.doubt(SpecialTimestamp.LATEST)
        elif end is SpecialTimestamp.LATEST and state.lost_at <= offset:  # another start of the broker, another leader
            state.find_again(now_s + config.retry_backoff_ms / 1000)
        elif end is SpecialTimestamp.LATEST and left_s > 0:
            text = "%s: offset %d is beyond the end of the log that its leader has: asked again for another %.0f s"
            self._shared.say(intents.INFO, text, state.tp, state.lost_at, left_s)
            self._shared.refresh()
            state.find_again(now_s + config.retry_backoff_max_ms / 1000)
        elif config.auto_offset_reset == "none":
            # fetch again after a pause, and raise this again, until the user seeks
            where = "before the start" if end is SpecialTimestamp.EARLIEST else "beyond the end"
            text = (
                f"{state.tp}: offset {state.lost_at} is {where} of the log (offset {offset}), and auto.offset.reset is "
                "none: call seek() to say where to go on"
            )
            state.find_again(now_s + config.retry_backoff_max_ms / 1000)
            self._shared.fail(OffsetOutOfRangeError(ErrorCode.OFFSET_OUT_OF_RANGE, text))
        elif end is SpecialTimestamp.EARLIEST and config.auto_offset_reset == "earliest":
            self._found(state, offset)
        else:
            self.replace(state, now_s)

    def _found(self, state: PartitionState, offset: int) -> None:
        reset = OffsetReset(state.tp, state.lost_at, offset)
        text = "%s"
        if reset.before < 0 < offset and state.reset_to_ms != SpecialTimestamp.EARLIEST:
            text += "; what lies before it is not read"
        state.seek(offset)
        self._shared.say(intents.WARNING if reset.before >= 0 else intents.INFO, text, reset)
        self.happened(reset)
        self._shared.wake_poll()

    def happened(self, reset: OffsetReset) -> None:
        """Tell the user of a position that was replaced."""
        self._shared.events.add(reset)
        if self._on_reset is not None:
            self._shared.call_user(NOBODY_WAITS, self._on_reset, reset)

    # what goes wrong

    def unanswered(self, states: Mapping[TopicPartition, PartitionState], error: ClientError, now_s: float) -> None:
        """The coordinator, or a leader, has not answered."""
        self._asking.over(states)
        self._failed(error, now_s)
        self._shared.say(intents.DEBUG, "positions could not be looked up: %s", error)

    def _refused(self, call: Call, error_code: int, what: str, now_s: float) -> None:
        code = code_of(error_code)
        meaning = meaning_of(call, code)
        if meaning is Next.FIND_COORDINATOR:
            self._shared.find_coordinator()
        if meaning is Next.FAIL:
            self._fail(KafkaError.of(error_code, what))
        else:
            self._asking.later(now_s)

    def _failed(self, error: ClientError, now_s: float) -> None:
        if error.retriable:
            self._asking.later(now_s)
        else:
            self._fail(error)

    def _fail(self, error: ClientError) -> None:
        self._given_up = True
        self._shared.fail(error)

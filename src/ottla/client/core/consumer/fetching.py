"""Fetches ahead of the user: one request to a broker at a time, at most two fetches of a partition in store, and none
while `fetch.max.bytes` are in store.

`advance` asks for what is missing. A fetch is asked in the eras of its partitions. If a partition was sought, reset or
taken away meanwhile, its part of the answer is void; the other parts still count. The fetch session belongs to the
connection and counts every answer. Where there are very many partitions, an answer is read some at a time, each time
that this is woken, so that other events, and heartbeats, come in between; its broker is asked again when it is read.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final

from ottla.base.types import TopicPartition
from ottla.client.core import intents
from ottla.client.core.backoff import Backoff
from ottla.client.core.consumer.answers import Next, meaning_of
from ottla.client.core.consumer.era import Call, Ticket
from ottla.client.core.consumer.fetch_session import FetchSession
from ottla.client.core.consumer.fetched import Decoding, FetchedPartition
from ottla.client.core.consumer.positions import NO_POSITION, PartitionState
from ottla.client.core.consumer.shared import Shared
from ottla.client.core.intents import Broker, Channel, LearnLeader
from ottla.client.core.metadata import NO_LEADER, ClusterSnapshot, Node
from ottla.client.errors import ClientError, CorruptRecordsError, KafkaError, code_of
from ottla.wire.apis import ApiKey
from ottla.wire.codec import WireError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

#: The user reads from one fetch while another one waits.
_FETCHES_AHEAD = 2
#: A fetch without the partitions whose store is full waits only so long at the broker: they may soon have room again,
#: and must wait for the next fetch.
_SHORT_WAIT_MS = 20
#: Partitions of an answer that are read at once, some five microseconds each. To ask for more takes some two each, so
#: that is done by itself.
AT_ONCE: Final = 1_000


class Fetching:
    """Sends fetches to the brokers, and puts what they bring into the buffer."""

    def __init__(
        self, shared: Shared, decoding: Decoding, out_of_range: Callable[[PartitionState, float], None]
    ) -> None:
        """`out_of_range` is called with each partition whose position is not in its log."""
        self._shared = shared
        self._decoding = decoding
        self._out_of_range = out_of_range
        self._sessions: dict[int, FetchSession] = {}
        self._asked: set[int] = set()
        #: Answers that are being read, by the brokers that gave them.
        self._reading: dict[int, Iterator[None]] = {}
        #: What was known when all partitions were looked at, and whether one of them had no leader then.
        self._looked_at: ClusterSnapshot | None = None
        self._is_leaderless = False
        #: Fetches that brought records of a partition.
        self._brought = 0
        #: Until when a broker gets no fetch, after an error.
        self._not_before_s: dict[int, float] = {}
        #: The pauses of brokers whose last fetch brought nothing but an error.
        self._backoffs: dict[int, Backoff] = {}
        #: For partitions, each with its number of refusals.
        self._backoff = shared.backoff()

    @property
    def is_wide(self) -> bool:
        """Whether there are so many partitions that each step is taken by itself."""
        return len(self._shared.positions) > AT_ONCE

    def taken(self, now_s: float) -> float | None:
        """Records were taken: as `advance`, but of very many partitions that comes behind the user's turn."""
        return now_s if self.is_wide and self._may_ask else self.advance(now_s)

    @property
    def _may_ask(self) -> bool:
        """Whether a broker has no fetch to answer, or leaders have to be found: every poll asks that, and there may be
        thousands of partitions to look at."""
        snapshot = self._shared.snapshot
        is_known = snapshot is self._looked_at and not self._is_leaderless
        return bool(self._reading) or not is_known or not snapshot.nodes.keys() <= self._asked

    def advance(self, now_s: float) -> float | None:
        """Read some of a long answer, or send a fetch to each broker that has none to answer and has what is missing.
        Returns when to look again."""
        if self._reading:
            self._read_on()
            return now_s
        if not self._may_ask:
            return None
        shared = self._shared
        snapshot = shared.snapshot
        wanted: dict[int, list[PartitionState]] = {}
        full: set[int] = set()
        again_s: list[float] = []
        has_room = self._has_room()
        self._looked_at, self._is_leaderless = snapshot, False
        for state in shared.positions:
            if state.fetch_offset == NO_POSITION or state.rests or state.validate:
                continue
            leader = snapshot.leader(state.tp)
            if leader == NO_LEADER:
                self._is_leaderless = True
                shared.refresh()
            elif state.halted and state.buffered_fetches:
                continue  # poll has to raise the stored error first
            elif state.retry_at_s > now_s:
                again_s.append(state.retry_at_s)
            elif state.buffered_fetches >= _FETCHES_AHEAD or not has_room:
                full.add(leader)
            else:
                wanted.setdefault(leader, []).append(state)
        for leader, states in wanted.items():
            if leader in self._asked:
                continue
            not_before_s = self._not_before_s.get(leader, 0.0)
            if not_before_s > now_s:
                again_s.append(not_before_s)
            else:
                # A broker fills its answer from the front, and changes the order only where it has a session.
                states.sort(key=lambda state: state.fetched_last)
                self._fetch(leader, states, hurried=leader in full)
        return min(again_s, default=None)

    def _has_room(self) -> bool:
        """Whether what the user can take is less than `fetch.max.bytes`: however many partitions there are, the fetches
        of one broker in store, and the one that is coming, take twice that. What rests, or ends in an error, may
        stay for ever, so it does not count: it must not stop the others."""
        stored = sum(s.buffered_bytes for s in self._shared.positions if not s.rests and not s.halted)
        return stored == 0 or stored < self._shared.config.fetch_max_bytes

    # asking

    def _fetch(self, leader: int, states: list[PartitionState], *, hurried: bool) -> None:
        shared, broker = self._shared, Broker(leader, Channel.FETCH)
        if not shared.connections.is_open(broker):
            for intent in shared.connections.connect(broker):
                shared.intend(intent)
            return
        self._asked.add(leader)
        self._sessions.setdefault(leader, FetchSession())
        offsets = {state.tp: state.fetch_offset for state in states}
        # The leader epochs are those of now, as the offsets are: a newer leader has to refuse the request (KIP-320).
        request = partial(self._request, leader, shared.snapshot, offsets, hurried=hurried)
        ticket = shared.eras.of_partitions(Call.FETCH, states, (leader, offsets))
        timeout_ms = shared.config.request_timeout_ms + shared.config.fetch_max_wait_ms
        if len(states) > AT_ONCE:  # it is made in the turn in which it is sent
            shared.intend(intents.Ask(ticket, broker, ApiKey.FETCH, request, timeout_ms, is_large=True))
        else:
            shared.intend(intents.Ask(ticket, broker, ApiKey.FETCH, request(), timeout_ms))

    def _request(
        self, leader: int, snapshot: ClusterSnapshot, offsets: Mapping[TopicPartition, int], *, hurried: bool
    ) -> FetchRequest:
        config, session = self._shared.config, self._sessions[leader]
        max_bytes = config.max_partition_fetch_bytes
        wanted = {}
        for tp, offset in offsets.items():
            epoch, topic_id, named = snapshot.leader_epoch(tp), snapshot.topic_id(tp.topic), session.named(tp)
            if named is not None and named[0] == topic_id and named[1][1:3] == (epoch, offset):
                wanted[tp] = named  # nearly all of very many partitions have brought nothing
            else:
                wanted[tp] = topic_id, FetchPartition(tp.partition, epoch, offset, partition_max_bytes=max_bytes)
        if session.made_anew(wanted):
            session.reset()
        parts = session.build(wanted)
        by_topic: dict[str, list[FetchPartition]] = {}
        for tp, part in parts.partitions.items():
            by_topic.setdefault(tp.topic, []).append(part)
        forgotten: dict[tuple[bytes, str], list[int]] = {}
        for tp, topic_id in parts.forgotten.items():
            forgotten.setdefault((topic_id, tp.topic), []).append(tp.partition)
        return FetchRequest(
            max_wait_ms=min(config.fetch_max_wait_ms, _SHORT_WAIT_MS) if hurried else config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=int(config.read_committed),
            session_id=parts.session_id,
            session_epoch=parts.epoch,
            topics=tuple(FetchTopic(snapshot.topic_id(t), t, tuple(ps)) for t, ps in by_topic.items()),
            forgotten_topics_data=tuple(ForgottenTopic(*topic, tuple(ps)) for topic, ps in forgotten.items()),
        )

    def unreachable(self, leader: int, error: ClientError, now_s: float) -> None:
        """No connection could be made."""
        self._shared.say(intents.DEBUG, "no connection to broker %d: %s", leader, error)
        if not error.retriable:
            self._shared.fail(error)
        self._shared.refresh()
        # the shell makes the pauses between connections grow
        self._not_before_s[leader] = now_s + self._shared.config.retry_backoff_ms / 1000

    # answers

    def counted(self, ticket: Ticket, answer: FetchResponse) -> None:
        """Count an answer in its session, first of all and in any era: the session belongs to the connection."""
        leader, _ = ticket.about
        self._asked.discard(leader)
        self._sessions[leader].answered(code_of(answer.error_code), answer.session_id)

    def lost(self, ticket: Ticket, error: ClientError, now_s: float) -> None:
        """No answer came, or one that cannot be read. In any era: begin a new session, as its state is unknown."""
        leader, _ = ticket.about
        self._asked.discard(leader)
        self._sessions[leader].reset()
        if isinstance(error, intents.NotSentError):
            self._shared.connections.closed(leader, Channel.FETCH)
        self._shared.say(intents.DEBUG, "fetch from broker %d failed: %s", leader, error)
        self._later(leader, now_s)
        if not error.retriable:
            self._not_before_s[leader] = now_s + self._shared.config.retry_backoff_max_ms / 1000

    def answered(self, ticket: Ticket, answer: FetchResponse, now_s: float) -> None:
        """Fetch was answered, and the answer counts for some of its partitions at least."""
        leader, _ = ticket.about
        code = code_of(answer.error_code)
        if code is ErrorCode.NONE:
            self._backoffs.pop(leader, None)
            steps = self._read_steps(ticket, answer, now_s)
            if self.is_wide:
                self._reading[leader] = steps
            else:
                for _ in steps:
                    pass
            return
        meaning = meaning_of(Call.FETCH, code)
        if meaning is Next.NEW_SESSION:
            return
        if meaning is Next.FAIL:
            self._shared.fail(KafkaError.of(answer.error_code, f"fetch from broker {leader}"))
        self._later(leader, now_s)

    def unanswered(self, error: ClientError) -> None:
        """Let poll raise what another attempt cannot mend: an answer that cannot be read, or a final error."""
        if isinstance(error.__cause__, WireError) or not error.retriable:
            self._shared.fail(error)

    def _later(self, leader: int, now_s: float) -> None:
        self._shared.refresh()
        if leader not in self._backoffs:
            self._backoffs[leader] = self._shared.backoff()
        self._not_before_s[leader] = now_s + self._backoffs[leader].next_ms() / 1000

    def _read_on(self) -> None:
        """Read some more of the answer that came first."""
        leader, steps = next(iter(self._reading.items()))
        if sum(1 for _ in islice(steps, AT_ONCE)) < AT_ONCE:
            del self._reading[leader]

    def _read_steps(self, ticket: Ticket, answer: FetchResponse, now_s: float) -> Iterator[None]:
        """Read an answer, a partition in each step. In between partitions may be sought, or taken away."""
        _, offsets = ticket.about
        shared = self._shared
        nodes = tuple(Node(n.node_id, n.host, n.port, n.rack) for n in answer.node_endpoints)
        for topic in answer.responses:
            name = shared.snapshot.topic_name(topic.topic, topic.topic_id)
            for part in topic.partitions:
                state = shared.eras.state(ticket, TopicPartition(name, part.partition_index))
                # one of an older era is passed over, and one to which the former leader has answered first
                if state is not None and state.fetch_offset == offsets[state.tp]:
                    if part.error_code == ErrorCode.NONE:
                        self._take_in(state, part, now_s)
                    else:
                        self._refused(state, part, nodes, now_s)
                yield

    def _take_in(self, state: PartitionState, part: PartitionData, now_s: float) -> None:
        state.high_watermark = part.high_watermark
        state.last_stable_offset = part.last_stable_offset
        state.log_start_offset = part.log_start_offset
        state.out_of_range_since_s = None
        state.refusals = 0
        if not part.records:
            return
        config = self._shared.config
        aborted = [(a.producer_id, a.first_offset) for a in part.aborted_transactions or ()]
        self._brought += 1
        state.fetched_last = self._brought
        fetch = FetchedPartition(state, part.records, aborted, self._decoding)
        if fetch.end_offset <= state.fetch_offset and not fetch.ends_in_error:
            fetch.fail(
                KafkaError.of(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    f"{state.tp}: the batch at offset {state.fetch_offset} did not come whole: raise "
                    f"max.partition.fetch.bytes ({config.max_partition_fetch_bytes}), or it is damaged",
                )
            )
            state.retry_at_s = now_s + config.retry_backoff_max_ms / 1000
        state.fetch_offset = max(state.fetch_offset, fetch.end_offset)
        self._store(fetch)

    def _refused(self, state: PartitionState, part: PartitionData, nodes: tuple[Node, ...], now_s: float) -> None:
        code = code_of(part.error_code)
        meaning = meaning_of(Call.FETCH, code)
        if meaning is Next.RESET and state.buffered_fetches == 0:
            self._out_of_range(state, now_s)
            return
        if meaning is Next.RESET:  # it comes after the stored records, which are good
            state.retry_at_s = now_s + self._shared.config.retry_backoff_ms / 1000
            return
        state.refusals += 1
        state.retry_at_s = now_s + self._backoff.after_ms(state.refusals - 1) / 1000
        if meaning is Next.RETRY:
            return
        if meaning is Next.FIND_LEADER:
            leader = part.current_leader
            if leader.leader_id >= 0:
                self._shared.intend(LearnLeader(state.tp, leader.leader_id, leader.leader_epoch, nodes))
            if leader.leader_epoch <= self._shared.snapshot.leader_epoch(state.tp):
                self._shared.refresh()
            return
        nothing = FetchedPartition(state, b"", (), self._decoding)
        if code == ErrorCode.CORRUPT_MESSAGE:
            nothing.fail(CorruptRecordsError(state.tp, state.fetch_offset, "the broker says so"))
        else:
            nothing.fail(KafkaError.of(part.error_code, str(state.tp)))
        self._store(nothing)

    def _store(self, fetch: FetchedPartition) -> None:
        fetch.state.halted = fetch.ends_in_error
        self._shared.buffer.add(fetch)
        self._shared.wake_poll()

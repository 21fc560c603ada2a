"""Fetches ahead of the user: one request a broker at a time, two fetches a partition in store at most.

`pump` sends what is missing; it runs on the loop after an answer, a taken fetch, new metadata, a seek, an assignment.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.config.consumer import ConsumerConfig
from ottla.client.core.consumer.fetch_buffer import FetchBuffer
from ottla.client.core.consumer.fetch_session import FetchSession
from ottla.client.core.consumer.fetched import Decoding, FetchedPartition
from ottla.client.core.consumer.positions import NO_POSITION, PartitionState, Positions
from ottla.client.core.intents import Channel
from ottla.client.core.metadata import NO_LEADER, Node
from ottla.client.errors import ClientError, CorruptRecordsError, KafkaError, code_of
from ottla.client.net.cluster import Cluster
from ottla.client.net.connection import Connection
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

log = logging.getLogger("ottla.consumer")

#: One fetch the user reads from, one that waits behind it.
_FETCHES_AHEAD = 2
#: While a partition's store is full its broker is asked for the others; not for long, so that it can join in again.
_SHORT_WAIT_MS = 20
_LOST_SESSION = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
_OUTDATED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)


class Fetcher:
    """The loop's side of reading."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        buffer: FetchBuffer,
        decoding: Decoding,
        config: ConsumerConfig,
        *,
        news: Callable[[], None],
        out_of_range: Callable[[PartitionState], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`news` is called when something came; `out_of_range` and `failed` when the consumer has to decide."""
        self._cluster = cluster
        self._positions = positions
        self._buffer = buffer
        self._decoding = decoding
        self._config = config
        self._news = news
        self._out_of_range = out_of_range
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[int, FetchSession] = {}
        self._fetching: set[int] = set()
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        cluster.on_update(lambda before, after: self.pump())

    def pump(self) -> None:
        """Ask every broker that is not being asked for what can be fetched from it."""
        if self._closed:
            return
        wanted: dict[int, dict[TopicPartition, PartitionState]] = {}
        full: set[int] = set()
        now_s = self._loop.time()
        stored_bytes = sum(state.buffered_bytes for state in self._positions)
        for state in self._positions:
            leader = self._cluster.snapshot.leader(state.tp)
            if state.fetch_offset == NO_POSITION or state.paused or state.validate:
                continue
            if leader == NO_LEADER:
                self._cluster.request_update()
            elif state.halted and state.buffered_fetches:
                continue  # the error that is stored is to be told first
            elif state.retry_at_s > now_s:
                self._later(state.retry_at_s)
            elif self._is_full(state, stored_bytes):
                full.add(leader)
            else:
                wanted.setdefault(leader, {})[state.tp] = state
        for leader, states in wanted.items():
            if leader not in self._fetching:
                self._try_fetch(leader, states, hurried=leader in full)

    async def close(self) -> None:
        """Stop fetching."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._connecting.values():
            task.cancel()
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)

    def _is_full(self, state: PartitionState, stored_bytes: int) -> bool:
        ahead = state.buffered_fetches
        return ahead >= _FETCHES_AHEAD or (ahead > 0 and stored_bytes >= self._config.fetch_max_bytes)

    # asking

    def _try_fetch(self, leader: int, states: dict[TopicPartition, PartitionState], *, hurried: bool) -> None:
        try:
            self._fetch(leader, states, hurried=hurried)
        except Exception as error:  # noqa: BLE001  whatever it is, poll raises it and reading goes on
            self._fetching.discard(leader)
            retry_at_s = self._loop.time() + self._config.retry_backoff_max_ms / 1000
            for state in states.values():
                state.retry_at_s = retry_at_s
            self._later(retry_at_s)
            self._failed(error)

    def _fetch(self, leader: int, states: dict[TopicPartition, PartitionState], *, hurried: bool) -> None:
        connection = self._cluster.open_connection(leader, Channel.FETCH)
        if connection is None:
            self._connect(leader)
            return
        self._fetching.add(leader)
        request = self._request(leader, states, hurried=hurried)
        asked = {tp: (state, state.version, state.fetch_offset) for tp, state in states.items()}
        timeout_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
        version = connection.versions.choose(ApiKey.FETCH)
        future = connection.send(ApiKey.FETCH, version, request, timeout_ms)
        future.add_done_callback(lambda done: self._answered(leader, connection, asked, done))

    def _request(self, leader: int, states: dict[TopicPartition, PartitionState], *, hurried: bool) -> FetchRequest:
        snapshot = self._cluster.snapshot
        session = self._sessions.setdefault(leader, FetchSession())
        max_bytes = self._config.max_partition_fetch_bytes
        wanted = {
            tp: (
                snapshot.topic_id(tp.topic),
                FetchPartition(
                    tp.partition, snapshot.leader_epoch(tp), state.fetch_offset, partition_max_bytes=max_bytes
                ),
            )
            for tp, state in states.items()
        }
        if session.made_anew(wanted):
            session.reset()
        parts = session.build(wanted)
        by_topic: dict[str, list[FetchPartition]] = {}
        for tp, part in parts.partitions.items():
            by_topic.setdefault(tp.topic, []).append(part)
        forgotten: dict[str, list[int]] = {}
        for tp in parts.forgotten:
            forgotten.setdefault(tp.topic, []).append(tp.partition)
        config = self._config
        return FetchRequest(
            max_wait_ms=min(config.fetch_max_wait_ms, _SHORT_WAIT_MS) if hurried else config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=int(config.read_committed),
            session_id=parts.session_id,
            session_epoch=parts.epoch,
            topics=tuple(FetchTopic(snapshot.topic_id(t), t, tuple(ps)) for t, ps in by_topic.items()),
            forgotten_topics_data=tuple(
                ForgottenTopic(snapshot.topic_id(t), t, tuple(ps)) for t, ps in forgotten.items()
            ),
        )

    def _connect(self, leader: int) -> None:
        if leader not in self._connecting:
            self._connecting[leader] = asyncio.create_task(self._open(leader), name=f"ottla-fetch-from-{leader}")

    async def _open(self, leader: int) -> None:
        try:
            await self._cluster.connection(leader, Channel.FETCH)
        except ClientError as error:
            log.debug("no connection to broker %d: %s", leader, error)
            if not error.retriable:
                self._failed(error)
            self._cluster.request_update()
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)
        finally:
            self._connecting.pop(leader, None)
        self.pump()

    # answers

    def _answered(
        self,
        leader: int,
        connection: Connection,
        asked: dict[TopicPartition, tuple[PartitionState, int, int]],
        done: "asyncio.Future[Any]",
    ) -> None:
        self._fetching.discard(leader)
        lost = None if done.cancelled() else done.exception()
        if self._closed or done.cancelled():
            return
        if lost is not None:
            log.debug("fetch from %s failed: %s", connection.name, lost)
            if isinstance(lost.__cause__, WireError) and isinstance(lost, ClientError):
                self._failed(lost)
            self._ask_anew(leader)
            return
        try:
            self._read(leader, connection, asked, done.result())
        except Exception as error:  # noqa: BLE001  whatever it is, poll raises it and reading goes on
            self._failed(error)
            self._ask_anew(leader)

    def _ask_anew(self, leader: int) -> None:
        self._sessions[leader].reset()
        self._ask_later()

    def _ask_later(self) -> None:
        self._cluster.request_update()
        self._later(self._loop.time() + self._config.retry_backoff_ms / 1000)

    def _read(
        self,
        leader: int,
        connection: Connection,
        asked: dict[TopicPartition, tuple[PartitionState, int, int]],
        answer: FetchResponse,
    ) -> None:
        code = code_of(answer.error_code)
        self._sessions[leader].answered(code, answer.session_id)
        if code == ErrorCode.NONE:
            self._read_partitions(answer, asked)
        elif not code.retriable:
            self._failed(KafkaError.of(answer.error_code, f"fetch from {connection.name}"))
            return
        elif code not in _LOST_SESSION:
            self._ask_later()
            return
        self.pump()

    def _read_partitions(
        self, answer: FetchResponse, asked: dict[TopicPartition, tuple[PartitionState, int, int]]
    ) -> None:
        snapshot = self._cluster.snapshot
        nodes = [Node(n.node_id, n.host, n.port, n.rack) for n in answer.node_endpoints]
        for topic in answer.responses:
            name = snapshot.topic_name(topic.topic, topic.topic_id)
            for part in topic.partitions:
                found = asked.get(TopicPartition(name, part.partition_index))
                if found is None:
                    continue
                state, version, offset = found
                if (
                    state.version != version
                    or state.fetch_offset != offset
                    or self._positions.get(state.tp) is not state
                ):
                    continue  # sought or taken away meanwhile
                if part.error_code == ErrorCode.NONE:
                    self._take_in(state, part)
                else:
                    self._refused(state, part, nodes)

    def _take_in(self, state: PartitionState, part: PartitionData) -> None:
        state.high_watermark = part.high_watermark
        state.last_stable_offset = part.last_stable_offset
        state.log_start_offset = part.log_start_offset
        if not part.records:
            return
        aborted = [(a.producer_id, a.first_offset) for a in part.aborted_transactions or ()]
        fetch = FetchedPartition(state, part.records, aborted, self._decoding)
        if fetch.end_offset <= state.fetch_offset and not fetch.ends_in_error:
            fetch.fail(
                KafkaError.of(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    f"{state.tp}: the batch at offset {state.fetch_offset} did not come whole; raise "
                    f"max.partition.fetch.bytes ({self._config.max_partition_fetch_bytes}), or it is damaged",
                )
            )
            state.retry_at_s = self._loop.time() + self._config.retry_backoff_max_ms / 1000
        state.fetch_offset = max(state.fetch_offset, fetch.end_offset)
        self._store(fetch)

    def _refused(self, state: PartitionState, part: PartitionData, nodes: list[Node]) -> None:
        code = code_of(part.error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and state.buffered_fetches == 0:
            self._out_of_range(state)
            return
        state.retry_at_s = self._loop.time() + self._config.retry_backoff_ms / 1000
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:  # what is stored is good, and comes first
            return
        if code in _OUTDATED:
            leader = part.current_leader
            if leader.leader_id >= 0:
                snapshot = self._cluster.snapshot.with_leader(state.tp, leader.leader_id, leader.leader_epoch, nodes)
                if snapshot is not self._cluster.snapshot:
                    self._cluster.learn(snapshot)
                    return
            self._cluster.request_update()
            return
        nothing = FetchedPartition(state, b"", (), self._decoding)
        if code == ErrorCode.CORRUPT_MESSAGE:
            nothing.fail(CorruptRecordsError(state.tp, state.fetch_offset, "so the broker says"))
        else:
            nothing.fail(KafkaError.of(part.error_code, str(state.tp)))
        self._store(nothing)

    def _store(self, fetch: FetchedPartition) -> None:
        fetch.state.halted = fetch.ends_in_error
        self._buffer.add(fetch)
        self._news()

    def _later(self, at_s: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self._it_is_time)

    def _it_is_time(self) -> None:
        # forgotten first: a loop's timers may be a millisecond early, and then `pump` has to set another
        self._timer = None
        self.pump()

"""Coordinators of groups and transactions. Each runs on the broker that leads its partition of an internal topic.

The model keeps the logs of the internal topics once, not per replica. Either an append is there for every later
coordinator, or it is refused. It is refused to a broker that no longer leads the partition, also if the broker does not
know that yet. Such a broker answers from its memory until it hears of its successor. `ottla.coordinator` decides what a
coordinator does.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ottla.base.types import TopicPartition
from ottla.coordinator.decision import Decision, LogRecord, SetTimer, WriteMarkers
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.txn.shard import TransactionShard
from ottla.wire.batch import CURRENT_MAGIC, TRANSACTIONAL_FLAG, BatchHeader
from ottla.wire.errors import ErrorCode
from ottla.wire.hashing import coordinator_partition
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from sim.cluster.producers import ProducerTable
from sim.commits import watched
from sim.history import Marked

if TYPE_CHECKING:
    from sim.cluster.cluster import Cluster
    from sim.cluster.node import Node

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)

S = TypeVar("S", GroupShard, TransactionShard)


class LoggedBatch(NamedTuple):
    """What one append has written: records, perhaps of a transactional producer, or the end of a transaction."""

    records: tuple[LogRecord, ...]
    producer_id: int | None = None
    commit: bool | None = None


class CoordinatorLog:
    """One partition of an internal topic."""

    def __init__(self) -> None:
        self.batches: list[LoggedBatch] = []
        self.producers = ProducerTable()

    def write(self, records: tuple[LogRecord, ...]) -> None:
        """Append a batch without a transaction."""
        self.batches.append(LoggedBatch(records))

    def write_transactional(
        self, records: tuple[LogRecord, ...], producer_id: int, epoch: int, guard: int
    ) -> ErrorCode:
        """Append a batch of an open transaction."""
        header = BatchHeader(
            0, 0, 0, CURRENT_MAGIC, 0, TRANSACTIONAL_FLAG, len(records) - 1, 0, 0, producer_id, epoch, -1, len(records)
        )
        error = self.producers.refusal(header, guard, check_sequence=False)
        if error is ErrorCode.NONE:
            self.producers.appended(header, len(self.batches))
            self.batches.append(LoggedBatch(records, producer_id))
        return error

    def write_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, *, commit: bool, bumps_epoch: bool
    ) -> ErrorCode:
        """Append the end of a transaction."""
        error = self.producers.marker_refusal(producer_id, epoch, coordinator_epoch, bumps_epoch=bumps_epoch)
        if error is ErrorCode.NONE:
            self.producers.ended(producer_id, epoch, coordinator_epoch, len(self.batches), commit=commit)
            self.batches.append(LoggedBatch((), producer_id, commit))
        return error


class Phase(Enum):
    """Whether a coordinator takes requests."""

    LOADING = "loading"
    ACTIVE = "active"
    STOPPED = "stopped"


class Coordinator(Generic[S]):
    """A partition's shard on the broker that leads it, or believes that it does: decide, append, apply, reply."""

    def __init__(self, node: "Node", tp: TopicPartition, epoch: int, shard: S) -> None:
        self.node = node
        self.tp = tp
        self.epoch = epoch
        self.shard: S = shard
        self.phase = Phase.LOADING
        self.log = node.cluster.logs[tp]
        self._inbox: deque[tuple[Callable[[int], Decision], int]] = deque()
        self._busy = False
        self._guard = 0
        self._token = 0
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._timers: dict[tuple[str, ...], Any] = {}
        node.later(node.cluster.news_s(), self._load)

    # inputs

    def submit(self, call: Callable[[int, int], Decision], answer: Callable[[Any], None], *, guard: int = 0) -> None:
        """A request: `call(token, now_ms)`; `answer` gets its response. `guard` is for a transactional append."""
        self._token += 1
        token = self._token
        self._waiting[token] = answer
        self._take(lambda now_ms: call(token, now_ms), guard)

    def tell(self, call: Callable[[int], Decision]) -> None:
        """An input without a reply."""
        if self.phase is Phase.ACTIVE:
            self._take(call, 0)

    def write_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, *, commit: bool, bumps_epoch: bool
    ) -> ErrorCode:
        """Write the end of a transaction into the log of this group coordinator."""
        error = self._append_error()
        if error is ErrorCode.NONE:
            error = self.log.write_marker(producer_id, epoch, coordinator_epoch, commit=commit, bumps_epoch=bumps_epoch)
        if error is ErrorCode.NONE and isinstance(self.shard, GroupShard):
            ended = self.shard.apply_marker(producer_id, commit)
            assert ended.rest is None, "transactions of the simulator have few offsets"
        return error

    def step_down(self) -> None:
        """Another broker coordinates now: tell the clients that wait."""
        if self.phase is Phase.ACTIVE and isinstance(self.shard, GroupShard):
            for reply in self.shard.unloaded().replies:
                self._reply(reply.token, reply.response)
        self.phase = Phase.STOPPED  # what is decided already is in the log, and is still answered
        self._inbox.clear()

    def stop(self) -> None:
        """The broker's process ends."""
        self.phase = Phase.STOPPED
        self._waiting.clear()
        self._inbox.clear()

    @property
    def is_deposed(self) -> bool:
        """Whether another broker coordinates, and this one has not heard of it yet."""
        return self.node.cluster.controller.image.partitions[self.tp].leader_epoch != self.epoch

    # the engine

    def _load(self) -> None:
        if self.phase is not Phase.LOADING:
            return
        now_ms = self.node.cluster.loop.now_ms()
        for batch in self.log.batches:
            apply(self.shard, batch, now_ms)
        self.phase = Phase.ACTIVE
        for decision in self.shard.loaded(now_ms):
            self._take(partial(_this, decision), 0)

    def _take(self, call: Callable[[int], Decision], guard: int) -> None:
        self._inbox.append((call, guard))
        if self._busy:
            return
        self._busy = True
        try:
            while self._inbox:
                following, self._guard = self._inbox.popleft()
                self._carry_out(following(self.node.cluster.loop.now_ms()))
        finally:
            self._busy = False

    def _carry_out(self, decision: Decision) -> None:
        delay_s = 0.0
        if decision.records:
            error = self._append(decision)
            if error is ErrorCode.NONE:
                delay_s = self.node.cluster.replication_s()
            else:
                decision = self.shard.append_failed(decision, error)
        for reply in decision.replies:
            if delay_s:
                self.node.later(delay_s, self._reply, reply.token, reply.response)
            else:
                self._reply(reply.token, reply.response)
        for timer in decision.timers:
            self._forget_timer(timer.key)
            if isinstance(timer, SetTimer):
                self._timers[timer.key] = self.node.later(timer.delay_ms / 1000, self._fired, timer.key)
        for effect in decision.effects:
            assert isinstance(effect, WriteMarkers), "groups of the simulator are small"
            write_markers(self, effect)
        assert decision.rest is None, "groups of the simulator have few offsets"

    def _fired(self, key: tuple[str, ...]) -> None:
        self._timers.pop(key, None)
        self.tell(lambda now_ms: self.shard.timer(key, now_ms))

    def _forget_timer(self, key: tuple[str, ...]) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _reply(self, token: int, response: Any) -> None:
        answer = self._waiting.pop(token, None)
        if answer is not None:
            answer(response)

    def _append_error(self) -> ErrorCode:
        """Why this broker cannot append; NONE if it can."""
        cluster = self.node.cluster
        state = cluster.controller.image.partitions[self.tp]
        if state.leader_epoch != self.epoch or not self.node.alive:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        connected = sum(cluster.connected(self.node, other) for other in cluster.nodes.values())
        return ErrorCode.NONE if connected >= cluster.rules.min_isr else ErrorCode.NOT_ENOUGH_REPLICAS

    def _append(self, decision: Decision) -> ErrorCode:
        error = self._append_error()
        if error is not ErrorCode.NONE:
            return error
        as_whom = decision.transactional
        if as_whom is None:
            self.log.write(decision.records)
        else:
            error = self.log.write_transactional(
                decision.records, as_whom.producer_id, as_whom.producer_epoch, self._guard
            )
            if error is not ErrorCode.NONE:
                return error
        apply(self.shard, self.log.batches[-1], self.node.cluster.loop.now_ms())
        return ErrorCode.NONE


def apply(shard: GroupShard | TransactionShard, batch: LoggedBatch, now_ms: int) -> None:
    """Replay one batch of the log into the shard's state."""
    if isinstance(shard, TransactionShard):
        for record in batch.records:
            shard.apply(record, now_ms)
    elif batch.commit is not None and batch.producer_id is not None:
        ended = shard.apply_marker(batch.producer_id, batch.commit)
        assert ended.rest is None, "transactions of the simulator have few offsets"
    else:
        for record in batch.records:
            if batch.producer_id is None:
                shard.apply(record, now_ms)
            else:
                shard.apply_transactional(batch.producer_id, record)


def assign(cluster: "Cluster", node: "Node") -> None:
    """Start the coordinators of partitions that the broker leads by its image; stop the others."""
    for tp, state in node.image.partitions.items():
        if tp.topic not in INTERNAL_TOPICS:
            continue
        running = node.coordinators.get(tp)
        wanted = state.leader == node.node_id
        if running is not None and (not wanted or running.epoch != state.leader_epoch):
            running.step_down()
            del node.coordinators[tp]
            running = None
        if wanted and running is None:
            node.coordinators[tp] = _start(cluster, node, tp, state.leader_epoch)


def _start(cluster: "Cluster", node: "Node", tp: TopicPartition, epoch: int) -> Coordinator[Any]:
    if tp.topic == OFFSETS_TOPIC:
        # told when a commit is in the log: the answers of two connections come in any order
        note = partial(cluster.history.add, node.host)
        return Coordinator(node, tp, epoch, watched(tp, _group_shard(node), note, cluster.commits_known))
    return Coordinator(node, tp, epoch, TransactionShard(epoch, cluster.controller.new_producer_id))


def _group_shard(node: "Node") -> GroupShard:
    config = GroupConfig(
        group_min_session_timeout_ms=500,
        group_initial_rebalance_delay_ms=node.cluster.rules.rebalance_delay_ms,
    )

    def topic_id(name: str) -> bytes | None:
        topic = node.image.topics.get(name)
        return None if topic is None else topic.topic_id

    return GroupShard(config, topic_id)


def offsets_in_log(coordinator: Coordinator[GroupShard], asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    """What the group's committed offsets are by the log, to which a deposed coordinator no longer listens."""
    shard, now_ms = _group_shard(coordinator.node), coordinator.node.cluster.loop.now_ms()
    for batch in coordinator.log.batches:
        apply(shard, batch, now_ms)
    return shard.fetch_offsets(asked, require_stable=False)


def group_coordinator(node: "Node", group_id: str) -> Coordinator[GroupShard] | ErrorCode:
    """The coordinator of a group on this broker, or why it has none that takes requests."""
    return _find(node, OFFSETS_TOPIC, group_id)


def transaction_coordinator(node: "Node", transactional_id: str) -> Coordinator[TransactionShard] | ErrorCode:
    """The coordinator of a transactional id on this broker, or why it has none that takes requests."""
    return _find(node, TRANSACTIONS_TOPIC, transactional_id)


def _find(node: "Node", topic: str, name: str) -> Coordinator[Any] | ErrorCode:
    running = node.coordinators.get(partition_of(topic, name))
    if running is None or running.phase is Phase.STOPPED:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if running.phase is Phase.LOADING else running


def ask(
    coordinator: Coordinator[S] | ErrorCode,
    call: Callable[[S, int, int], Decision],
    answer: Callable[[Any], None],
    refuse: Callable[[ErrorCode], Any],
) -> None:
    """`call(shard, token, now_ms)` if there is a coordinator; else answer what `refuse` makes of the error."""
    if isinstance(coordinator, ErrorCode):
        answer(refuse(coordinator))
    else:
        coordinator.submit(partial(call, coordinator.shard), answer)


def partition_of(topic: str, name: str) -> TopicPartition:
    """The partition of an internal topic that coordinates `name`."""
    from sim.cluster.cluster import COORDINATORS

    return TopicPartition(topic, coordinator_partition(name, COORDINATORS))


def write_markers(coordinator: Coordinator[Any], effect: WriteMarkers) -> None:
    """Send a transaction's end to the leader of each of its partitions."""
    node = coordinator.node
    bumps = effect.transaction_version >= 2

    def note(there: "Node", tp: TopicPartition, offset: int) -> None:
        told = Marked(effect.transactional_id, effect.producer_epoch, effect.commit)
        what = f"{told.transactional_id} {effect.producer_id}/{told.epoch}: {'commit' if told.commit else 'abort'}"
        node.cluster.history.add(there.host, "marker", f"{what} at {tp}@{offset}", told)

    for tp in effect.partitions:

        def write(there: "Node", back: Callable[[ErrorCode], None], tp: TopicPartition = tp) -> None:
            if tp.topic in INTERNAL_TOPICS:
                running = there.coordinators.get(tp)
                if running is None or running.phase is not Phase.ACTIVE:
                    back(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    return
                back(
                    running.write_marker(
                        effect.producer_id,
                        effect.producer_epoch,
                        effect.coordinator_epoch,
                        commit=effect.commit,
                        bumps_epoch=bumps,
                    )
                )
                return
            there.replica(tp).append_marker(
                effect.producer_id,
                effect.producer_epoch,
                effect.coordinator_epoch,
                commit=effect.commit,
                bumps_epoch=bumps,
                answer=lambda error, offset: back(error),
                written=lambda offset: note(there, tp, offset),
            )

        def written(error: ErrorCode | None, tp: TopicPartition = tp) -> None:
            result = {tp: ErrorCode.NETWORK_EXCEPTION if error is None else error}
            coordinator.tell(
                lambda now_ms: coordinator.shard.markers_written(
                    effect.transactional_id, effect.producer_id, effect.producer_epoch, result, now_ms
                )
            )

        state = node.image.partitions.get(tp)
        node.cluster.ask(node, -1 if state is None else state.leader, write, written)


def _this(decision: Decision, now_ms: int) -> Decision:
    """What was decided already, as a call."""
    return decision

"""Which batches are sent now, to which broker, in which request."""

from functools import partial
from typing import NamedTuple

from ottla.base.rng import Rng
from ottla.base.types import TopicPartition
from ottla.client.core.backoff import Backoff
from ottla.client.core.intents import Ask, Broker, Connect, Message, RefreshMetadata, Track
from ottla.client.core.metadata import NO_LEADER, ClusterSnapshot
from ottla.client.core.producer.accumulator import PartitionQueue
from ottla.client.core.producer.batch import ProducerBatch
from ottla.client.core.producer.identity import ProducerIdentity
from ottla.client.core.producer.shared import Shared
from ottla.client.core.refreshing import Refreshing
from ottla.wire.apis import ApiKey
from ottla.wire.compression import Compression
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


class Sent(NamedTuple):
    """The ticket of a produce request: the broker, and each batch with the identity that it was sent with."""

    leader: int
    batches: dict[TopicPartition, tuple[ProducerBatch, ProducerIdentity]]

    def __hash__(self) -> int:
        return id(self)


class ConnectionState:
    """What sending has to know about the connection to one broker."""

    __slots__ = ("connecting", "in_flight", "is_open", "retry_at_s")

    def __init__(self) -> None:
        self.is_open = False
        self.connecting = False
        #: How many produce requests have no answer yet (with acks=0: are not accepted by the socket yet).
        self.in_flight = 0
        self.retry_at_s = 0.0


class Sending:
    """Sends what may be sent."""

    def __init__(self, shared: Shared, rng: Rng) -> None:
        config, self._accumulator, self._sequencer, self._transactions, self._intend = shared
        self._config = config
        self._linger_s = config.linger_ms / 1000
        self._compression = Compression[config.compression_type.upper()]
        self._has_answer = config.required_acks != 0
        self.snapshot = ClusterSnapshot()
        self.connections: dict[int, ConnectionState] = {}
        #: Without sequences nobody but this client keeps the order, also when the leader moves: one batch at a time of
        #: a partition, if there may be one request at a time.
        self._keeps_order = self._sequencer is None and config.max_in_flight_requests_per_connection == 1
        #: Partitions with a batch in a request that has no answer yet; only for `_keeps_order`.
        self._on_wire: set[TopicPartition] = set()
        #: Requests for metadata because a partition has no leader.
        self._refreshing = Refreshing(Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng))

    def connection(self, node_id: int) -> ConnectionState:
        """The connection to a broker."""
        connection = self.connections.get(node_id)
        if connection is None:
            connection = self.connections[node_id] = ConnectionState()
        return connection

    def any_in_flight(self) -> bool:
        """Whether a request has no answer yet."""
        return any(connection.in_flight for connection in self.connections.values())

    def learn(self, snapshot: ClusterSnapshot) -> None:
        """There is a new snapshot of the cluster."""
        before, self.snapshot = self.snapshot, snapshot
        if self._refreshing.is_slow and any(
            before.leadership(batch.tp) != snapshot.leadership(batch.tp) for batch in self._accumulator.queued()
        ):
            self._refreshing.news()

    def send(self, now_s: float) -> float | None:
        """Send what can be sent now. Returns when to call this again; None if only other events can matter."""
        due, next_s = self._accumulator.waiting(now_s, self._linger_s)
        by_leader: dict[int, list[PartitionQueue]] = {}
        leaderless: set[str] = set()
        for queue in due:
            leader = self.snapshot.leader(queue.tp)
            if leader == NO_LEADER:
                leaderless.add(queue.tp.topic)
            elif self._transactions is None or self._transactions.may_send(queue.tp):
                by_leader.setdefault(leader, []).append(queue)
        if leaderless:
            next_s = earlier(next_s, self._look_for_leaders(leaderless, now_s))
        if self._transactions is not None:
            self._transactions.add_partitions(now_s)
        for leader, queues in by_leader.items():
            next_s = earlier(next_s, self._send_to(leader, queues, now_s))
        return next_s

    def _look_for_leaders(self, topics: set[str], now_s: float) -> float:
        if self._refreshing.due_s(now_s) <= now_s:
            self._refreshing.asked(now_s)
            self._intend(RefreshMetadata())
            gone = topics - self.snapshot.topics.keys()
            if gone:  # deleted, while records wait for them: track them again, as new topics
                self._intend(Track(frozenset(gone)))
        return self._refreshing.due_s(now_s)

    def _send_to(self, leader: int, queues: list[PartitionQueue], now_s: float) -> float | None:
        """Send to one broker until nothing is left or enough requests are in flight. Returns what `send` returns."""
        connection = self.connection(leader)
        if not connection.is_open:
            return self._connect(leader, connection, now_s)
        next_s: float | None = None
        filling = True
        while connection.in_flight < self._config.max_in_flight_requests_per_connection:
            batches, wait_s = self._drain(queues, now_s, filling=filling)
            next_s = earlier(next_s, wait_s)
            if not batches:
                break
            self._send(leader, connection, batches)
            filling = False
            queues = queues[1:] + queues[:1]  # a partition with large batches must not keep the others waiting
        return next_s

    def _connect(self, leader: int, connection: ConnectionState, now_s: float) -> float | None:
        if connection.connecting:
            return None
        if now_s < connection.retry_at_s:
            return connection.retry_at_s
        connection.connecting = True
        self._intend(Connect(leader))
        return None

    def _drain(
        self, queues: list[PartitionQueue], now_s: float, *, filling: bool
    ) -> tuple[list[ProducerBatch], float | None]:
        """Take a batch of each queue, as many as fit in one request. With `filling`, also batches that are not full."""
        batches: list[ProducerBatch] = []
        size = 0
        next_s: float | None = None
        for queue in queues:
            batch = queue.first
            if batch is None or (not filling and not queue.ready):
                continue
            if batch.retry_at_s > now_s:
                next_s = earlier(next_s, batch.retry_at_s)
                continue
            if queue.tp in self._on_wire or (self._sequencer is not None and not self._sequencer.may_send(batch)):
                continue
            size += batch.size_bytes
            if batches and size > self._config.max_request_size:
                break
            batches.append(self._take(queue))
        return batches, next_s

    def _take(self, queue: PartitionQueue) -> ProducerBatch:
        """Take the queue's first batch and give it its sequence, before `may_send` of the next batch: that one may
        raise the epoch."""
        batch = self._accumulator.take(queue)
        if self._sequencer is not None:
            self._sequencer.assign(batch)
            batch.transactional = self._transactions is not None
        batch.attempts += 1
        batch.on_wire = True
        return batch

    def _send(self, leader: int, connection: ConnectionState, batches: list[ProducerBatch]) -> None:
        connection.in_flight += 1
        if self._keeps_order:
            self._on_wire.update(batch.tp for batch in batches)
        for batch in batches:
            batch.goes_to(leader)
        caps = self._transactions.caps if self._transactions is not None else {}
        self._intend(
            Ask(
                Sent(leader, {batch.tp: (batch, batch.identity) for batch in batches}),
                Broker(leader),
                ApiKey.PRODUCE,
                partial(self._encode, batches, self.snapshot),
                self._config.request_timeout_ms,
                caps.get(ApiKey.PRODUCE),
                self._has_answer,
            )
        )

    def back(self, sent: Sent) -> ConnectionState:
        """A request is answered, or will not be. Returns what is known of its connection."""
        connection = self.connections[sent.leader]
        connection.in_flight -= 1
        self._on_wire.difference_update(sent.batches)
        return connection

    def _encode(self, batches: list[ProducerBatch], snapshot: ClusterSnapshot) -> Message:
        """The request. The shell makes it outside the lock, because compression takes long."""
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            batch.seal(self._compression, self._config.compression_level)
            by_topic.setdefault(batch.tp.topic, []).append(PartitionProduceData(batch.tp.partition, batch.stamp()))
        return ProduceRequest(
            self._config.transactional_id,
            self._config.required_acks,
            self._config.request_timeout_ms,
            tuple(TopicProduceData(snapshot.topic_id(t), t, tuple(data)) for t, data in by_topic.items()),
        )


def earlier(a: float | None, b: float | None) -> float | None:
    """The earlier of two times; None means that there is no such time."""
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)

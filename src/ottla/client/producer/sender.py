"""Takes due batches from the accumulator, sends them, and decides what every answer means.

`pump` is the whole engine: it runs on the loop whenever something may have changed (a batch was begun, an answer came,
a timer fired, metadata or a transaction moved), sends what can be sent, and arms one timer for what cannot go yet.
Order and exactly-once are the Sequencer's; this module asks it before a batch goes and after an answer came.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.accumulator import Accumulator, PartitionQueue
from ottla.client.core.backoff import Backoff
from ottla.client.core.metadata import NO_LEADER, ClusterSnapshot, Node
from ottla.client.core.producer_batch import ProducerBatch
from ottla.client.core.sequencing import PERHAPS_WRITTEN, ProducerIdentity, Sequencer, Verdict
from ottla.client.errors import (
    AbortableTransactionError,
    ClientError,
    KafkaError,
    RecordTooLargeError,
    RequestTimeoutError,
    code_of,
)
from ottla.client.net.cluster import Cluster
from ottla.client.net.connection import Connection
from ottla.client.net.retry import short_backoff
from ottla.client.producer import transaction_requests
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.transactions import Transactions
from ottla.wire.apis import ApiKey
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.produce import (
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

log = logging.getLogger("ottla.producer")

_OUT_OF_ORDER = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class _Sent(NamedTuple):
    batch: ProducerBatch
    identity: ProducerIdentity


class Sender:
    """The loop's side of one producer."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        sequencer: Sequencer | None,
        config: ProducerConfig,
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._sequencer = sequencer
        self._config = config
        self.transactions: Transactions | None = None
        self._loop = asyncio.get_running_loop()
        self._compression = Compression[config.compression_type.upper()]
        self._in_flight: dict[int, int] = {}
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._identifying: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wake_requested = False
        self._closed = False
        #: Topics whose users were told that their batches are too large.
        self._split_topics: set[str] = set()
        cluster.on_update(self._metadata_changed)

    # any thread

    def wake(self) -> None:
        """Have `pump` run soon."""
        if not self._wake_requested:
            self._wake_requested = True
            if not self._closed:
                self._loop.call_soon_threadsafe(self.pump)

    # the loop

    def pump(self) -> None:
        """Send what can be sent now."""
        self._wake_requested = False
        if self._closed:
            return
        now_s = self._loop.time()
        self._expire(now_s)
        if self._sequencer is not None and not self._ready_to_send(self._sequencer):
            self._arm(self._oldest_expiry(now_s), now_s)
            return
        due, next_s = self._accumulator.waiting(now_s, self._config.linger_ms / 1000)
        by_leader: dict[int, list[PartitionQueue]] = {}
        for queue in due:
            leader = self._cluster.snapshot.leader(queue.tp)
            if leader == NO_LEADER:
                self._cluster.request_update()
            elif self.transactions is None or self.transactions.may_send(queue.tp):
                by_leader.setdefault(leader, []).append(queue)
        for leader, queues in by_leader.items():
            wait_s = self._send_to(leader, queues, now_s)
            next_s = _earlier(next_s, wait_s)
        self._arm(_earlier(next_s, self._oldest_expiry(now_s)), now_s)

    def fail_all(self, error: Exception) -> None:
        """Give up on everything that has not been acknowledged."""
        for batch in self._accumulator.incomplete():
            self._give_up(batch, error)

    def halt(self, error: Exception) -> None:
        """The loop has ended, in the middle of anything: settle what is open, and touch nothing else."""
        self._closed = True
        for batch in self._accumulator.incomplete():
            self._settle(batch, -1, -1, error)

    def drop_queued(self, error: Exception) -> None:
        """Give up on what is not on the wire (a transaction is being aborted)."""
        for batch in self._accumulator.queued():
            self._give_up(batch, error)

    async def close(self) -> None:
        """Stop at once."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [t for t in (self._identifying, *self._connecting.values()) if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # what goes out

    def _ready_to_send(self, sequencer: Sequencer) -> bool:
        if not sequencer.resolve() and self.transactions is not None:
            self.transactions.batch_failed(
                AbortableTransactionError("it is unknown whether records sent earlier were written"), had_sequence=True
            )
        if self.transactions is not None:
            if self.transactions.in_error:
                self.drop_queued(
                    AbortableTransactionError(
                        f"the transaction is not committed: {self.transactions.cause or 'aborted'}"
                    )
                )
            return not sequencer.needs_identity
        if sequencer.needs_identity and self._identifying is None and self._accumulator.incomplete():
            self._identifying = asyncio.create_task(self._identify(sequencer), name="ottla-init-producer-id")
        return not sequencer.needs_identity

    def _send_to(self, leader: int, queues: list[PartitionQueue], now_s: float) -> float | None:
        """Send to one broker until nothing is left or enough is in flight; when to try again, if by time."""
        connection = self._cluster.open_connection(leader)
        if connection is None:
            self._connect(leader)
            return None
        next_s: float | None = None
        first_pass = True
        while self._has_room(connection, leader):
            batches, wait_s = self._drain(queues, now_s, filling=first_pass)
            next_s = _earlier(next_s, wait_s)
            if not batches:
                break
            self._send(connection, leader, batches)
            first_pass = False
            queues = queues[1:] + queues[:1]  # a large partition must not starve the others
        if not connection.is_writable and self._config.required_acks == 0:
            self._connect(leader)
        return next_s

    def _has_room(self, connection: Connection, leader: int) -> bool:
        """Whether one more request may go; without acknowledgements only the socket can say stop."""
        if self._config.required_acks == 0:
            return connection.is_writable
        return self._in_flight.get(leader, 0) < self._config.max_in_flight_requests_per_connection

    def _drain(
        self, queues: list[PartitionQueue], now_s: float, *, filling: bool
    ) -> tuple[list[ProducerBatch], float | None]:
        """One batch of each queue, as many as one request takes; with `filling`, also one that is not full."""
        batches: list[ProducerBatch] = []
        size = 0
        next_s: float | None = None
        for queue in queues:
            batch = self._accumulator.first(queue)
            if batch is None or (not filling and not queue.ready):
                continue
            if batch.retry_at_s > now_s:
                next_s = _earlier(next_s, batch.retry_at_s)
                continue
            if self._sequencer is not None and not self._sequencer.may_send(batch):
                continue
            size += batch.size_bytes
            if batches and size > self._config.max_request_size:
                break
            batches.append(self._accumulator.take(queue))
        return batches, next_s

    def _send(self, connection: Connection, leader: int, batches: list[ProducerBatch]) -> None:
        by_topic: dict[str, list[PartitionProduceData]] = {}
        sent: dict[TopicPartition, _Sent] = {}
        for batch in batches:
            batch.seal(self._compression, self._config.compression_level)
            if self._sequencer is not None:
                self._sequencer.assign(batch)
                batch.transactional = self.transactions is not None
            batch.attempts += 1
            sent[batch.tp] = _Sent(batch, batch.identity)
            batch.on_wire = True
            by_topic.setdefault(batch.tp.topic, []).append(PartitionProduceData(batch.tp.partition, batch.stamp()))
        snapshot = self._cluster.snapshot
        request = ProduceRequest(
            self._config.transactional_id,
            self._config.required_acks,
            self._config.request_timeout_ms,
            tuple(TopicProduceData(snapshot.topic_id(t), t, tuple(data)) for t, data in by_topic.items()),
        )
        caps = self.transactions.caps if self.transactions is not None else {}
        version = connection.versions.choose(ApiKey.PRODUCE, caps.get(ApiKey.PRODUCE))
        if self._config.required_acks == 0:
            self._send_unacknowledged(connection, version, request, sent)
            return
        self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
        future = connection.send(ApiKey.PRODUCE, version, request, self._config.request_timeout_ms)
        future.add_done_callback(lambda done: self._answered(leader, sent, done))

    def _send_unacknowledged(
        self, connection: Connection, version: int, request: ProduceRequest, sent: dict[TopicPartition, _Sent]
    ) -> None:
        try:
            connection.send_without_answer(ApiKey.PRODUCE, version, request)
        except ClientError as error:
            for batch, _ in sent.values():
                batch.on_wire = False
                self._give_up(batch, error)
            return
        for batch, _ in sent.values():
            batch.on_wire = False
            self._settle(batch, -1, -1, None)

    def _connect(self, leader: int) -> None:
        if leader not in self._connecting:
            self._connecting[leader] = asyncio.create_task(self._open(leader), name=f"ottla-produce-to-{leader}")

    async def _open(self, leader: int) -> None:
        try:
            await (await self._cluster.connection(leader)).drained()
        except ClientError as error:
            log.debug("no connection to broker %d: %s", leader, error)
            self._cluster.request_update()
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)
        finally:
            self._connecting.pop(leader, None)
            self.wake()

    async def _identify(self, sequencer: Sequencer) -> None:
        """Ask any broker for a producer id (KIP-98)."""

        async def attempt() -> ProducerIdentity:
            message = transaction_requests.init_producer_id(None, 2**31 - 1, ProducerIdentity())
            answer: InitProducerIdResponse = await self._cluster.request_any(ApiKey.INIT_PRODUCER_ID, message)
            if answer.error_code != ErrorCode.NONE:
                raise KafkaError.of(answer.error_code)
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        try:
            timeout_ms = self._config.delivery_timeout_ms
            sequencer.identified(await self._cluster.retrying(attempt, what="InitProducerId", timeout_ms=timeout_ms))
        except ClientError as error:
            self.fail_all(error)
        finally:
            self._identifying = None
            self.wake()

    # what comes back

    def _answered(self, leader: int, sent: dict[TopicPartition, _Sent], done: "asyncio.Future[Any]") -> None:
        self._in_flight[leader] -= 1
        error = None if done.cancelled() else done.exception()
        if self._closed or done.cancelled():
            return
        if error is not None:
            self._cluster.request_update()
            for batch, identity in sent.values():
                self._handle(batch, identity, PartitionProduceResponse(error_code=ErrorCode.NETWORK_EXCEPTION), error)
        else:
            self._read_answer(done.result(), sent)
        self.pump()

    def _read_answer(self, answer: ProduceResponse, sent: dict[TopicPartition, _Sent]) -> None:
        snapshot = self._cluster.snapshot
        for topic in answer.responses:
            name = snapshot.topic_name(topic.name, topic.topic_id)
            for part in topic.partition_responses:
                found = sent.pop(TopicPartition(name, part.index), None)
                if found is not None:
                    self._learn_leader(found.batch.tp, part, answer.node_endpoints)
                    self._handle(found.batch, found.identity, part, None)
        for batch, identity in sent.values():  # the topic was made anew meanwhile, or the broker said nothing of it
            self._handle(batch, identity, PartitionProduceResponse(error_code=ErrorCode.UNKNOWN_TOPIC_ID), None)

    def _learn_leader(
        self, tp: TopicPartition, part: PartitionProduceResponse, endpoints: tuple[NodeEndpoint, ...]
    ) -> None:
        if part.error_code == ErrorCode.NONE:
            return
        if code_of(part.error_code).retriable:
            self._cluster.request_update()
        leader = part.current_leader
        if leader.leader_id >= 0:
            nodes = [Node(n.node_id, n.host, n.port, n.rack) for n in endpoints]
            snapshot = self._cluster.snapshot.with_leader(tp, leader.leader_id, leader.leader_epoch, nodes)
            if snapshot is not self._cluster.snapshot:
                self._cluster.learn(snapshot)

    def _handle(
        self,
        batch: ProducerBatch,
        sent_as: ProducerIdentity,
        part: PartitionProduceResponse,
        cause: BaseException | None,
    ) -> None:
        batch.on_wire = False
        code = code_of(part.error_code)
        if code in _WRITTEN:
            if self._sequencer is not None:
                known = part.base_offset >= 0
                self._sequencer.acknowledged(batch, part.base_offset + batch.record_count - 1 if known else -1)
            self._settle(batch, part.base_offset, part.log_append_time_ms, None)
            return
        batch.perhaps_written |= code in PERHAPS_WRITTEN
        error = cause if isinstance(cause, ClientError) else KafkaError.of(code, part.error_message or str(batch.tp))
        if code in RecordTooLargeError.codes:
            if self._split(batch, sent_as):
                return
            error = _too_large(batch, error)
        verdict = Verdict.RETRY if code.retriable else Verdict.FAIL
        if self._sequencer is not None:
            verdict = self._sequencer.refused(batch, sent_as, code, part.log_start_offset)
        in_error = self.transactions is not None and self.transactions.in_error
        if verdict is Verdict.FAIL or in_error or batch.outcome.done or batch.attempts > self._config.retries:
            self._give_up(batch, _unknown(batch) if code in _OUT_OF_ORDER and batch.whole_perhaps_written else error)
            return
        config = self._config
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self._cluster.rng)
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:  # the markers of the transaction before are being written
            backoff = short_backoff(self._cluster.rng)
        batch.retry_at_s = self._loop.time() + backoff.after_ms(batch.attempts - 1) / 1000
        batch.last_error = error
        self._accumulator.put_back(batch)

    def _split(self, batch: ProducerBatch, sent_as: ProducerIdentity) -> bool:
        """Send the halves of a batch that the broker refuses for its size, whatever `retries` says; whether it did."""
        in_error = self.transactions is not None and self.transactions.in_error
        echo = self._sequencer is not None and batch.identity != sent_as
        if batch.record_count < 2 or batch.outcome.done or in_error or echo:
            return False
        if batch.tp.topic not in self._split_topics:
            self._split_topics.add(batch.tp.topic)
            log.warning(
                "%s: a batch of %d bytes is larger than the broker takes (max.message.bytes), such batches are split: "
                "a smaller batch.size would save it",
                batch.tp,
                batch.size_bytes,
            )
        halves = self._accumulator.split(batch)
        if self._sequencer is not None:
            self._sequencer.split(batch, halves, may_be_written=batch.perhaps_written)
        batch.release()
        return True

    def _give_up(self, batch: ProducerBatch, error: Exception) -> None:
        """The user hears that `batch` failed. While it is on the wire, its sequence waits for the answer."""
        if not batch.on_wire:
            self._accumulator.drop(batch)
            if self._sequencer is not None:
                may_be_written = batch.perhaps_written or batch.whole_perhaps_written
                self._sequencer.given_up(batch, may_be_written=may_be_written)
        if self.transactions is not None:
            self.transactions.batch_failed(error, had_sequence=batch.identity.valid)
        self._settle(batch, -1, -1, error)

    def _settle(self, batch: ProducerBatch, base_offset: int, append_time_ms: int, error: Exception | None) -> None:
        if not batch.outcome.settle(base_offset, append_time_ms, error):
            return
        self._accumulator.settled(batch)
        for delivery, callback in batch.callbacks:
            _call(callback, delivery)
        if not batch.on_wire:
            batch.release()

    # time and metadata

    def _expire(self, now_s: float) -> None:
        """`delivery.timeout.ms`: what is older fails, on the wire or not (KIP-91)."""
        timeout_ms = self._config.delivery_timeout_ms
        for batch in self._accumulator.older_than(now_s - timeout_ms / 1000):
            error = RequestTimeoutError(
                f"{batch.tp}: {batch.record_count} records were not delivered in {timeout_ms} ms"
            )
            error.__cause__ = batch.last_error
            self._give_up(batch, error)

    def _oldest_expiry(self, now_s: float) -> float | None:
        created_s = self._accumulator.oldest_s()
        return None if created_s is None else created_s + self._config.delivery_timeout_ms / 1000

    def _arm(self, at_s: float | None, now_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            self._timer = self._loop.call_at(max(at_s, now_s), self.pump)

    def _metadata_changed(self, before: ClusterSnapshot, after: ClusterSnapshot) -> None:
        for name, topic in after.topics.items():
            if before.topics.get(name) is not topic:
                available = [number for number, info in topic.partitions.items() if info.leader in after.nodes]
                self._accumulator.set_partitions(name, len(topic.partitions), available)
        self.wake()


def _too_large(batch: ProducerBatch, error: ClientError) -> ClientError:
    """The broker's answer with what the user can do."""
    if batch.record_count > 1:
        return error
    return RecordTooLargeError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{batch.tp}: the record alone takes a batch of {batch.size_bytes} bytes, more than the topic's "
        "max.message.bytes allows",
    )


def _unknown(batch: ProducerBatch) -> ClientError:
    """Of a part of a batch that the broker may have had as a whole."""
    return KafkaError.of(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"{batch.tp}: it is unknown whether {batch.record_count} records were written: the answer about their batch "
        "was lost, or its leader lost the partition, and when it was sent again the topic's max.message.bytes did not "
        "allow it any more; look at the end of the partition before you send them again",
    )


def _earlier(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


def _call(callback: Callable[..., object], delivery: object) -> None:
    try:
        callback(delivery)
    except BaseException:  # SystemExit too: here it would end the loop, and with it all other records
        log.exception("on_delivery raised")

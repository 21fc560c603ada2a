"""The producer as one automaton: an event and the time go in, intents come out.

Each of its parts has a module: `accumulator` (records and batches that wait), `sequencing` (sequence numbers and
epochs), `answers` (the one table that says what an answer means), `fates` (does what the table says), `sending` (which
batches go to which broker), `calls` and `transactions` (requests to the coordinator). This module joins the parts.
Every event ends in `_move`: it expires batches that are too old, sends what may be sent, and sets `wake_at_s`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ottla.base.rng import Rng
from ottla.base.types import TopicPartition
from ottla.client.config.producer import ProducerConfig
from ottla.client.core.intents import (
    AnyBroker,
    Channel,
    Core,
    Finish,
    LearnLeader,
    Message,
    NotSentError,
    RefreshMetadata,
    Untrack,
)
from ottla.client.core.metadata import ClusterSnapshot, Node
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.core.producer import transaction_requests as requests
from ottla.client.core.producer.accumulator import Accumulator, DeliveryMaker, Limits
from ottla.client.core.producer.answers import is_gap
from ottla.client.core.producer.batch import ProducerBatch
from ottla.client.core.producer.calls import Call, Calls, CallTicket
from ottla.client.core.producer.fates import Fates
from ottla.client.core.producer.identity import NO_IDENTITY, ProducerIdentity
from ottla.client.core.producer.sending import Sending, Sent, earlier
from ottla.client.core.producer.sequencing import Sequencer
from ottla.client.core.producer.shared import Shared
from ottla.client.core.producer.transaction_state import TxnInput
from ottla.client.core.producer.transactions import Transactions
from ottla.client.errors import AbortableTransactionError, ClientError, UnsupportedVersionError, code_of
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import NodeEndpoint, PartitionProduceResponse, ProduceResponse
from ottla.wire.spare_memory import SpareMemory

#: The timeout in InitProducerId of a producer without transactions.
_NO_TIMEOUT_MS = 2**31 - 1


class ProducerCore(Core):
    """All that one producer decides."""

    def __init__(
        self, config: ProducerConfig, rng: Rng, delivery: DeliveryMaker, spare: SpareMemory | None = None
    ) -> None:
        """`delivery` makes what the user gets for a record (`accumulator.DeliveryMaker`); `spare` is the batches'."""
        super().__init__()
        self.config = config
        self.accumulator = Accumulator(
            Limits(config.batch_size, config.buffer_memory, config.max_request_size),
            rng,
            delivery,
            partitioner=config.partitioner_class,
            ignore_keys=config.partitioner_ignore_keys,
            check=self._check_send,
            spare=spare,
        )
        self.sequencer = None
        if config.enable_idempotence:
            self.sequencer = Sequencer(transactional=config.transactional_id is not None)
        self._calls = Calls(self.intend, rng, config.request_timeout_ms)
        self.transactions: Transactions | None = None
        if config.transactional_id is not None and self.sequencer is not None:
            self.transactions = Transactions(
                config.transactional_id,
                config.transaction_timeout_ms,
                config.max_block_ms,
                self.sequencer,
                self._calls,
                self.intend,
                two_phase=config.transaction_two_phase_commit_enable,
            )
        shared = Shared(config, self.accumulator, self.sequencer, self.transactions, self.intend)
        self._fates = Fates(shared, rng)
        self._sending = Sending(shared, rng)
        #: When the next topic may have been unused for `metadata.max.idle.ms`.
        self._idle_at_s: float | None = None

    # events of the user

    def flush(self, now_s: float) -> None:
        """Send batches that are not full, too."""
        self.accumulator.close_all()
        self._move(now_s)

    def want_room(self, now_s: float) -> None:
        """A caller waits for room in `buffer.memory`: send batches that are not full, too. `RoomFreed` follows when a
        batch is settled."""
        self.accumulator.room_wanted = True
        self._move(now_s)

    def init_transactions(self, user: Any, now_s: float) -> None:
        """Begin init_transactions(). Here and below `user` is the user's call; a `Finish` ends it."""
        self._for_user(user, lambda txn: txn.initialize(user, now_s), now_s)

    def begin_transaction(self, user: Any, now_s: float) -> None:
        """Open a transaction."""

        def begin(transactions: Transactions) -> None:
            transactions.begin()
            self.intend(Finish(user))

        self._for_user(user, begin, now_s)

    def send_offsets(
        self,
        user: Any,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        now_s: float,
    ) -> None:
        """Add a group's offsets to the transaction."""
        self._for_user(user, lambda txn: txn.send_offsets(user, offsets, group, now_s), now_s)

    def end_transaction(self, user: Any, call: TxnInput, now_s: float) -> None:
        """Commit, abort, prepare or detach, as soon as every batch is settled."""

        def end(transactions: Transactions) -> None:
            transactions.end(user, call)
            self.accumulator.close_all()

        self._for_user(user, end, now_s)

    def close(self, reason: Exception, now_s: float) -> None:
        """Give up on every batch, and accept no more records."""
        self.accumulator.close(reason)
        self._fates.give_up_all(reason)
        self._fates.tell_of_room(now_s, self._sending.any_in_flight)

    def not_taken(self, error: ClientError) -> None:
        """A record was refused. Any thread may call this, under the lock, and wakes the core then."""
        if self.transactions is not None:
            self.transactions.not_taken(error)
            self.accumulator.close_all()

    # events of the shell

    def woken(self, now_s: float) -> None:
        """Do what is due by now."""
        self._calls.woken(now_s)
        self._move(now_s)

    def metadata(self, before: ClusterSnapshot, after: ClusterSnapshot, now_s: float) -> None:
        """Take over the leaders and the numbers of partitions."""
        self._sending.learn(after)
        for name, topic in after.topics.items():
            if before.topics.get(name) is not topic or not self.accumulator.knows(name):
                available = [number for number, info in topic.partitions.items() if info.leader in after.nodes]
                self.accumulator.set_partitions(name, len(topic.partitions), available, now_s)
                self._idle_at_s = earlier(self._idle_at_s, now_s + self.config.metadata_max_idle_ms / 1000)
        self._move(now_s)

    def connected(self, node_id: int, channel: Channel, now_s: float) -> None:
        """Batches may go to this broker."""
        connection = self._sending.connection(node_id)
        connection.is_open, connection.connecting = True, False
        self._move(now_s)

    def unreachable(self, node_id: int, channel: Channel, error: ClientError, now_s: float) -> None:
        """Try again after a pause. And ask for metadata: the partitions may have another leader by now.

        A batch that fails in the end says what has kept it here.
        """
        for batch in self.accumulator.queued():
            if self._sending.snapshot.leader(batch.tp) == node_id:
                batch.last_error = error
        connection = self._sending.connection(node_id)
        connection.is_open = connection.connecting = False
        connection.retry_at_s = now_s + self.config.retry_backoff_ms / 1000
        self.intend(RefreshMetadata())
        self._move(now_s)

    def disconnected(self, node_id: int, channel: Channel, now_s: float) -> None:
        """Send nothing to this broker until it is connected again."""
        if channel is Channel.MAIN and node_id in self._sending.connections:
            self._sending.connections[node_id].is_open = False
            self._move(now_s)

    def answered(self, ticket: Any, answer: Any, now_s: float) -> None:
        """A call or a produce request was answered."""
        if isinstance(ticket, CallTicket):
            self._calls.answered(ticket, answer, now_s)
        else:
            self._sending.back(ticket)
            if answer is None:  # acks=0: the socket has accepted the request
                for batch, _ in ticket.batches.values():
                    batch.on_wire = False
                    self._fates.acknowledge(batch, -1, -1)
            else:
                self._read_answer(ticket, answer, now_s)
        self._move(now_s)

    def failed(self, ticket: Any, error: ClientError, now_s: float) -> None:
        """A call or a produce request will get no answer."""
        if isinstance(ticket, CallTicket):
            self._calls.failed(ticket, error, now_s)
        else:
            connection = self._sending.back(ticket)
            if isinstance(error, NotSentError):
                connection.is_open = False  # it was lost, and `disconnected` has not told so yet
            self._lost(ticket, error, now_s)
        self._move(now_s)

    def abandoned(self, call: Any, now_s: float) -> None:
        """The user has stopped waiting for a call."""
        if self.transactions is not None:
            self.transactions.abandoned(call, now_s)
            if self.transactions.end_waits:  # the next call in the queue wants to end the transaction
                self.accumulator.close_all()
        self._move(now_s)

    # inside

    def _check_send(self) -> None:
        if self.transactions is not None:
            self.transactions.check_send()

    def _for_user(self, user: Any, call: Callable[[Transactions], None], now_s: float) -> None:
        assert self.transactions is not None
        try:
            call(self.transactions)
        except ClientError as error:
            self.intend(Finish(user, None, error))
        self._move(now_s)

    def _move(self, now_s: float) -> None:
        """Do everything that can be done now, and set `wake_at_s` for the rest."""
        self.accumulator.set_dates(now_s)
        self._fates.expire(now_s)
        next_s = None
        if self._may_send(now_s):
            next_s = self._sending.send(now_s)
            if self.sequencer is not None and self.sequencer.needs_identity:  # `send` has used up the last epoch
                self._may_send(now_s)
        transactions = self.transactions
        while transactions is not None and transactions.end_waits and self.accumulator.is_empty:
            transactions.all_settled(now_s)
        next_s = earlier(next_s, self._fates.tell_of_room(now_s, self._sending.any_in_flight))
        oldest_s = self.accumulator.oldest_s()
        if oldest_s is not None:
            next_s = earlier(next_s, oldest_s + self.config.delivery_timeout_ms / 1000)
        if self._idle_at_s is not None and now_s >= self._idle_at_s:
            self._forget_idle(now_s)
        self.wake_at_s = earlier(earlier(next_s, self._calls.wake_at_s), self._idle_at_s)

    def _may_send(self, now_s: float) -> bool:
        sequencer = self.sequencer
        if sequencer is None:
            return True
        may_go_on = sequencer.resolve()
        if self.transactions is None:
            if sequencer.needs_identity and self._calls.idle and not self.accumulator.is_empty:
                self._identify(sequencer, now_s)
            return not sequencer.needs_identity
        if not may_go_on:
            self.transactions.batch_failed(
                AbortableTransactionError("it is unknown whether records sent earlier were written"), had_sequence=True
            )
        if self.transactions.in_error:
            cause = self.transactions.cause
            what = "was aborted" if cause is None else f"has failed: {cause}"
            self._fates.give_up_queued(AbortableTransactionError(f"the transaction of this record {what}"))
        return not sequencer.needs_identity

    def _identify(self, sequencer: Sequencer, now_s: float) -> None:
        """Ask any broker for a producer id (KIP-98)."""

        def done(answer: Any, now_s: float) -> None:
            sequencer.identified(ProducerIdentity(answer.producer_id, answer.producer_epoch))

        def failed(error: ClientError, now_s: float) -> None:
            if not error.retriable:
                self._fates.give_up_all(error)
                return
            # Each batch has its own `delivery.timeout.ms`. For those that have time left it is asked for again at once.
            for batch in self.accumulator.queued():
                batch.last_error = error

        make: Callable[[], Message] = partial(requests.init_producer_id, None, _NO_TIMEOUT_MS, NO_IDENTITY)
        self._calls.add(
            Call(
                "InitProducerId",
                AnyBroker(),
                ApiKey.INIT_PRODUCER_ID,
                make,
                requests.identity_error,
                done,
                failed,
                self.config.delivery_timeout_ms,
            ),
            now_s,
        )

    def _forget_idle(self, now_s: float) -> None:
        """Forget topics that were not used for `metadata.max.idle.ms`."""
        idle, self._idle_at_s = self.accumulator.idle_topics(now_s, self.config.metadata_max_idle_ms / 1000)
        if not idle:
            return
        for topic, partitions in idle.items():
            self.accumulator.forget(topic)
            if self.sequencer is not None:
                self.sequencer.forget(TopicPartition(topic, number) for number in range(partitions))
        self.intend(Untrack(frozenset(idle)))

    def _read_answer(self, sent: Sent, answer: ProduceResponse, now_s: float) -> None:
        snapshot = self._sending.snapshot
        open_batches = sent.batches
        for topic in answer.responses:
            name = snapshot.topic_name(topic.name, topic.topic_id)
            for part in topic.partition_responses:
                found = open_batches.pop(TopicPartition(name, part.index), None)
                if found is not None:
                    if part.error_code != ErrorCode.NONE:
                        self._learn(found[0], part, answer.node_endpoints)
                    self._fates.answered(*found, part, now_s)
        # the topic was deleted and created again meanwhile, or the answer says nothing about it
        for batch, identity in open_batches.values():
            nothing = PartitionProduceResponse(error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            self._fates.answered(batch, identity, nothing, now_s)

    def _lost(self, sent: Sent, error: ClientError, now_s: float) -> None:
        if error.retriable:
            self.intend(RefreshMetadata())
        for batch, identity in sent.batches.values():
            if isinstance(error, NotSentError):
                self._fates.not_sent(batch)
            elif isinstance(error, UnsupportedVersionError):  # it cannot be sent at all
                batch.on_wire = False
                self._fates.give_up(batch, error)
            else:  # also when the client cannot say who it is any more: the broker may have it
                self._fates.lost(batch, identity, error, now_s)

    def _learn(self, batch: ProducerBatch, part: PartitionProduceResponse, endpoints: tuple[NodeEndpoint, ...]) -> None:
        """Use the leader that an error names (KIP-951). A retriable error is also a reason to ask for metadata, and so
        is a gap: it may be a leader that was deposed who tells of it."""
        code = code_of(part.error_code)
        if code.retriable or is_gap(code):
            self.intend(RefreshMetadata())
        leader = part.current_leader
        if leader.leader_id >= 0:
            nodes = tuple(Node(n.node_id, n.host, n.port, n.rack) for n in endpoints)
            self.intend(LearnLeader(batch.tp, leader.leader_id, leader.leader_epoch, nodes))

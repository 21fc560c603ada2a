"""The producer as one automaton: an event and the time go in, intents come out.

Its parts, each in a module of its own: `accumulator` (records and batches that wait), `sequencing` (the idempotent
producer's counters), `answers` (the one table of what an answer means), `fates` (carries it out), `sending` (what goes
where), `calls` and `transactions` (the talk with the coordinator). This module joins them: every event ends in `_move`,
which expires what is too old, sends what may be sent, and says when to come back.
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
from ottla.client.core.producer.batch import ProducerBatch
from ottla.client.core.producer.calls import Call, Calls, CallTicket
from ottla.client.core.producer.fates import Fates
from ottla.client.core.producer.identity import NO_IDENTITY, ProducerIdentity
from ottla.client.core.producer.sending import Sending, Sent, earlier
from ottla.client.core.producer.sequencing import Sequencer
from ottla.client.core.producer.transactions import Transactions
from ottla.client.errors import AbortableTransactionError, ClientError, code_of
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import NodeEndpoint, PartitionProduceResponse, ProduceResponse

#: A plain producer has no transaction that could time out.
_NO_TIMEOUT_MS = 2**31 - 1


class ProducerCore(Core):
    """All that one producer decides."""

    def __init__(self, config: ProducerConfig, rng: Rng, delivery: DeliveryMaker) -> None:
        """`delivery` makes what users get for a record, see `accumulator`."""
        super().__init__()
        self._config = config
        self.accumulator = Accumulator(
            Limits(config.batch_size, config.buffer_memory, config.max_request_size),
            rng,
            delivery,
            partitioner=config.partitioner_class,
            ignore_keys=config.partitioner_ignore_keys,
            check=self._check_send,
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
            )
        parts = (config, self.accumulator, self.sequencer, self.transactions)
        self._fates = Fates(*parts, rng, self.intend)
        self._sending = Sending(*parts, self.intend)
        self._idle_at_s: float | None = None

    # events of the user

    def flush(self, now_s: float) -> None:
        """Send what fills, too."""
        self.accumulator.close_all()
        self._move(now_s)

    def want_room(self, now_s: float) -> None:
        """Somebody waits for `buffer.memory`: send what fills, and say `RoomFreed` when a batch is settled."""
        self.accumulator.room_wanted = True
        self._move(now_s)

    def init_transactions(self, user: Any, now_s: float) -> None:
        """`user` gets a `Finish`, here and below."""
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

    def end_transaction(self, user: Any, commit: bool | None, now_s: float) -> None:
        """Commit, abort, or (None) detach: when everything that was sent is settled."""

        def end(transactions: Transactions) -> None:
            transactions.end(user, commit=commit)
            self.accumulator.close_all()

        self._for_user(user, end, now_s)

    def close(self, reason: Exception, now_s: float) -> None:
        """Fail everything that is open, and take no more."""
        self.accumulator.close(reason)
        self._fates.give_up_all(reason)

    # events of the shell

    def woken(self, now_s: float) -> None:
        """Something is due."""
        self._calls.woken(now_s)
        self._move(now_s)

    def metadata(self, before: ClusterSnapshot, after: ClusterSnapshot, now_s: float) -> None:
        """Leaders have moved, topics have come."""
        self._sending.snapshot = after
        for name, topic in after.topics.items():
            if before.topics.get(name) is not topic or not self.accumulator.knows(name):
                available = [number for number, info in topic.partitions.items() if info.leader in after.nodes]
                self.accumulator.set_partitions(name, len(topic.partitions), available, now_s)
                self._idle_at_s = earlier(self._idle_at_s, now_s + self._config.metadata_max_idle_ms / 1000)
        self._move(now_s)

    def connected(self, node_id: int, channel: Channel, now_s: float) -> None:
        """Batches may go to this broker."""
        link = self._sending.link(node_id)
        link.is_open, link.connecting = True, False
        self._move(now_s)

    def unreachable(self, node_id: int, channel: Channel, error: ClientError, now_s: float) -> None:
        """Perhaps somebody else leads by now."""
        link = self._sending.link(node_id)
        link.is_open = link.connecting = False
        link.retry_at_s = now_s + self._config.retry_backoff_ms / 1000
        self.intend(RefreshMetadata())
        self._move(now_s)

    def disconnected(self, node_id: int, channel: Channel, now_s: float) -> None:
        """Nothing can be sent there until it is connected again."""
        if channel is Channel.MAIN and node_id in self._sending.links:
            self._sending.links[node_id].is_open = False
            self._move(now_s)

    def answered(self, ticket: Any, answer: Any, now_s: float) -> None:
        """A call or a produce request was answered."""
        if isinstance(ticket, CallTicket):
            self._calls.answered(ticket, answer, now_s)
        else:
            self._sending.links[ticket.leader].in_flight -= 1
            if answer is None:  # acks=0: the socket has it
                for batch, _ in ticket.batches.values():
                    batch.on_wire = False
                    self._fates.acknowledge(batch, -1, -1)
            else:
                self._read_answer(ticket, answer, now_s)
        self._move(now_s)

    def failed(self, ticket: Any, error: ClientError, now_s: float) -> None:
        """A call or a produce request has no answer."""
        if isinstance(ticket, CallTicket):
            self._calls.failed(ticket, error, now_s)
        else:
            link = self._sending.links[ticket.leader]
            link.in_flight -= 1
            if isinstance(error, NotSentError):
                link.is_open = False  # it went before anybody could say so
            self._lost(ticket, error, now_s)
        self._move(now_s)

    def abandoned(self, call: Any, now_s: float) -> None:
        """The user has stopped waiting for a call."""
        if self.transactions is not None:
            self.transactions.abandoned(call, now_s)
            if self.transactions.end_waits:  # of somebody who came behind
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
        """Go on as far as it goes; what comes next by time is in `wake_at_s`."""
        self.accumulator.date(now_s)
        self._fates.expire(now_s)
        next_s = None
        if self._may_send(now_s):
            next_s = self._sending.send(now_s)
            if self.sequencer is not None and self.sequencer.needs_identity:  # the epochs were used up meanwhile
                self._may_send(now_s)
        transactions = self.transactions
        while transactions is not None and transactions.end_waits and self.accumulator.is_empty:
            transactions.all_settled(now_s)
        oldest_s = self.accumulator.oldest_s()
        if oldest_s is not None:
            next_s = earlier(next_s, oldest_s + self._config.delivery_timeout_ms / 1000)
        if self._idle_at_s is not None and now_s >= self._idle_at_s:
            self._forget_idle(now_s)
        self.wake_at_s = earlier(earlier(next_s, self._calls.wake_at_s), self._idle_at_s)

    def _may_send(self, now_s: float) -> bool:
        sequencer = self.sequencer
        if sequencer is None:
            return True
        settled = sequencer.resolve()
        if self.transactions is None:
            if sequencer.needs_identity and self._calls.idle and not self.accumulator.is_empty:
                self._identify(sequencer, now_s)
            return not sequencer.needs_identity
        if not settled:
            self.transactions.batch_failed(
                AbortableTransactionError("it is unknown whether records sent earlier were written"), had_sequence=True
            )
        if self.transactions.in_error:
            cause = self.transactions.cause or "aborted"
            self._fates.give_up_queued(AbortableTransactionError(f"the transaction is not committed: {cause}"))
        return not sequencer.needs_identity

    def _identify(self, sequencer: Sequencer, now_s: float) -> None:
        """Ask any broker for a producer id (KIP-98)."""

        def done(answer: Any, now_s: float) -> None:
            sequencer.identified(ProducerIdentity(answer.producer_id, answer.producer_epoch))

        make: Callable[[], Message] = partial(requests.init_producer_id, None, _NO_TIMEOUT_MS, NO_IDENTITY)
        self._calls.add(
            Call(
                "InitProducerId",
                AnyBroker(),
                ApiKey.INIT_PRODUCER_ID,
                make,
                requests.identity_error,
                done,
                lambda error, now_s: self._fates.give_up_all(error),
                self._config.delivery_timeout_ms,
            ),
            now_s,
        )

    def _forget_idle(self, now_s: float) -> None:
        """Topics that were not used for `metadata.max.idle.ms` cost nothing more."""
        idle, self._idle_at_s = self.accumulator.idle_topics(now_s, self._config.metadata_max_idle_ms / 1000)
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
        # the topic was made anew meanwhile, or the broker said nothing of it
        for batch, identity in open_batches.values():
            nothing = PartitionProduceResponse(error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            self._fates.answered(batch, identity, nothing, now_s)

    def _lost(self, sent: Sent, error: ClientError, now_s: float) -> None:
        if error.retriable:
            self.intend(RefreshMetadata())
        for batch, identity in sent.batches.values():
            if isinstance(error, NotSentError):
                self._fates.not_sent(batch)
            elif error.retriable:
                self._fates.lost(batch, identity, error, now_s)
            else:  # it cannot be sent at all: broker and client have no version in common
                batch.on_wire = False
                self._fates.give_up(batch, error)

    def _learn(self, batch: ProducerBatch, part: PartitionProduceResponse, endpoints: tuple[NodeEndpoint, ...]) -> None:
        """An error may come with the news of who leads (KIP-951), and is a reason to ask who does."""
        if code_of(part.error_code).retriable:
            self.intend(RefreshMetadata())
        leader = part.current_leader
        if leader.leader_id >= 0:
            nodes = tuple(Node(n.node_id, n.host, n.port, n.rack) for n in endpoints)
            self.intend(LearnLeader(batch.tp, leader.leader_id, leader.leader_epoch, nodes))

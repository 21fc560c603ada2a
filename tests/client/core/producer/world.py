"""A ProducerCore in virtual time: two brokers whose partitions move, connections that break, answers that are lost.

The core is the whole of it, as the shell drives it: every intent is carried out here, every event is fed to it.
Requests are the real ones: batches are encoded, and read again by the brokers.
"""

import random
from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from ottla.client.config.producer import producer_config
from ottla.client.core import intents
from ottla.client.core.metadata import ClusterSnapshot, Node, PartitionInfo, TopicInfo
from ottla.client.core.negotiation import TRANSACTION_VERSION, BrokerVersions
from ottla.client.core.producer.core import ProducerCore
from ottla.client.core.producer.fates import RoomFreed, Settle
from ottla.client.core.producer.identity import ProducerIdentity
from ottla.client.core.producer.transaction_state import TxnState
from ottla.client.errors import DisconnectedError
from ottla.client.producer.delivery import Delivery
from ottla.wire.apis import ApiKey
from ottla.wire.batch import parse_header
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.messages.end_txn import EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.records import decode_batch
from tests.client.core.producer.cluster_model import Coordinator, Leader

TOPIC = "t"
TOPIC_ID = b"t" * 16
PARTITIONS = 2
COORDINATOR = 0
CONFIG: dict[str, object] = {
    "bootstrap.servers": "model:1",
    "linger.ms": 0,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 40,
    "request.timeout.ms": 1_000,
    "delivery.timeout.ms": 5_000,
    "max.block.ms": 3_000,
}


@dataclass(eq=False)
class Asked:
    """A request on its way, or its answer on the way back."""

    ask: intents.Ask
    message: Any
    answer: Any = None


@dataclass
class Wire:
    """A connection: requests on their way, and answers."""

    requests: deque[Asked] = field(default_factory=deque)
    answers: deque[Asked] = field(default_factory=deque)


@dataclass(eq=False)
class Record:
    """What a user sent, and what became of it."""

    value: int
    partition: int
    delivery: Delivery
    transaction: int | None


class World:
    """One producer and its cluster. Steps are methods; `finish` heals everything and waits for the end."""

    def __init__(
        self, *, transactional: bool = False, implicit: bool = True, first_epoch: int = 0, **config: object
    ) -> None:
        """`first_epoch` is that of every producer id that a plain producer gets."""
        settings = CONFIG | {name.replace("_", "."): value for name, value in config.items()}
        if transactional:
            settings["transactional.id"] = "x"
        self.transactional = transactional
        self.now_s = 100.0
        self.core = ProducerCore(producer_config(settings), random.Random(1), Delivery)
        self.leaders = {number: Leader() for number in range(PARTITIONS)}
        self.coordinator = Coordinator(self.leaders, implicit)
        self.led_by = dict.fromkeys(range(PARTITIONS), 1)
        self.epochs = dict.fromkeys(range(PARTITIONS), 0)
        #: The leaders and epochs that the producer has still to hear of; the first is what metadata says now.
        self.news: dict[int, deque[PartitionInfo]] = {n: deque([PartitionInfo(1, 0)]) for n in range(PARTITIONS)}
        #: By node and partition: what a leader had that was deposed, and has not heard of it.
        self.unaware: dict[tuple[int, int], Leader] = {}
        #: Connections by broker; the coordinator has one of its own. A broken one is made anew.
        self.wires = {node: Wire() for node in (COORDINATOR, 1, 2)}
        #: Requests of connections that broke; the broker has their bytes and reads them later.
        self.ghosts: deque[tuple[int, Asked]] = deque()
        #: Tickets whose requests have left, and whose answers nobody waits for.
        self.given_up: set[object] = set()
        self.records: list[Record] = []
        self.finished: dict[Any, intents.Finish] = {}
        self.next_producer_id = 7
        self.first_epoch = first_epoch
        self.transaction: int | None = None
        self.results: dict[int, str] = {}
        self._feeding = False
        self._events: deque[tuple[Any, tuple[Any, ...]]] = deque()
        self.feed(self.core.metadata, ClusterSnapshot(), self.snapshot())
        if transactional:
            self.call(self.core.init_transactions)

    # the shell

    def feed(self, event: Any, *arguments: Any) -> None:
        self._events.append((event, arguments))
        if self._feeding:
            return
        self._feeding = True
        while self._events:
            event, arguments = self._events.popleft()
            event(*arguments, self.now_s)
            for intent in self.core.take_intents():
                self._carry_out(intent)
        self._feeding = False

    def _carry_out(self, intent: Any) -> None:
        match intent:
            case intents.Ask():
                self._ask(intent)
            case intents.AskVersions(ticket):
                level = 2 if self.coordinator.implicit else 1
                self._events.append((self.core.answered, (ticket, BrokerVersions({}, {TRANSACTION_VERSION: level}))))
            case intents.Connect(node_id, channel):
                self._events.append((self.core.connected, (node_id, channel)))
            case intents.Finish(call):
                self.finished[call] = intent
            case Settle(batch, base_offset, log_append_time_ms, error):
                batch.outcome.settle(base_offset, log_append_time_ms, error)
            case intents.RefreshMetadata() | intents.LearnLeader():
                self.tell_metadata()
            case intents.GiveUp(ticket):
                self.given_up.add(ticket)
            case intents.Say() | RoomFreed() | intents.ForgetCoordinator() | intents.Track() | intents.Untrack():
                pass
            case _:
                raise AssertionError(f"nobody carries out {intent}")

    def _ask(self, ask: intents.Ask) -> None:
        message = ask.message if isinstance(ask.message, tuple) else ask.message()
        node = ask.to.node_id if isinstance(ask.to, intents.Broker) else COORDINATOR
        self.wires[node].requests.append(Asked(ask, message))

    def tell_metadata(self) -> None:
        self._events.append((self.core.metadata, (ClusterSnapshot(), self.snapshot())))

    def snapshot(self) -> ClusterSnapshot:
        infos = {n: self.news[n][0] for n in range(PARTITIONS)}
        nodes = {node: Node(node, "model", node) for node in (1, 2)}
        return ClusterSnapshot(
            nodes=nodes, topics={TOPIC: TopicInfo(TOPIC, TOPIC_ID, infos)}, names_by_id={TOPIC_ID: TOPIC}
        )

    # the user

    def send(self, partition: int, count: int) -> None:
        """A batch of `count` records."""
        if self.transactional and (self.transaction is None or not self.may_send):
            return
        if not self.core.accumulator.knows(TOPIC):  # it was idle, and forgotten
            self.feed(self.core.metadata, ClusterSnapshot(), self.snapshot())
        for _ in range(count):
            value = len(self.records)
            record = (TOPIC, partition, 1, None, b"%d" % value, (), None)
            delivery = self.core.accumulator.append(*record) or self.core.accumulator.begin(*record)
            assert delivery is not None
            self.records.append(Record(value, partition, delivery, self.transaction))
        self.feed(self.core.flush)

    @property
    def may_send(self) -> bool:
        """Whether the producer takes records, as its user sees it."""
        transactions = self.core.transactions
        return transactions is None or transactions.state is TxnState.IN_TRANSACTION

    def call(self, event: Any, *arguments: Any) -> object:
        """Make a call that waits; its token."""
        token = object()
        self.feed(event, token, *arguments)
        return token

    # the network

    def serve(self, node: int, refuse: ErrorCode | None = None, *, after_append: bool = False) -> None:
        """The broker reads a request; it may refuse batches for a reason of its own, if need be when it has them."""
        wire = self.wires[node]
        if not wire.requests:
            return
        asked = wire.requests.popleft()
        asked.answer = self._answer(asked, node, refuse, after_append=after_append)
        wire.answers.append(asked)

    def hear(self, node: int) -> None:
        """An answer arrives."""
        wire = self.wires[node]
        if wire.answers:
            asked = wire.answers.popleft()
            if asked.ask.ticket not in self.given_up:
                self.feed(self.core.answered, asked.ask.ticket, asked.answer)

    def break_connection(self, node: int, served: int) -> None:
        """The broker reads `served` more requests, then everything on the way is lost."""
        for _ in range(served):
            self.serve(node)
        wire = self.wires[node]
        lost = [*wire.answers, *wire.requests]
        self.wires[node] = Wire()
        if node != COORDINATOR:
            self.feed(self.core.disconnected, node, intents.Channel.MAIN)
        for asked in lost:
            if asked.ask.ticket not in self.given_up:
                self.feed(self.core.failed, asked.ask.ticket, DisconnectedError("the connection broke"))

    def leave_behind(self, node: int) -> None:
        """The connection breaks for the producer; the broker has all that was sent, and reads it later."""
        self.ghosts += [(node, asked) for asked in self.wires[node].requests]
        self.break_connection(node, 0)

    def haunt(self) -> None:
        """The broker reads a request whose connection has broken long since."""
        if self.ghosts:
            node, asked = self.ghosts.popleft()
            self._answer(asked, node, None, after_append=False)

    def move(self, partition: int, *, told: bool = True) -> None:
        """The other broker leads now. What the old one has not read it refuses when it reads it."""
        self.led_by[partition] = 3 - self.led_by[partition]
        self.epochs[partition] += 1
        self.everybody_hears(partition)
        if told:
            self.feed(self.core.metadata, ClusterSnapshot(), self.snapshot())

    def depose(self, partition: int) -> None:
        """The other broker leads now. The old one does not know it, and the producer hears of it late."""
        old = self.led_by[partition]
        self.led_by[partition] = new = 3 - old
        self.epochs[partition] += 1
        self.unaware.pop((new, partition), None)
        self.unaware[old, partition] = deepcopy(self.leaders[partition])
        self.news[partition].append(PartitionInfo(new, self.epochs[partition]))

    def everybody_hears(self, partition: int) -> None:
        """No broker believes any more that it leads, except the one that does; and metadata says which."""
        for node in (1, 2):
            self.unaware.pop((node, partition), None)
        self.news[partition] = deque([PartitionInfo(self.led_by[partition], self.epochs[partition])])

    def tell_next(self, partition: int) -> None:
        """The producer hears who led next; that may be long ago."""
        if len(self.news[partition]) > 1:
            self.news[partition].popleft()
        self.feed(self.core.metadata, ClusterSnapshot(), self.snapshot())

    def pass_time(self, seconds: float) -> None:
        """Time goes by, in steps as the core wants to be woken."""
        until_s = self.now_s + seconds
        while self.core.wake_at_s is not None and self.core.wake_at_s <= until_s:
            self.now_s = max(self.now_s + 0.001, self.core.wake_at_s)
            self.feed(self.core.woken)
        self.now_s = max(self.now_s, until_s)

    # the brokers

    def _answer(self, asked: Asked, node: int, refuse: ErrorCode | None, *, after_append: bool) -> Any:
        message = asked.message
        match asked.ask.api:
            case ApiKey.PRODUCE:
                return self._produce(message, node, refuse, after_append)
            case ApiKey.INIT_PRODUCER_ID if self.transactional:
                asker = ProducerIdentity(message.producer_id, message.producer_epoch)
                code, identity = self.coordinator.init_producer_id(asker)
                return InitProducerIdResponse(0, code, *identity)
            case ApiKey.INIT_PRODUCER_ID:
                self.next_producer_id += 1
                return InitProducerIdResponse(0, 0, self.next_producer_id, self.first_epoch)
            case ApiKey.ADD_PARTITIONS_TO_TXN:
                identity = ProducerIdentity(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
                numbers = {number for topic in message.v3_and_below_topics for number in topic.partitions}
                code = self.coordinator.add_partitions(identity, numbers)
                results = tuple(AddPartitionsToTxnPartitionResult(number, code) for number in sorted(numbers))
                return AddPartitionsToTxnResponse(
                    results_by_topic_v3_and_below=(AddPartitionsToTxnTopicResult(TOPIC, results),)
                )
            case ApiKey.END_TXN:
                identity = ProducerIdentity(message.producer_id, message.producer_epoch)
                code, following = self.coordinator.end(identity, commit=message.committed)
                return EndTxnResponse(0, code, *following)
        raise AssertionError(f"nobody answers {asked.ask.api.name}")

    def _produce(self, message: Any, node: int, refuse: ErrorCode | None, after_append: bool) -> ProduceResponse:
        [topic] = message.topic_data
        parts = []
        for part in topic.partition_data:
            code = ErrorCode.NONE
            deposed = self.unaware.get((node, part.index))
            if deposed is not None and refuse is None:
                code = self._append_alone(deposed, bytes(part.records))
            elif self.led_by[part.index] != node:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif refuse is None or after_append:
                code = self._append(part.index, bytes(part.records))
            if code == ErrorCode.NONE and refuse is not None:
                code = refuse
            offset = len(self.leaders[part.index].values)
            parts.append(PartitionProduceResponse(part.index, code, offset if code == ErrorCode.NONE else -1))
        return ProduceResponse((TopicProduceResponse(TOPIC_ID, TOPIC, tuple(parts)),))

    def _append(self, partition: int, batch: bytes) -> ErrorCode:
        header = parse_header(batch)
        values = [int(record.value or b"") for record in decode_batch(batch)]
        identity = ProducerIdentity(header.producer_id, header.producer_epoch)
        if self.transactional:
            return self.coordinator.produce(partition, values, identity, header.base_sequence)
        return self.leaders[partition].append(values, identity, header.base_sequence, None)

    def _append_alone(self, leader: Leader, batch: bytes) -> ErrorCode:
        """What a leader says that was deposed and does not know it: nobody copies from it any more."""
        header = parse_header(batch)
        values = [0] * header.record_count
        identity = ProducerIdentity(header.producer_id, header.producer_epoch)
        alone = deepcopy(leader)
        code = alone.append(values, identity, header.base_sequence, None)
        return ErrorCode.REQUEST_TIMED_OUT if len(alone.log) > len(leader.log) else code

    # the end

    def settle(self) -> None:
        """Nothing is lost any more: wait until every request is answered and nothing is left to be done."""
        for partition in range(PARTITIONS):
            self.everybody_hears(partition)
        for _ in range(20 * len(self.records) + 400):
            self.step_of_peace()
            if self.quiet:
                return
        raise AssertionError(f"stuck with {len(self.core.accumulator.incomplete())} batches")

    def step_of_peace(self) -> None:
        """Each broker reads and is heard once; a little time passes."""
        self.haunt()
        for node in self.wires:
            self.serve(node)
            self.hear(node)
        self.pass_time(0.02)

    @property
    def quiet(self) -> bool:
        """Whether every batch is settled and every request is answered."""
        wires = any(wire.requests or wire.answers for wire in self.wires.values())
        return self.core.accumulator.is_empty and not wires

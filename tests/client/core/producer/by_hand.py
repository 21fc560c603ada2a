"""A ProducerCore that a test drives by hand, event by event: one broker leads every partition, and there is no network.

Where `world` plays a whole cluster, this plays nothing: the test looks at what the core intends, and answers it.
"""

import random
from typing import Any, TypeVar

from ottla.client.config.producer import producer_config
from ottla.client.core import intents
from ottla.client.core.metadata import ClusterSnapshot, Node, PartitionInfo, TopicInfo
from ottla.client.core.negotiation import TRANSACTION_VERSION, TWO_PHASE_VERSION, BrokerVersions
from ottla.client.core.producer.core import ProducerCore
from ottla.client.core.producer.fates import Settle
from ottla.client.errors import ClientError
from ottla.client.producer.delivery import Delivery
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse

T = TypeVar("T")
BROKER, OTHER = 1, 2


class ByHand:
    """`intended` holds what the core wants done and the test has not taken yet."""

    def __init__(self, *topics: str, **config: object) -> None:
        settings = {"bootstrap.servers": "nowhere:1", "linger.ms": 0} | {
            name.replace("_", "."): value for name, value in config.items()
        }
        self.now_s = 100.0
        self.core = ProducerCore(producer_config(settings), random.Random(1), Delivery)
        self.intended: list[object] = []
        self.know(*topics)

    def feed(self, event: Any, *arguments: Any) -> None:
        """One event; batches that are settled are settled for their users, the rest stays in `intended`."""
        event(*arguments, self.now_s)
        for intent in self.core.take_intents():
            if isinstance(intent, Settle):
                intent.batch.outcome.settle(intent.base_offset, intent.log_append_time_ms, intent.error)
            else:
                self.intended.append(intent)

    def take(self, kind: type[T]) -> T:
        """The oldest intent of this kind, which is done with now."""
        found = next(intent for intent in self.intended if isinstance(intent, kind))
        self.intended.remove(found)
        return found

    def count(self, kind: type[object]) -> int:
        """How many intents of this kind there are."""
        return sum(isinstance(intent, kind) for intent in self.intended)

    # the cluster

    def know(self, *topics: str, leader: int = BROKER) -> None:
        """Metadata names these topics, of one partition each, and no other."""
        infos = {t: TopicInfo(t, t.encode().ljust(16), {0: PartitionInfo(leader, 0)}) for t in topics}
        names = {info.topic_id: name for name, info in infos.items()}
        nodes = {node: Node(node, "nowhere", node) for node in (BROKER, OTHER)}
        after = ClusterSnapshot(nodes=nodes, topics=infos, names_by_id=names)
        self.feed(self.core.metadata, ClusterSnapshot(), after)

    def connect(self) -> None:
        """The connection that was asked for is there."""
        connect = self.take(intents.Connect)
        self.feed(self.core.connected, connect.node_id, connect.channel)

    def cannot_connect(self, error: ClientError) -> None:
        """There is no connection where one was asked for."""
        connect = self.take(intents.Connect)
        self.feed(self.core.unreachable, connect.node_id, connect.channel, error)

    def identify(self, producer_id: int, epoch: int) -> None:
        """Answer the request for an identity."""
        self.answer(ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse(0, 0, producer_id, epoch))

    def tell_versions(self, transaction_version: int) -> None:
        """Answer what the cluster speaks."""
        ticket = self.take(intents.AskVersions).ticket
        features = {TRANSACTION_VERSION: transaction_version}
        versions = BrokerVersions({ApiKey.INIT_PRODUCER_ID: (0, TWO_PHASE_VERSION)}, features)
        self.feed(self.core.answered, ticket, versions)

    def asked(self, api: ApiKey) -> intents.Ask:
        """The oldest request of `api`, which is done with now. Its message is made, as it is when it is sent."""
        found = next(i for i in self.intended if isinstance(i, intents.Ask) and i.api is api)
        self.intended.remove(found)
        return found._replace(message=found.message if isinstance(found.message, tuple) else found.message())

    def waiting(self, api: ApiKey) -> int:
        """How many requests of `api` wait for an answer of the test's."""
        return sum(isinstance(i, intents.Ask) and i.api is api for i in self.intended)

    def answer(self, api: ApiKey, answer: Any) -> None:
        """Answer the oldest request of `api`."""
        self.feed(self.core.answered, self.asked(api).ticket, answer)

    def acknowledge(self, code: ErrorCode = ErrorCode.NONE) -> intents.Ask:
        """Answer the oldest produce request, all its batches alike; which it was."""
        ask = self.asked(ApiKey.PRODUCE)
        assert isinstance(ask.message, ProduceRequest)
        offset = 0 if code is ErrorCode.NONE else -1
        topics = tuple(
            TopicProduceResponse(
                t.topic_id, t.name, tuple(PartitionProduceResponse(p.index, code, offset) for p in t.partition_data)
            )
            for t in ask.message.topic_data
        )
        self.feed(self.core.answered, ask.ticket, ProduceResponse(topics))
        return ask

    def lose(self, api: ApiKey, error: ClientError) -> None:
        """The oldest request of `api` has no answer."""
        self.feed(self.core.failed, self.asked(api).ticket, error)

    # the user

    def append(self, topic: str) -> Delivery:
        """A record, of which the core has not heard yet."""
        record = (topic, 0, 1, None, b"v", (), None)
        delivery = self.core.accumulator.append(*record) or self.core.accumulator.begin(*record)
        assert isinstance(delivery, Delivery)
        return delivery

    def send(self, topic: str) -> Delivery:
        """A record in a batch of its own, sent if it may be."""
        delivery = self.append(topic)
        self.feed(self.core.flush)
        return delivery

    def call(self, event: Any, *arguments: Any) -> object:
        """Make a call that waits; its token."""
        token = object()
        self.feed(event, token, *arguments)
        return token

    def result(self, call: object) -> Exception | None:
        """How a call has ended: None for well. The test fails when it has not."""
        finish = next(i for i in self.intended if isinstance(i, intents.Finish) and i.call is call)
        self.intended.remove(finish)
        return finish.error

    def waits(self, call: object) -> bool:
        """Whether a call has not ended yet."""
        return not any(isinstance(i, intents.Finish) and i.call is call for i in self.intended)

    def pass_time(self, seconds: float, *, most: int = 1_000) -> int:
        """Time goes by; how often the core wanted to be woken, which is `most` at the most."""
        until_s, woken = self.now_s + seconds, 0
        while self.core.wake_at_s is not None and self.core.wake_at_s <= until_s and woken < most:
            self.now_s = max(self.now_s, self.core.wake_at_s)
            woken += 1
            self.feed(self.core.woken)
        self.now_s = max(self.now_s, until_s)
        return woken

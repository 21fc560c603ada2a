"""A consumer's core in a test's hands: events go in by `do`, and what it intends is kept to be looked at and answered.

    rig = Rig({"group.id": "g"})
    rig.subscribe("t")
    rig.poll()
    rig.answer(ApiKey.JOIN_GROUP, JoinGroupResponse(...))

Connections open at once; everything else waits until the test answers it. Time passes by `wait`.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

from ottla.assign import Assignment, Assignor
from ottla.base.types import TopicPartition
from ottla.client.config.consumer import consumer_config
from ottla.client.core import intents
from ottla.client.core.consumer.core import ConsumerCore
from ottla.client.core.consumer.era import Call, Ticket
from ottla.client.core.consumer.fetched import Decoding
from ottla.client.core.consumer.group.classic.group_protocol import assignors, encode_one
from ottla.client.core.consumer.intents import CallUser, ReadClock
from ottla.client.core.consumer.offset_reset import OffsetReset
from ottla.client.core.consumer.positions import PartitionState
from ottla.client.core.intents import Ask, Connect, Finish, GiveUp, RefreshMetadata, Say, Work
from ottla.client.core.metadata import ClusterSnapshot, Node, PartitionInfo, TopicInfo
from ottla.client.errors import ClientError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import Assignment as ConsumerAssignment
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.consumer_group_heartbeat import TopicPartitions as AssignedPartitions
from ottla.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.messages.sync_group import SyncGroupResponse

TOPIC_ID = b"t" * 16
#: A time of day, for `by_duration`; the core's own time has nothing to do with it.
WALL_MS = 1_700_000_000_000


def partitions(topic: str, *numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def topic_id(name: str) -> bytes:
    """The id of a topic of this name."""
    return (name * 16).encode()[:16]


def snapshot(epoch: int = 0, leader: int = 1, replicas: int = 0, **counts: int) -> ClusterSnapshot:
    """Topics with so many partitions, all of them led by one broker; internal ones begin with two underscores."""
    return ClusterSnapshot(
        nodes={1: Node(1, "a", 1), 2: Node(2, "b", 1)},
        topics={
            name: TopicInfo(
                name,
                topic_id(name),
                {n: PartitionInfo(leader, epoch, tuple(range(1, replicas + 1))) for n in range(count)},
                name.startswith("__"),
            )
            for name, count in counts.items()
        },
        names_by_id={topic_id(name): name for name in counts},
    )


class Rig:
    """One core, the time, and what the core has intended and nobody has answered."""

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        known: ClusterSnapshot | None = None,
        strategy: list[Assignor] | None = None,
        seed: int = 0,
    ) -> None:
        self.now_s = 1_000.0
        self.resets: list[OffsetReset] = []
        given = {"bootstrap.servers": "a:1", "auto.offset.reset": "earliest", **(config or {})}
        self.config = consumer_config(given)
        chosen = strategy if strategy is not None else assignors(self.config.partition_assignment_strategy)
        decoding = Decoding(check_crcs=True, read_committed=self.config.read_committed, key=None, value=None)
        self.core = ConsumerCore(
            self.config,
            chosen,
            decoding,
            random.Random(seed),
            on_reset=lambda reset: self.resets.append(reset),
            member_id="me",
        )
        self.known = ClusterSnapshot()
        self.asks: list[Ask] = []
        self.refreshes: list[RefreshMetadata] = []
        self.given_up: list[Ticket] = []
        #: Work beside the loop is done at once; or, if the test says so, later.
        self.works: list[Work] = []
        self.works_later = False
        self.calls: list[CallUser] = []
        self.finished: dict[object, Finish] = {}
        self.said: list[str] = []
        self.intended: list[object] = []
        self.learn(known if known is not None else snapshot(t=2))

    # what goes in

    def do(self, event: Callable[..., None], *arguments: Any) -> None:
        """An event, and whatever follows from it at once."""
        event(*arguments, self.now_s)
        while intended := self.core.take_intents():
            for intent in intended:
                self._carry_out(intent)

    def wait(self, seconds: float) -> None:
        """Time passes; the core is woken when it wants to be."""
        until_s = self.now_s + seconds
        while self.core.wake_at_s is not None and self.core.wake_at_s <= until_s:
            assert self.core.wake_at_s >= self.now_s or self.core.wake_at_s == self.core.wake_at_s
            self.now_s = max(self.now_s, self.core.wake_at_s)
            before = self.core.wake_at_s
            self.do(self.core.woken)
            assert self.core.wake_at_s is None or self.core.wake_at_s > before, "it would be woken for ever"
        self.now_s = until_s

    def learn(self, known: ClusterSnapshot) -> None:
        """Metadata has come."""
        before, self.known = self.known, known
        self.do(self.core.metadata, before, known)

    def poll(self) -> None:
        """The user calls poll, and waits in it for a moment."""
        self.core.polled(self.now_s)
        self.core.watch.in_poll = True
        self.do(self.core.poll)
        self.core.watch.in_poll = False
        self.core.watch.last_s = self.now_s

    def subscribe(self, *topics: str, **callbacks: Callable[..., object]) -> None:
        """The user subscribes."""
        self.core.subscription.subscribe(topics)
        for name, callback in callbacks.items():
            setattr(self.core.subscription, name, callback)
        self.do(self.core.subscribed)

    def assign(self, *tps: TopicPartition) -> None:
        """The user assigns by hand."""
        self.core.subscription.assign()
        self.do(self.core.assigned, tps)

    def state(self, tp: TopicPartition) -> PartitionState:
        found = self.core.positions.get(tp)
        assert found is not None
        return found

    def run_callback(self, error: Exception | None = None) -> CallUser:
        """The user's poll makes the oldest call that it was asked for."""
        call = self.calls.pop(0)
        call.function(*call.arguments)
        self.do(self.core.called, call.ticket, error)
        return call

    # what comes out

    def asked(self, api: ApiKey) -> list[Ask]:
        """Requests of this API that wait for an answer."""
        return [ask for ask in self.asks if ask.api is api]

    def message(self, api: ApiKey) -> Any:
        """The one request of this API that waits."""
        [ask] = self.asked(api)
        return ask.message if isinstance(ask.message, tuple) else ask.message()

    def take(self, api: ApiKey) -> Ask:
        """The oldest request of this API, which will be answered by hand."""
        ask = self.asked(api)[0]
        self.asks.remove(ask)
        return ask

    def answer(self, api: ApiKey, answer: object) -> Ask:
        """Answer the oldest request of this API."""
        ask = self.take(api)
        self.do(self.core.answered, ask.ticket, answer)
        return ask

    def fail(self, api: ApiKey, error: ClientError) -> Ask:
        """The oldest request of this API has no answer."""
        ask = self.take(api)
        self.do(self.core.failed, ask.ticket, error)
        return ask

    def refresh(self, call: Call) -> None:
        """The metadata that the core waits for has come."""
        found = next(each for each in self.refreshes if each.ticket.call is call)
        self.refreshes.remove(found)
        self.do(self.core.answered, found.ticket, None)

    def raised(self) -> list[Exception]:
        """What poll would raise, one after the other."""
        found: list[Exception] = []
        while self.core.failures:
            try:
                self.core.failures.raise_next()
            except Exception as error:  # noqa: BLE001  that is what it is for
                found.append(error)
        return found

    # a member of the consumer protocol

    def beat(self, epoch: int, *tps: TopicPartition, code: ErrorCode = ErrorCode.NONE, target: bool = True) -> Any:
        """The heartbeat that is on its way is answered, with these partitions as the target. Returns the request."""
        request = self.message(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        by_topic: dict[bytes, list[int]] = {}
        for tp in tps:
            by_topic.setdefault(topic_id(tp.topic), []).append(tp.partition)
        said = tuple(AssignedPartitions(each, tuple(numbers)) for each, numbers in by_topic.items())
        answer = ConsumerGroupHeartbeatResponse(
            error_code=code,
            member_epoch=epoch,
            heartbeat_interval_ms=1_000,
            assignment=ConsumerAssignment(said) if target else None,
        )
        self.answer(ApiKey.CONSUMER_GROUP_HEARTBEAT, answer)
        return request

    # a member of a classic group

    def join(
        self,
        generation: int,
        *,
        leader: bool = False,
        member_id: str = "me",
        mixed: bool = False,
        skip: bool = False,
        others: tuple[JoinGroupResponseMember, ...] = (),
    ) -> None:
        """JoinGroup is answered; a leader hears of the `others`, and nobody leads a `mixed` group."""
        request = self.message(ApiKey.JOIN_GROUP)
        chosen = request.protocols[0]
        members = (JoinGroupResponseMember(member_id, None, chosen.metadata), *others) if leader else ()
        answer = JoinGroupResponse(
            generation_id=generation,
            protocol_type="consumer",
            protocol_name=chosen.name,
            leader="" if mixed else member_id if leader else "other",
            member_id=member_id,
            members=members,
            skip_assignment=skip,
        )
        self.answer(ApiKey.JOIN_GROUP, answer)

    def sync(self, *tps: TopicPartition) -> None:
        """SyncGroup is answered with these partitions."""
        self.answer(ApiKey.SYNC_GROUP, SyncGroupResponse(assignment=encode_one(Assignment(tps))))

    def become_stable(self, *tps: TopicPartition, generation: int = 1) -> None:
        """Poll, join and take these partitions; callbacks are run."""
        self.poll()
        self.run_all_callbacks()
        self.join(generation)
        self.sync(*tps)
        self.poll()
        self.run_all_callbacks()

    def run_all_callbacks(self) -> None:
        while self.calls:
            self.run_callback()

    def refuse(self, api: ApiKey, code: ErrorCode, answer: type[Any]) -> None:
        """Answer with this error."""
        self.answer(api, answer(error_code=code))

    def run(self, intent: Work) -> None:
        """Work beside the loop is done."""
        try:
            made = intent.work()
        except ClientError as error:
            self.core.failed(intent.ticket, error, self.now_s)
        else:
            self.core.answered(intent.ticket, made, self.now_s)

    def _carry_out(self, intent: object) -> None:
        self.intended.append(intent)
        match intent:
            case Connect(node_id, channel):
                self.core.connected(node_id, channel, self.now_s)
            case Ask():
                self.asks.append(intent)
            case GiveUp(ticket):
                self.given_up.append(ticket)
                self.asks = [ask for ask in self.asks if ask.ticket is not ticket]
            case RefreshMetadata(Ticket()):
                self.refreshes.append(intent)
            case Work() if self.works_later:
                self.works.append(intent)
            case Work():
                self.run(intent)
            case ReadClock(ticket):
                self.core.answered(ticket, WALL_MS, self.now_s)
            case CallUser():
                self.calls.append(intent)
            case Finish(call):
                self.finished[call] = intent
            case Say(level, text, arguments) if level > intents.DEBUG:
                self.said.append(text % arguments)

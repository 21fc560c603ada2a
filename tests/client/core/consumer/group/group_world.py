"""Consumers' cores and their group's coordinator in virtual time, from one seed; what networks and users do to them.

Each core has a connection of its own for each purpose, as in reality: a broker answers the requests of one connection
in order, one at a time, and requests on different connections overtake each other. Connections are cut, the
coordinator moves, users poll late, subscribe to something else, die, come back and leave, until `calm_s`.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from ottla.assign import Assignor, CooperativeStickyAssignor, RangeAssignor, StickyAssignor
from ottla.base.types import TopicPartition
from ottla.client.config.consumer import consumer_config
from ottla.client.core.consumer.core import ConsumerCore
from ottla.client.core.consumer.fetched import Decoding
from ottla.client.core.consumer.group.consumer.member import JOIN_EPOCH
from ottla.client.core.consumer.intents import CallUser, WakePoll
from ottla.client.core.intents import Ask, Broker, Channel, Connect, Finish, GiveUp, LearnTopics, RefreshMetadata, Work
from ottla.client.core.intents import Coordinator as GroupCoordinator
from ottla.client.core.metadata import ClusterSnapshot
from ottla.client.errors import DisconnectedError, RequestTimeoutError
from ottla.wire.apis import ApiKey
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.client.cooperative import CooperativeRoundRobin
from tests.client.core.consumer.group.consumer_coordinator import ConsumerCoordinator
from tests.client.core.consumer.group.group_checks import Checks
from tests.client.core.consumer.group.group_coordinator import GROUP, Coordinator
from tests.client.core.consumer.rig import snapshot

#: Quiet enough after the last fault for every time-out and rebalance to be over.
CALM_FOR_S = 60.0
_SESSION_S, _POLL_INTERVAL_S = 3.0, 6.0
_MOST_MEMBERS = 4
_WANTED = [["t"], ["t"], ["t", "u"], ["u"]]


class World:
    """One history."""

    def __init__(self, seed: int, *, protocol: str = "classic", faults_for_s: float = 40.0) -> None:
        self.protocol = protocol
        self.rng = random.Random(seed)
        self.now_s = 0.0
        self.calm_s = faults_for_s
        self.checks = Checks(self)
        initial_delay_ms = self.rng.choice([0, 300])
        self.is_cooperative = self.rng.random() < 0.5
        self._is_sticky = seed % 2 == 1
        self.counts = {"t": self.rng.randint(1, 5), "u": self.rng.randint(1, 3)}
        self.coordinator: Coordinator | ConsumerCoordinator = (
            Coordinator(initial_delay_ms) if protocol == "classic" else ConsumerCoordinator(self.counts)
        )
        self.members: list[Member] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._names = count()

    def assignor(self) -> Assignor:
        """What all members divide with; each has one of its own."""
        if self._is_sticky:
            return CooperativeStickyAssignor() if self.is_cooperative else StickyAssignor()
        return CooperativeRoundRobin() if self.is_cooperative else RangeAssignor()

    # time

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        """Do `what` later."""
        heapq.heappush(self._events, (self.now_s + delay_s, next(self._order), what))

    def run(self) -> None:
        """The whole history; afterwards `checks` has seen everything."""
        for _ in range(self.rng.randint(1, 3)):
            self.add_member()
        self._next_fault()
        while self._events and self._events[0][0] <= self.calm_s + CALM_FOR_S:
            timer_s = self.coordinator.next_timer_s
            if timer_s is not None and timer_s < self._events[0][0]:
                self.now_s = max(self.now_s, timer_s)
                self.coordinator.advance(self.now_s)
                continue
            self.now_s, _, what = heapq.heappop(self._events)
            what()
        self.checks.at_the_end()

    @property
    def is_calm(self) -> bool:
        return self.now_s >= self.calm_s

    def delay_s(self) -> float:
        """How long a message takes: mostly little, now and then longer than a session."""
        if self.is_calm or self.rng.random() < 0.95:
            return self.rng.uniform(0.0005, 0.02)
        return self.rng.uniform(0.05, 1.3 * _SESSION_S)

    # what happens to everybody

    def add_member(self, before: "Member | None" = None) -> None:
        """A consumer starts; `before` is the static member that it was. It wants the same: the coordinator keeps what
        a static member has, whatever it wants after its restart, as Apache Kafka's does."""
        instance, topics = None, self.rng.choice(_WANTED)
        if before is not None:
            instance, topics = before.instance, sorted(before.core.subscription.topics)
        elif self.rng.random() < 0.4:
            instance = f"i{next(self._names)}"
        self.members.append(Member(self, next(self._names), instance, topics))

    def _next_fault(self) -> None:
        if not self.is_calm:
            self.rng.choice(
                [self._cut, self._cut, self._move, self._kill, self._leave, self._come, self._resubscribe, self._grow]
            )()
            self.after(self.rng.expovariate(1 / 1.5), self._next_fault)

    def _cut(self) -> None:
        if self.members:
            self.rng.choice(self.rng.choice(self.members).wires).cut(DisconnectedError("cut"))

    def _move(self) -> None:
        self.coordinator.move(self.now_s, self.rng.uniform(0, 2))

    def _kill(self) -> None:
        if self.members:
            killed = self.rng.choice(self.members)
            killed.die()
            if killed.instance is not None and self.rng.random() < 0.8:
                self.after(self.rng.uniform(0, 2 * _SESSION_S), lambda: self.add_member(killed))

    def _leave(self) -> None:
        if self.members:
            self.rng.choice(self.members).close()

    def _come(self) -> None:
        if len(self.members) < _MOST_MEMBERS:
            self.add_member()

    def _resubscribe(self) -> None:
        if self.members:
            self.rng.choice(self.members).subscribe(self.rng.choice(_WANTED))

    def _grow(self) -> None:
        topic = self.rng.choice(sorted(self.counts))
        self.counts[topic] = min(6, self.counts[topic] + 1)
        for member in self.members:
            self.after(self.rng.uniform(0, 2), member.learn)


class Wire:
    """One member's connection for one purpose."""

    def __init__(self, member: "Member", channel: Channel) -> None:
        self._member = member
        self._world = member.world
        self._channel = channel
        self._life = 0
        self._is_busy = False
        self._arrived: deque[Ask] = deque()
        self._out: list[Ask] = []
        #: By identity: what was given up, and what the broker has seen.
        self._given_up: dict[int, Ask] = {}
        self._came: dict[int, Ask] = {}
        self._last_s = 0.0

    def send(self, ask: Ask) -> None:
        """A request goes out."""
        self._out.append(ask)
        life = self._life
        self._world.after(self._in_order(), lambda: self._arrive(life, ask))
        self._world.after(ask.timeout_ms / 1000, lambda: self._time_out(life, ask))

    def give_up(self, ticket: Any) -> None:
        """No answer to this shall come. It has left already, or never will."""
        for ask in self._out:
            if ask.ticket is ticket:
                self._given_up[id(ask)] = ask
                if id(ask) not in self._came and self._world.rng.random() < 0.5:
                    self._out.remove(ask)
                    return

    def cut(self, reason: DisconnectedError | RequestTimeoutError) -> None:
        """The connection is lost, and with it every request that has no answer. Some may have been heard."""
        self._life += 1
        self._is_busy = False
        self._arrived.clear()
        out, self._out = self._out, []
        for ask in out:
            if id(ask) not in self._given_up:
                self._member.do(self._member.core.failed, ask.ticket, reason)

    def _in_order(self) -> float:
        at_s = max(self._last_s, self._world.now_s + self._world.delay_s())
        self._last_s = at_s
        return at_s - self._world.now_s

    def _time_out(self, life: int, ask: Ask) -> None:
        if life == self._life and ask in self._out:
            self.cut(RequestTimeoutError("no answer"))

    def _arrive(self, life: int, ask: Ask) -> None:
        if life == self._life:
            if ask in self._out:  # else it never left
                self._came[id(ask)] = ask
                self._arrived.append(ask)
                self._process()
        elif self._world.rng.random() < 0.5:  # the broker had read it before the connection was lost
            self._answer(ask, lambda answer: None)

    def _process(self) -> None:
        if self._is_busy or not self._arrived:
            return
        self._is_busy = True
        ask, life = self._arrived.popleft(), self._life

        def reply(answer: Any) -> None:
            if life == self._life:
                self._is_busy = False
                self._world.after(self._world.delay_s(), lambda: self._deliver(life, ask, answer))
                self._process()

        self._answer(ask, reply)

    def _answer(self, ask: Ask, reply: Callable[[Any], None]) -> None:
        message = ask.message if isinstance(ask.message, tuple) else ask.message()
        match ask.api:
            case ApiKey.FETCH:
                self._world.after(3.0, lambda: reply(FetchResponse()))
            case ApiKey.LIST_OFFSETS:
                reply(_first_offsets(message))
            case ApiKey.OFFSET_COMMIT:
                self._world.checks.commit_arrived(message)
                self._world.coordinator.ask(ask.api, message, self._world.now_s, reply)
            case _:
                self._world.coordinator.ask(ask.api, message, self._world.now_s, reply)

    def _deliver(self, life: int, ask: Ask, answer: Any) -> None:
        if life == self._life and ask in self._out:
            self._out.remove(ask)
            if id(ask) not in self._given_up:
                self._member.answered(ask, answer)


class Member:
    """One consumer: its core, its connections, and the user who polls it."""

    def __init__(self, world: World, name: int, instance: str | None, topics: list[str]) -> None:
        self.world = world
        self.name = name
        self.instance = instance
        self.is_alive = True
        self.is_leaving = False
        given: dict[str, object] = {
            "bootstrap.servers": "a:1",
            "group.id": GROUP,
            "group.protocol": world.protocol,
            "max.poll.interval.ms": int(_POLL_INTERVAL_S * 1000),
            "request.timeout.ms": 4_000,
            "auto.commit.interval.ms": 700,
            "enable.auto.commit": world.rng.random() < 0.7,
        }
        if world.protocol == "classic":
            given |= {"session.timeout.ms": int(_SESSION_S * 1000), "heartbeat.interval.ms": 500}
        config = consumer_config(given | ({"group.instance.id": instance} if instance else {}))
        strategy = [world.assignor()]
        decoding = Decoding(check_crcs=True, read_committed=False, key=None, value=None)
        self.core = ConsumerCore(config, strategy, decoding, random.Random(name), member_id=f"m{name}")
        self._wires = {channel: Wire(self, channel) for channel in Channel}
        self._calls: deque[CallUser] = deque()
        self._is_woken = False
        self._is_polling = False
        self._wake_s: float | None = None
        self._woken_at: list[float] = []
        self.failures: list[Exception] = []
        self._joins = 0
        #: As whom each request was asked, by identity; with the request, so that no later one has its address.
        self._asked_as: dict[int, tuple[Ask, object]] = {}
        self.known = ClusterSnapshot()
        self.learn()
        self.subscribe(topics)
        world.after(0.0, self._poll)

    @property
    def wires(self) -> list[Wire]:
        return list(self._wires.values())

    # what goes in

    def do(self, event: Callable[..., None], *arguments: Any) -> None:
        """An event, and what follows from it."""
        if not self.is_alive:
            return
        event(*arguments, self.world.now_s)
        while intended := self.core.take_intents():
            for intent in intended:
                self._carry_out(intent)
        self._arm()
        self.world.checks.after_event(self)

    def answered(self, ask: Ask, answer: Any) -> None:
        """An answer; one of an era before changes nothing."""
        if self.is_alive:
            self.do(self.core.woken)  # what is due now is no doing of the answer
            with self.world.checks.era_rule(self, ask, is_of_before=self._asked_as[id(ask)][1] != self._standing(ask)):
                self.do(self.core.answered, ask.ticket, answer)

    def _standing(self, ask: Ask) -> object:
        """Who asks: which member, after how many joins; or about which partitions, after how many resets."""
        if ask.ticket.partitions:
            states = [self.core.positions.get(tp) for tp in ask.ticket.partitions]
            return [(state.tp, state.assignment, state.version) for state in states if state is not None]
        return self._joins, self.core.member.metadata

    def learn(self) -> None:
        """Metadata comes."""
        before, self.known = self.known, snapshot(**self.world.counts)
        self.do(self.core.metadata, before, self.known)

    def subscribe(self, topics: list[str]) -> None:
        """The user wants these topics from now on."""
        subscription = self.core.subscription
        subscription.subscribe(topics)
        subscription.on_assigned = lambda tps: self.world.checks.assigned(self, tps)
        subscription.on_revoked = lambda tps: self.world.checks.given_up(self, tps)
        subscription.on_lost = lambda tps: self.world.checks.given_up(self, tps)
        self.do(self.core.subscribed)

    def close(self) -> None:
        """The user closes; callbacks run meanwhile."""
        if self.is_alive and not self.is_leaving and not self._calls:
            self.is_leaving = True
            self.do(self.core.close, "close", True)
            self._run_calls()

    def die(self) -> None:
        """kill -9."""
        self.is_alive = False
        if self in self.world.members:
            self.world.members.remove(self)
        for wire in self.wires:
            wire.cut(DisconnectedError("dead"))

    # the user

    def _poll(self) -> None:
        if not self.is_alive or self.is_leaving:
            return
        rng = self.world.rng
        self.core.polled(self.world.now_s)
        self._is_polling = self.core.watch.in_poll = True
        self.do(self.core.poll)
        self._go_on_polling()
        self.world.after(rng.uniform(0.0, 0.3), self._end_poll)

    def _end_poll(self) -> None:
        if not self.is_alive or not self._is_polling or self.is_leaving:
            return
        if not self.core.watch.in_poll:  # a callback runs
            self.world.after(0.05, self._end_poll)
            return
        self._leave_poll()
        self._take()

    def _leave_poll(self) -> None:
        self._is_polling = self.core.watch.in_poll = False
        self.core.watch.last_s = self.world.now_s
        late = not self.world.is_calm and self.world.rng.random() < 0.02
        pause_s = 1.5 * _POLL_INTERVAL_S if late else self.world.rng.uniform(0.01, 0.4)
        self.world.after(pause_s, self._poll)

    def _go_on_polling(self) -> None:
        while self._is_polling and self.core.watch.in_poll and self.is_alive and not self.is_leaving:
            if self.core.failures:
                try:
                    self.core.failures.raise_next()
                except Exception as error:  # noqa: BLE001  poll raises it; the user polls again
                    self.failures.append(error)
                    self._leave_poll()
            elif self._calls:
                self._call()
            elif self._is_woken:
                self._is_woken = False
                self.do(self.core.poll)
            else:
                return

    def _call(self) -> None:
        call = self._calls.popleft()
        self.core.watch.in_poll = False
        call.function(*call.arguments)

        def over() -> None:
            if self.is_alive:
                self.do(self.core.called, call.ticket, None)
                self.core.watch.in_poll = self._is_polling
                if self._is_polling:
                    self.do(self.core.poll)
                self._go_on_polling()
                self._run_calls()

        self.world.after(self.world.rng.choice([0.0, 0.01, 0.5]), over)

    def _run_calls(self) -> None:
        if self.is_leaving and self._calls:
            self._call()

    def _take(self) -> None:
        """Records are handed out, between two polls."""
        if not self.core.holds_back:
            for state in self.core.positions:
                if state.position >= 0:
                    self.world.checks.taken(state.tp, state.position)
                    state.position += 1
            self.do(self.core.taken)

    # what comes out

    def _carry_out(self, intent: object) -> None:
        world = self.world
        match intent:
            case Connect(node_id, channel):
                world.after(world.delay_s(), lambda: self.do(self.core.connected, node_id, channel))
            case Ask(to=Broker(_, channel) | GroupCoordinator(_, _, channel)):
                self._joins += _joins(intent)
                self._asked_as[id(intent)] = intent, self._standing(intent)
                self._wires[channel].send(intent)
            case GiveUp(ticket):
                for wire in self.wires:
                    wire.give_up(ticket)
            case RefreshMetadata(None) | LearnTopics():
                world.after(world.delay_s(), self.learn)
            case Work(ticket, work):
                world.after(world.delay_s(), lambda: self.do(self.core.answered, ticket, work()))
            case RefreshMetadata(ticket):
                world.after(world.delay_s(), lambda: self._refreshed(ticket))
            case CallUser():
                self._calls.append(intent)
                if self.is_leaving:
                    world.after(0.0, self._run_calls)
                else:
                    world.after(0.0, self._go_on_polling)
            case WakePoll():
                self._is_woken = True
                world.after(0.0, self._go_on_polling)
            case Finish(error=error):
                assert error is None
                assert self.core.membership.is_out
                self.world.checks.gone(self)
                self.die()

    def _refreshed(self, ticket: Any) -> None:
        self.learn()
        self.do(self.core.answered, ticket, None)

    def _arm(self) -> None:
        at_s = self.core.wake_at_s
        if at_s is None or (self._wake_s is not None and self._wake_s <= at_s):
            return
        self._wake_s = at_s

        def wake() -> None:
            if self._wake_s == at_s:
                self._wake_s = None
                self.world.checks.woken(self)
                self.do(self.core.woken)

        self.world.after(max(0.0, at_s - self.world.now_s), wake)

    def owned(self) -> frozenset[TopicPartition]:
        return self.core.positions.assignment


def _joins(ask: Ask) -> bool:
    """Whether this request begins another membership."""
    message = ask.message
    is_first = isinstance(message, ConsumerGroupHeartbeatRequest) and message.member_epoch == JOIN_EPOCH
    return ask.api is ApiKey.JOIN_GROUP or is_first


def _first_offsets(message: Any) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                topic.name, tuple(ListOffsetsPartitionResponse(p.partition_index, offset=0) for p in topic.partitions)
            )
            for topic in message.topics
        )
    )

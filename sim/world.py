"""One world: a cluster, a network, users and faults. All of it follows from the seed and the kind."""

import asyncio
import gc
import random
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.testing.history import Anomaly
from ottla.testing.history import Event as Told
from ottla.testing.history.facts import Drained
from ottla.wire.apis import ApiKey
from sim.check import FinalState, told
from sim.cluster.cluster import Cluster, Rules
from sim.cluster_nemesis import ClusterNemesis
from sim.deletions import DELETER, Deletions
from sim.history import History
from sim.house import House
from sim.house_nemesis import HouseNemesis
from sim.known import known
from sim.kraft_directory import leave_used
from sim.loop import START_S, DeadlockError, LivelockError, SimLoop, run
from sim.nemesis import Nemesis
from sim.network import Network, Weather
from sim.protocols import Protocols, of_the_broker
from sim.served import Served
from sim.users.database import Database
from sim.users.deleters import Deleter
from sim.users.loops import Looper
from sim.users.process import Process
from sim.users.producers import PlainProducer
from sim.users.readers import Reader, Reading
from sim.users.transactors import Transactor
from sim.users.transformers import OUTPUT, Transformer

#: How long the users work and faults come, and how long the users may take to finish after that.
FAULTS_S = 90.0
SETTLE_S = 150.0
#: How long after the faults users still work as slowly as before.
_HURRY_S = 60.0
#: What asyncio says of the tasks of a killed process when they are collected.
_STILL_PENDING = "Task was destroyed but it is pending!"
#: So many requests of one kind are an anomaly: no user wanted them.
_FLOOD = 10_000


class Kind(Enum):
    """What the users of a world do."""

    #: Idempotent producers without transactions.
    PLAIN = "plain"
    #: Transactional producers that write to several partitions.
    TRANSACTIONS = "transactions"
    #: Groups of consumers that read what both kinds of producers write.
    GROUPS = "groups"
    #: Consume, transform, produce, exactly once.
    PIPELINE = "pipeline"
    #: The same, with the client's `exactly_once`.
    EXACTLY_ONCE = "exactly-once"
    #: The same around the real broker.
    BROKER_PLAIN = "broker-plain"
    BROKER_TRANSACTIONS = "broker-transactions"
    BROKER_GROUPS = "broker-groups"
    BROKER_PIPELINE = "broker-pipeline"
    BROKER_EXACTLY_ONCE = "broker-exactly-once"
    #: Groups or pipelines whose members speak the consumer protocol, or either one; some machines lose their power.
    BROKER_CONSUMER_GROUPS = "broker-consumer-groups"
    #: Any of these users, and a machine that loses its power.
    BROKER_POWER = "broker-power"
    #: Any of these users, and a broker that dies at calls that change its directory; some machines lose their power.
    BROKER_STEPS = "broker-steps"
    #: All of these but pipelines, and files that are damaged between two lives of the broker.
    BROKER_DAMAGE = "broker-damage"

    @property
    def real(self) -> bool:
        """Whether the broker is the real one."""
        return self.value.startswith("broker-")

    def loses_power(self, rng: random.Random) -> bool:
        """Whether the machine stops now and then, and its disk refuses."""
        if self in (Kind.BROKER_CONSUMER_GROUPS, Kind.BROKER_STEPS):
            return rng.random() < 0.3
        return self is Kind.BROKER_POWER

    @property
    def dies_at_steps(self) -> bool:
        """Whether the broker dies at the calls that change its directory."""
        return self is Kind.BROKER_STEPS

    @property
    def damages_files(self) -> bool:
        """Whether files are damaged between two lives of the broker."""
        return self is Kind.BROKER_DAMAGE

    def decides_elsewhere(self, people: "Kind", rng: random.Random) -> bool:
        """Whether transactions are in two-phase commit, with a database of the users (KIP-939)."""
        can = self.real and not self.damages_files and people in (Kind.TRANSACTIONS, Kind.GROUPS, Kind.PIPELINE)
        return can and rng.random() < 0.3

    def deletes(self, people: "Kind", rng: random.Random) -> bool:
        """Whether records are deleted. Not those of pipelines: each of them has to become another one."""
        can = self.real and people in (Kind.PLAIN, Kind.TRANSACTIONS, Kind.GROUPS)
        return can and rng.random() < (0.4 if self in (Kind.BROKER_DAMAGE, Kind.BROKER_POWER) else 0.25)

    def people(self, rng: random.Random) -> "Kind":
        """Who lives there."""
        if self is Kind.BROKER_STEPS:
            return rng.choice((Kind.PLAIN, Kind.TRANSACTIONS, Kind.GROUPS, Kind.PIPELINE, Kind.EXACTLY_ONCE))
        if self is Kind.BROKER_POWER:
            return rng.choice((Kind.PLAIN, Kind.TRANSACTIONS, Kind.GROUPS, Kind.PIPELINE))
        if self is Kind.BROKER_DAMAGE:
            return rng.choice((Kind.PLAIN, Kind.TRANSACTIONS, Kind.GROUPS))
        if self is Kind.BROKER_CONSUMER_GROUPS:
            return rng.choice((Kind.GROUPS, Kind.GROUPS, Kind.PIPELINE))
        return Kind(self.value.removeprefix("broker-"))

    def protocols(self, rng: random.Random) -> Protocols:
        """What its groups' members speak."""
        return of_the_broker(rng) if self is Kind.BROKER_CONSUMER_GROUPS else Protocols()


class Plan(NamedTuple):
    """What of a world takes place. Less than all of it shows an anomaly more clearly (`sim.shrink`)."""

    #: The faults' numbers; None for all.
    only: frozenset[int] | None = None
    #: How long faults are made, in seconds.
    faults_s: float = FAULTS_S
    #: Users who do nothing.
    absent: frozenset[str] = frozenset()


ALL = Plan()


@dataclass(slots=True)
class Verdict:
    """The result of a world."""

    seed: int
    kind: Kind
    plan: Plan
    anomalies: list[Anomaly]
    history: History
    virtual_s: float
    #: The faults that were made, by number, and when each began; and all users' names.
    faults: dict[int, float]
    users: list[str]
    counts: Counter[str] = field(default_factory=Counter)
    #: What the checkers were told.
    facts: list[Told] = field(default_factory=list)
    #: The causes of the anomalies that are known (`sim.known`), one for each.
    known: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """A hash of the history: equal for equal histories."""
        return self.history.digest


#: What happens to their disks is hard, so that some of them begin with a directory of Apache Kafka.
_OF_HARD_DISKS = (Kind.BROKER_POWER, Kind.BROKER_STEPS, Kind.BROKER_DAMAGE)
_TWO_PHASE = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}
#: Half of the worlds keep the strategy that they had before there were these.
_OTHER_STRATEGIES = (None, None, None, "sticky", "cooperative-sticky", "cooperative-sticky,range")


class World:
    """One world. Make it, and call `run` once."""

    def __init__(self, seed: int, kind: Kind, plan: Plan = ALL) -> None:
        self.seed = seed
        self.kind = kind
        self.plan = plan
        #: The faults that were made, by number: when each began.
        self.faults: dict[int, float] = {}
        #: Which users live there.
        self.people = kind.people(self.stream("people"))
        self.loses_power = kind.loses_power(self.stream("power"))
        #: How the members of groups are members.
        self.protocols = kind.protocols(self.stream("protocols"))
        self.loop = SimLoop(self.stream("loop"))
        self.history = History(self.loop)
        rng = self.stream("world")
        self.network = Network(self.loop, self.stream("network"), _weather(rng))
        #: In worlds with two-phase commit, the system that decides together with Kafka.
        self.database = Database() if kind.decides_elsewhere(self.people, self.stream("two-phase")) else None
        #: In worlds in which records are deleted.
        self.deletions: Deletions | None = None
        self.served, self._nemesis = self._brokers(rng)
        self.topics: list[str] = []
        self.partitions: dict[str, int] = {}
        #: How many of them users may name: those that the topic had from the beginning.
        self.numbered: dict[str, int] = {}
        self.processes: list[Process] = []
        self.users_stopped = False
        self.stopped_at_s = 0.0
        #: When the last fault came, or was met for the last time.
        self.last_fault_s = 0.0
        #: `partition.assignment.strategy` of all consumers.
        self.strategy = rng.choice(("range", "roundrobin", "range,roundrobin"))
        if (other := self.stream("strategy").choice(_OTHER_STRATEGIES)) is not None:
            self.strategy = other
        self._pace = {Kind.PLAIN: 1.0, Kind.TRANSACTIONS: 1.0, Kind.GROUPS: 2.0}.get(self.people, 4.0)
        #: The chance that a consumer's callback raises.
        self.mistakes = rng.choice((0.0, 0.0, 0.05))
        #: The chance that a reader, after a poll, goes back to records that it has read before.
        self.seeks = rng.choice((0.0, 0.05, 0.3))
        #: Whether readers read only what is committed.
        self.read_committed = rng.choice((True, True, False)) or self.served.compacts
        #: Names of the processes whose consumers have a `group.instance.id`.
        self.static_members: frozenset[str] = frozenset()
        self._rng = rng
        self._anomalies: list[Anomaly] = []
        self._final: list[Told] | None = None

    def _brokers(self, rng: random.Random) -> tuple[Served, Callable[[], Nemesis]]:
        """Who serves this kind of world, and what makes the faults."""
        draw = self.stream("cluster")
        if self.kind.real:
            house = House(self.loop, self.network, self.history, draw)
            house.has_damage, house.loses_power = self.kind.damages_files, self.loses_power
            house.config.update(self.protocols.broker)
            house.clean(self.stream("cleaner"))
            if self.kind.dies_at_steps and not self.loses_power:
                house.compact(self.stream("compacted"))
            deletion = self.stream("deletion")
            if self.kind.deletes(self.people, deletion) and DELETER not in self.plan.absent and not house.compacts:
                self.deletions = house.delete(deletion)
            if self.database is not None:
                house.config |= _TWO_PHASE
            if self.kind in _OF_HARD_DISKS and self.stream("inherited").random() < 0.25:
                leave_used(house.disk)
            if self.loses_power:
                # only plain records may be lost: what a transaction or a group has lost, no checker could explain
                flush = draw.choice(("1", "1", "3", None)) if self.people is Kind.PLAIN else "1"
                house.flush_before_answers(flush)
            return house, lambda: HouseNemesis(self, house, self.stream("nemesis"))
        cluster = Cluster(self.loop, self.network, self.history, draw, _rules(rng))
        return cluster, lambda: ClusterNemesis(self, cluster, self.stream("nemesis"))

    @property
    def pace(self) -> float:
        """How slowly users work: their pauses are so many times longer. Who is behind when the end is near, hurries."""
        is_late = self.users_stopped and self.loop.time() > self.stopped_at_s + _HURRY_S
        return 1.0 if is_late else self._pace

    def stream(self, name: str) -> random.Random:
        """A source of randomness of its own: it follows from the seed, whatever other parts of the world draw."""
        return random.Random(f"{self.seed}/{self.kind.value}/{name}")

    def key_of(self, uid: str) -> bytes | None:
        """The key that a record must have, or None."""
        return uid.encode() if self.served.compacts else None

    def unexpected(self, who: str, error: BaseException) -> None:
        """A user got an exception that the documentation does not name, or a client has stopped because of a fault."""
        text = "".join(traceback.format_exception(error))
        self.history.add(who, "unexpected", repr(error))
        self._anomalies.append(Anomaly("unexpected-exception", f"{who}: {text}", (who,)))

    @property
    def _killed(self) -> frozenset[str]:
        """Lives that were killed."""
        return frozenset(event.who for event in self.history.events if event.what == "killed")

    def anomaly(self, name: str, text: str, *around: str) -> None:
        """A user, or the world itself, has noticed an anomaly."""
        self._anomalies.append(Anomaly(name, text, around))

    # its course

    def run(self) -> Verdict:
        """Run the world, and the checkers."""
        was_on = gc.isenabled()
        gc.disable()  # the time of a collection would depend on what this process did before
        try:
            run(self._course(), self.loop)
        except (DeadlockError, LivelockError) as error:
            self._anomalies.append(Anomaly(type(error).__name__.removesuffix("Error").lower(), str(error)))
        except Exception as error:  # noqa: BLE001 - a fault of the simulation: told with the seed, like any other
            self._anomalies.append(Anomaly("broken-world", "".join(traceback.format_exception(error))))
        finally:
            for process in self.processes:
                process.forget_clients()
            if was_on:
                gc.enable()
        self._anomalies += [
            Anomaly("unheard-exception", text)
            for text in self.loop.unheard
            if not (self._killed and text.startswith(_STILL_PENDING))
        ]
        facts = self._final or self._told()
        found = self._anomalies + self.served.anomalies + self.served.judge(facts)
        causes = [known(anomaly, self.history.events) for anomaly in found]
        anomalies = [anomaly for anomaly, cause in zip(found, causes, strict=True) if cause is None]
        counts = self.served.counts + Counter({f"cut: {how.value}": n for how, n in self.network.cuts.items()})
        virtual_s = self.loop.time() - START_S
        users = [process.name for process in self.processes]
        return Verdict(
            self.seed,
            self.kind,
            self.plan,
            anomalies,
            self.history,
            virtual_s,
            self.faults,
            users,
            counts,
            facts,
            [cause for cause in causes if cause is not None],
        )

    async def _course(self) -> None:
        self.history.add("world", "rules", f"{self.served.rules}")
        await self.served.start()
        for number in range(self._rng.choice((1, 1, 2))):
            await self.add_topic(f"t{number}", self._rng.choice((1, 1, 2, 3)))
        await self._make_users()
        present = [process for process in self.processes if process.name not in self.plan.absent]
        running = [asyncio.create_task(process.run(), name=process.name) for process in present]
        await self._nemesis().run(self.loop.time() + self.plan.faults_s)
        self.users_stopped = True
        self.stopped_at_s = self.loop.time()
        self.history.add("world", "faults are over", "users finish")
        await self._settled(running)
        self.history.close()
        self._final = self._told()

    async def _settled(self, running: list[asyncio.Task[None]]) -> None:
        """Wait until the users have finished, and then for replicas, markers and coordinators."""
        self.last_fault_s = self.loop.time()
        unfinished = set(running)
        while unfinished and self.loop.time() < self.last_fault_s + SETTLE_S:
            _, unfinished = await asyncio.wait(running, timeout=5.0)
            flood = [f"{count} requests of {api}" for api, count in self.served.counts.items() if count > _FLOOD]
            if flood:
                self.anomaly("flood", f"{', '.join(flood)}: a client repeats requests without a pause")
                return
        for name in sorted(task.get_name() for task in unfinished):
            text = f"{name} is not done {SETTLE_S:.0f} s after the last fault:\n{self.loop.waiting()}"
            self.anomaly("never-settled", text, name)
        await asyncio.sleep(20.0)

    async def add_topic(self, name: str, partitions: int, *, input_topic: bool = True) -> None:
        """Create a topic. Users write to input topics, and read them."""
        await self.served.create_topic(name, partitions)
        self.partitions[name] = self.numbered[name] = partitions
        if input_topic:
            self.topics.append(name)

    async def _make_users(self) -> None:
        """Who lives in this kind of world."""
        draw = self._rng.choice
        makers: list[tuple[type[Process], str, int]] = []
        match self.people:
            case Kind.PLAIN:
                makers = [(PlainProducer, "p", draw((1, 1, 2, 3)))]
            case Kind.TRANSACTIONS:
                makers = [(Transactor, "t", draw((1, 2, 3))), (PlainProducer, "p", draw((0, 0, 1)))]
            case Kind.GROUPS:
                makers = [(Reader, "r", draw((1, 2, 3))), (PlainProducer, "p", 1), (Transactor, "t", draw((0, 1)))]
            case Kind.PIPELINE | Kind.EXACTLY_ONCE:
                worker = Looper if self.people is Kind.EXACTLY_ONCE else Transformer
                makers = [(worker, "x", draw((1, 2, 3))), (PlainProducer, "p", 1), (Transactor, "t", draw((0, 1)))]
                await self.add_topic(OUTPUT, draw((1, 2)), input_topic=False)
        for make, letter, count in makers:
            self.processes += [make(self, f"{letter}{number}") for number in range(count)]
        self.static_members = frozenset(p.name for p in self.processes if self._rng.random() < 0.3)
        if self.deletions is not None:
            self.processes.append(Deleter(self, DELETER, self.deletions))

    def _told(self) -> list[Told]:
        """What the checkers read: what happened, and what there is now."""
        partitions = [TopicPartition(topic, n) for topic, count in self.partitions.items() for n in range(count)]
        logs, hanging = {}, {}
        for tp in partitions:
            logs[tp], first_open = self.served.records(tp), self.served.hanging(tp)
            if first_open is not None:
                hanging[tp] = first_open
        inputs = tuple(sorted(tp for tp in partitions if tp.topic in self.topics))
        present = [process for process in self.processes if process.name not in self.plan.absent]
        readers = [process for process in present if isinstance(process, Reading)]
        groups = {process.group: process for process in readers}
        positions = {}
        for group, reader in groups.items():
            there = self.served.positions(group)
            if there is not None:
                positions[group] = there
            elif isinstance(reader, Transformer):
                self.anomaly("never-settled", f"nobody coordinates {group} in the end")
        drained = tuple(
            Drained(group, inputs, reader.read_committed, transforms=isinstance(reader, Transformer))
            for group, reader in groups.items()
        )
        final = FinalState(logs, hanging, positions, drained, self.served.compacts)
        return list(told(self.history.events, final, self.served.lost, self.loop.time() - START_S))


def _weather(rng: random.Random) -> Weather:
    return Weather(
        delay_s=rng.choice((0.0003, 0.002, 0.02)),
        spike=rng.choice((0.0, 0.02)),
        spike_s=rng.choice((0.05, 0.5)),
        refuse=rng.choice((0.0, 0.0, 0.05)),
        cut=rng.choice((0.0, 0.01, 0.05, 0.15)),
        fragment=rng.choice((0.0, 0.05)),
    )


def _rules(rng: random.Random) -> Rules:
    caps = rng.choice(({}, {ApiKey.PRODUCE: 12, ApiKey.FETCH: 12, ApiKey.METADATA: 12}))
    return Rules(
        max_lag_s=rng.choice((1.0, 4.0, 10.0)),
        session_s=rng.choice((1.0, 3.0, 9.0)),
        replication_s=rng.choice((0.001, 0.01, 0.1)),
        news_s=rng.choice((0.005, 0.05, 0.5)),
        transaction_version=rng.choice((2, 2, 0)),
        fetch_sessions=rng.random() < 0.7,
        throttle=rng.choice((0.0, 0.0, 0.05)),
        caps=dict(caps),
    )

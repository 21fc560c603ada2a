"""The cluster: three brokers, a controller, and the faults that they can have."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ottla.base.types import TopicPartition
from ottla.testing.history.check import anomalies_of
from ottla.wire.apis import API, ApiKey
from sim.check import Anomaly, LogRecord, Told, records_of
from sim.cluster.controller import Controller
from sim.cluster.coordinators import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    CoordinatorLog,
    assign,
    partition_of,
)
from sim.cluster.log import ReplicaLog
from sim.cluster.node import PORT, Node
from sim.cluster.producers import REMEMBERED
from sim.cluster.server import SPOKEN
from sim.commits import Lives, positions_in
from sim.history import History
from sim.loop import SimLoop
from sim.network import Network

T = TypeVar("T")

#: Partitions of each internal topic.
COORDINATORS = 3
#: How long a broker waits for another broker's answer.
_RPC_TIMEOUT_S = 3.0


@dataclass(slots=True)
class Rules:
    """The settings of this cluster."""

    min_isr: int = 2
    #: How many batches of a producer a broker remembers.
    window: int = REMEMBERED
    #: For how long a replica may lag and stay in sync; for how long a broker may be silent before it is fenced.
    max_lag_s: float = 4.0
    session_s: float = 3.0
    #: How long a copy between brokers takes, and news from the controller, on average.
    replication_s: float = 0.002
    news_s: float = 0.02
    #: Level of `transaction.version`: 2 is KIP-890's protocol.
    transaction_version: int = 2
    #: Whether fetches get sessions.
    fetch_sessions: bool = True
    #: The chance that a produce or a fetch is throttled.
    throttle: float = 0.0
    #: The highest version of an API, if it is not the newest.
    caps: dict[ApiKey, int] = field(default_factory=dict)
    rebalance_delay_ms: int = 300

    def calm(self) -> None:
        """Faults are over: copies and news are fast, nobody is throttled."""
        self.replication_s = min(self.replication_s, 0.005)
        self.news_s = min(self.news_s, 0.02)
        self.throttle = 0.0


class Cluster:
    """Brokers, controller, and the logs of the coordinators."""

    def __init__(
        self, loop: SimLoop, network: Network, history: History, rng: random.Random, rules: Rules | None = None
    ) -> None:
        self.loop = loop
        self.network = network
        self.history = history
        self.rng = rng
        self.rules = rules or Rules()
        self.counts: Counter[str] = Counter()
        self.anomalies: list[Anomaly] = []
        #: No machine loses its power here.
        self.lost: frozenset[str] = frozenset()
        self.nodes = {node_id: Node(self, node_id) for node_id in (1, 2, 3)}
        self.controller = Controller(self, rng, session_s=self.rules.session_s)
        self.controller.register(tuple(self.nodes))
        self.logs: dict[TopicPartition, CoordinatorLog] = {}
        #: What the coordinators have told the history of their groups.
        self.commits_known = Lives()
        self.versions = self._spoken()
        self._unique = 0
        self._when_healed: list[Callable[[], None]] = []

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers`."""
        return ",".join(f"{node.host}:{PORT}" for node in self.nodes.values())

    async def start(self) -> None:
        """Start every broker."""
        for topic in INTERNAL_TOPICS:
            self.controller.create_topic(topic, COORDINATORS)
            for number in range(COORDINATORS):
                self.logs[TopicPartition(topic, number)] = CoordinatorLog()
        for node in self.nodes.values():
            await asyncio.create_task(node.start())
        self._watch()

    def _spoken(self) -> dict[ApiKey, tuple[int, int]]:
        """The versions of each API that the brokers speak."""
        return {
            API[key].key: (API[key].min_version, min(API[key].max_version, self.rules.caps.get(API[key].key, 99)))
            for key in SPOKEN
        }

    def is_internal(self, topic: str) -> bool:
        """Whether the topic is the log of coordinators."""
        return topic in INTERNAL_TOPICS

    def unique(self) -> int:
        """A number that was not used before, for fetch sessions and member ids."""
        self._unique += 1
        return self._unique

    def note(self, what: str, text: str) -> None:
        """Something happened in the cluster."""
        self.counts[what] += 1
        self.history.add("cluster", what, text)

    # time

    def replication_s(self) -> float:
        """How long the next copy takes."""
        return self.rng.expovariate(1.0 / self.rules.replication_s)

    def news_s(self) -> float:
        """How long the next news from the controller take."""
        return self.rng.expovariate(1.0 / self.rules.news_s)

    def _watch(self) -> None:
        self.controller.watch()
        self.loop.call_later(0.5, self._watch)

    # between brokers

    def connected(self, one: Node, other: Node) -> bool:
        """Whether both brokers run, and each reaches the other."""
        if not (one.alive and other.alive) or one.is_frozen or other.is_frozen:
            return False
        return self.network.reaches(one.host, other.host) and self.network.reaches(other.host, one.host)

    def ask(
        self,
        asker: Node,
        node_id: int,
        call: Callable[[Node, Callable[[T], None]], None],
        done: Callable[[T | None], None],
    ) -> None:
        """Make `call` on another broker. `done` gets its answer, or None if no answer comes in time."""
        answered = False

        def finish(answer: T | None) -> None:
            nonlocal answered
            if not answered:
                answered = True
                done(answer)

        asker.later(_RPC_TIMEOUT_S, finish, None)
        other = self.nodes.get(node_id)
        if other is None or not (self.network.reaches(asker.host, other.host)):
            return

        def back(answer: T) -> None:
            if self.network.reaches(other.host, asker.host):
                asker.later(self.replication_s(), finish, answer)

        other.later(self.replication_s(), call, other, back)

    def when_healed(self, call: Callable[[], None]) -> None:
        """Make `call` after the next fault is over."""
        self._when_healed.append(call)

    def healed(self) -> None:
        """A fault of a broker or of the network is over: brokers look for news and for records to copy."""
        calls, self._when_healed = self._when_healed, []
        for call in calls:
            call()
        for node in self.nodes.values():
            if node.alive:
                node.will_hear()
                node.catch_up()

    def assign_coordinators(self, node: Node) -> None:
        """Start and stop the broker's coordinators, as its image says."""
        assign(self, node)

    # faults

    def freeze(self, node_id: int) -> None:
        """The broker's process stands still."""
        self.note("freeze", f"broker {node_id}")
        self.network.freeze(self.nodes[node_id].host)

    def thaw(self, node_id: int) -> None:
        """The broker's process goes on, and does not know that time has passed."""
        self.note("thaw", f"broker {node_id}")
        node = self.nodes[node_id]
        self.network.thaw(node.host)
        node.thawed()
        self.healed()

    def kill(self, node_id: int) -> None:
        """The broker's process ends."""
        self.note("kill", f"broker {node_id}")
        self.nodes[node_id].kill()

    async def restart(self, node_id: int) -> None:
        """Start a killed broker again. It has what it had written."""
        self.note("restart", f"broker {node_id}")
        await asyncio.create_task(self.nodes[node_id].start())
        self.healed()

    def fail_disk(self, node_id: int, tp: TopicPartition) -> None:
        """The broker cannot write or read the partition; the controller hears of it."""
        self.note("disk failed", f"{tp} on broker {node_id}")
        self.nodes[node_id].replica(tp).fail_disk()
        self.loop.call_later(self.news_s(), self.controller.disk_failed, tp, node_id)

    def repair_disk(self, node_id: int, tp: TopicPartition) -> None:
        """The broker can write and read the partition again."""
        self.note("disk repaired", f"{tp} on broker {node_id}")
        self.nodes[node_id].replica(tp).repair_disk()
        self.controller.elect_missing()
        self.healed()

    async def create_topic(self, name: str, partitions: int) -> None:
        """A topic of the users'."""
        self.controller.create_topic(name, partitions)

    def calm(self) -> None:
        """The faults are over."""
        self.rules.calm()

    @property
    def compacts(self) -> bool:
        """It has no cleaner."""
        return False

    def records(self, tp: TopicPartition) -> list[LogRecord]:
        """What the partition holds in the end."""
        log = self._final_log(tp)
        return records_of(log.entries) if log is not None else []

    def hanging(self, tp: TopicPartition) -> int | None:
        """Where a transaction is open in the end."""
        log = self._final_log(tp)
        return log.producers.first_open() if log is not None else None

    def _final_log(self, tp: TopicPartition) -> ReplicaLog | None:
        """The partition's log at the end: the leader's, which all replicas have copied by then."""
        state = self.controller.image.partitions[tp]
        return self.nodes[state.leader].replica(tp).log if state.leader >= 0 else None

    def judge(self, facts: Sequence[Told]) -> list[Anomaly]:
        """What the checkers find."""
        return anomalies_of(facts)

    def behind_loss(self, tp: TopicPartition, offset: int) -> int | None:
        """No record is lost here."""
        return None

    def deleted_below(self, tp: TopicPartition) -> int:
        """Nothing is deleted here."""
        return 0

    def generation(self, group: str) -> int | None:
        """The coordinator's log is never cut here: each generation is counted once."""
        return None

    def positions(self, group: str) -> dict[TopicPartition, int] | None:
        """The offsets that the group has committed at the end, from its coordinator; None when it has none."""
        tp = partition_of(OFFSETS_TOPIC, group)
        leader = self.controller.image.partitions[tp].leader
        running = self.nodes[leader].coordinators.get(tp) if leader >= 0 else None
        if running is None:
            return None
        return positions_in(running.shard, group)

"""One world: everything in it comes from its seed and its kind."""

import asyncio
import gc
import hashlib
import random
import traceback
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from ottla.base.types import TopicPartition
from ottla.wire.apis import ApiKey
from sim.check import Anomaly, Evidence, LogRecord, check, records_of
from sim.cluster.cluster import Cluster, Rules
from sim.history import History, table
from sim.known import known
from sim.loop import START_S, DeadlockError, LivelockError, SimLoop, run
from sim.nemesis import Nemesis
from sim.network import Network, Weather
from sim.users.process import Process
from sim.users.producers import PlainProducer

#: How long the users work and the faults last, and how long everything may take to settle after that.
FAULTS_S = 45.0
SETTLE_S = 150.0


class Kind(Enum):
    """What a world is about."""

    PLAIN = "plain"


@dataclass(slots=True)
class Verdict:
    """What became of a world."""

    seed: int
    kind: Kind
    anomalies: list[Anomaly]
    history: History
    virtual_s: float
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def digest(self) -> str:
        """Equal for equal histories."""
        return hashlib.sha256(table(self.history.events).encode()).hexdigest()


class World:
    """See the module."""

    def __init__(self, seed: int, kind: Kind) -> None:
        self.seed = seed
        self.kind = kind
        self.loop = SimLoop(self.stream("loop"))
        self.history = History(self.loop)
        rng = self.stream("world")
        self.network = Network(self.loop, self.stream("network"), _weather(rng))
        self.cluster = Cluster(self.loop, self.network, self.history, self.stream("cluster"), _rules(rng))
        self.topics: list[str] = []
        self.partitions: dict[str, int] = {}
        self.processes: list[Process] = []
        self.users_stopped = False
        self._rng = rng
        self._anomalies: list[Anomaly] = []
        self._logs: dict[TopicPartition, list[LogRecord]] = {}

    def stream(self, name: str) -> random.Random:
        """A source of randomness that depends on the seed and on nothing that others draw."""
        return random.Random(f"{self.seed}/{self.kind.value}/{name}")

    def unexpected(self, who: str, error: BaseException) -> None:
        """A user got an exception that no documentation promises."""
        text = "".join(traceback.format_exception(error))
        self.history.add(who, "unexpected", repr(error))
        self._anomalies.append(Anomaly("unexpected-exception", f"{who}: {text}", (who,)))

    # its course

    def run(self) -> Verdict:
        """From the beginning to the checkers."""
        was_on = gc.isenabled()
        gc.disable()  # when something is collected must not depend on what the process did before
        try:
            run(self._course(), self.loop)
        except (DeadlockError, LivelockError) as error:
            self._anomalies.append(Anomaly(type(error).__name__.removesuffix("Error").lower(), str(error)))
        finally:
            for process in self.processes:
                process.bury()
            if was_on:
                gc.enable()
        self._anomalies += [
            Anomaly("unheard-exception", text) for text in self.loop.unheard if "it is pending" not in text
        ]
        found = self._anomalies + check(self._evidence())
        anomalies = [anomaly for anomaly in found if known(anomaly, self.history.events) is None]
        self.cluster.counts["known anomalies"] = len(found) - len(anomalies)
        counts = self.cluster.counts + Counter({"cuts": self.network.cuts})
        return Verdict(self.seed, self.kind, anomalies, self.history, self.loop.time() - START_S, counts)

    async def _course(self) -> None:
        await self.cluster.start()
        for number in range(self._rng.choice((1, 1, 2))):
            self.add_topic(f"t{number}", self._rng.choice((1, 1, 2, 3)))
        self._people()
        running = [asyncio.create_task(process.run(), name=process.name) for process in self.processes]
        await Nemesis(self, self.stream("nemesis")).run(self.loop.time() + FAULTS_S)
        self.users_stopped = True
        self.history.add("world", "faults are over", "users finish")
        _, unfinished = await asyncio.wait(running, timeout=SETTLE_S)
        for task in unfinished:
            text = f"{task.get_name()} is not done {SETTLE_S:.0f} s after the last fault:\n{self.loop.waiting()}"
            self._anomalies.append(Anomaly("never-settled", text, (task.get_name(),)))
        await asyncio.sleep(20.0)  # replicas, markers and coordinators, too
        self.history.close()
        self._logs = self._final_logs()

    def add_topic(self, name: str, partitions: int) -> None:
        """A topic that users write to."""
        self.cluster.controller.create_topic(name, partitions)
        self.topics.append(name)
        self.partitions[name] = partitions

    def _people(self) -> None:
        self.processes += [PlainProducer(self, f"p{n}") for n in range(self._rng.choice((1, 1, 2, 3)))]

    def _evidence(self) -> Evidence:
        killed = frozenset(event.who for event in self.history.events if event.what == "killed")
        return Evidence(self.history.events, self._logs or self._final_logs(), killed)

    def _final_logs(self) -> dict[TopicPartition, list[LogRecord]]:
        tps = [TopicPartition(topic, number) for topic in self.topics for number in range(self.partitions[topic])]
        return {tp: records_of(self.cluster.final_log(tp)) for tp in tps}


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

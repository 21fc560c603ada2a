"""One broker: its process, its image of the cluster, its replicas, its coordinators, and its fetch sessions."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.base.types import TopicPartition
from sim.cluster.controller import Image
from sim.cluster.replica import Replica
from sim.loop import HOST

if TYPE_CHECKING:
    from sim.cluster.cluster import Cluster
    from sim.cluster.coordinators import Coordinator

PORT = 9092


class Node:
    """One broker. All its timers come from `later`: they wait while it is frozen, and end when it is killed."""

    def __init__(self, cluster: "Cluster", node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.host = f"broker{node_id}"
        self.alive = False
        self.image = Image({}, {}, ())
        self.coordinators: dict[TopicPartition, Coordinator[Any]] = {}
        #: Fetch sessions by id. They end with the process.
        self.sessions: dict[int, Any] = {}
        self._replicas: dict[TopicPartition, Replica] = {}
        self._life = 0
        self._deferred: deque[Callable[[], None]] = deque()
        self._will_hear = False

    @property
    def is_frozen(self) -> bool:
        """Whether its process stands still."""
        return self.cluster.network.is_frozen(self.host)

    @property
    def is_up(self) -> bool:
        """Whether the controller hears of it."""
        return self.alive and not self.is_frozen and self.cluster.network.reaches(self.host, "controller")

    # its process

    async def start(self) -> None:
        """Start the process, with the controller's image of now."""
        from sim.cluster.server import ServerConnection

        self.alive = True
        self.image = self.cluster.controller.image
        self._learn()
        HOST.set(self.host)
        await self.cluster.loop.create_server(lambda: ServerConnection(self), self.host, PORT)
        self._tick()

    def kill(self) -> None:
        """End the process at once."""
        self.alive = False
        self._life += 1
        self._will_hear = False
        self._deferred.clear()
        self.sessions.clear()
        for coordinator in self.coordinators.values():
            coordinator.stop()
        self.coordinators.clear()
        for replica in self._replicas.values():
            replica.died()
        self.cluster.network.drop(self.host)

    def later(self, delay_s: float, call: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        """Make `call` after `delay_s`; if the process is frozen then, when it goes on; never after a kill."""
        life = self._life

        def due() -> None:
            if self._life != life or not self.alive:
                return
            if self.is_frozen:
                self._deferred.append(due)
            else:
                call(*args)

        return self.cluster.loop.call_later(delay_s, due)

    def thawed(self) -> None:
        """The process goes on, first with the calls that were due meanwhile."""
        while self._deferred and not self.is_frozen:
            self._deferred.popleft()()

    # its image of the cluster

    def will_hear(self) -> None:
        """The controller has news. The broker gets the whole image some time later."""
        if not self.alive or self._will_hear:
            return
        self._will_hear = True
        self.later(self.cluster.news_s(), self._hear)

    def _hear(self) -> None:
        self._will_hear = False
        if not self.cluster.network.reaches("controller", self.host):
            self.cluster.when_healed(self.will_hear)
            return
        self.image = self.cluster.controller.image
        self._learn()

    def _learn(self) -> None:
        self.cluster.assign_coordinators(self)
        for tp, state in self.image.partitions.items():
            if not self.cluster.is_internal(tp.topic):
                self.replica(tp).learn(state)
        for tp in self.image.partitions:
            if not self.cluster.is_internal(tp.topic) and self.replica(tp).leads:
                self.replica(tp).tell_followers()

    def replica(self, tp: TopicPartition) -> Replica:
        """The broker's replica of a partition."""
        found = self._replicas.get(tp)
        if found is None:
            found = self._replicas[tp] = Replica(self, tp)
        return found

    def is_offline(self, tp: TopicPartition) -> bool:
        """Whether the broker's disk has failed for the partition."""
        found = self._replicas.get(tp)
        return found is not None and found.offline

    def catch_up(self) -> None:
        """Other brokers can be reached again: copy from leaders, and let followers copy."""
        for replica in self._replicas.values():
            replica.will_pull()
            if replica.leads:
                replica.tell_followers()

    def _tick(self) -> None:
        for replica in self._replicas.values():
            replica.check_lag(self.cluster.rules.max_lag_s)
        self.later(1.0, self._tick)

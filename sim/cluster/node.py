"""One broker: its process, its picture of the cluster, its replicas, and the connections that it serves."""

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
    """See the module. `later` is its only clock: what it does stops while it is frozen, and ends when it is killed."""

    def __init__(self, cluster: "Cluster", node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.host = f"broker{node_id}"
        self.alive = False
        self.image = Image({}, {}, ())
        self.coordinators: dict[TopicPartition, Coordinator[Any]] = {}
        #: Fetch sessions by id, of this life.
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

    # life

    async def start(self) -> None:
        """Listen, with the picture that the controller has now."""
        from sim.cluster.server import ServerConnection

        self.alive = True
        self.image = self.cluster.controller.image
        self._learn()
        HOST.set(self.host)
        await self.cluster.loop.create_server(lambda: ServerConnection(self), self.host, PORT)
        self._tick()

    def kill(self) -> None:
        """The process ends at once."""
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
        """`call` after `delay_s`, or when the process is let go on after that; never in another life."""
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
        """The process goes on: what it should have done meanwhile comes first."""
        while self._deferred and not self.is_frozen:
            self._deferred.popleft()()

    # its picture

    def will_hear(self) -> None:
        """The controller has news; they come some time later, the whole picture at once."""
        if not self.alive or self._will_hear:
            return
        self._will_hear = True
        self.later(self.cluster.news_s(), self._hear)

    def _hear(self) -> None:
        self._will_hear = False
        if not self.cluster.network.reaches("controller", self.host):
            self.cluster.when_joined(self.will_hear)
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
                self.replica(tp).pulled_by_all()

    def replica(self, tp: TopicPartition) -> Replica:
        """Its replica of a partition."""
        found = self._replicas.get(tp)
        if found is None:
            found = self._replicas[tp] = Replica(self, tp)
        return found

    def is_offline(self, tp: TopicPartition) -> bool:
        """Whether its disk has failed for the partition."""
        found = self._replicas.get(tp)
        return found is not None and found.offline

    def catch_up(self) -> None:
        """The way to the others is open again."""
        for replica in self._replicas.values():
            replica.will_pull()
            if replica.leads:
                replica.pulled_by_all()

    def _tick(self) -> None:
        for replica in self._replicas.values():
            replica.check_lag(self.cluster.rules.max_lag_s)
        self.later(1.0, self._tick)

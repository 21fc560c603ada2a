"""The controller decides leader, leader epoch and replicas in sync of each partition. Brokers hear of it later.

The controller itself never fails here, and elections are clean. What a broker hears is always the whole image of one
moment, and never an older image than the one that it has.
"""

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.types import TopicPartition

if TYPE_CHECKING:
    from sim.cluster.cluster import Cluster

NO_LEADER = -1


class PartitionState(NamedTuple):
    """One partition as the controller sees it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


class Topic(NamedTuple):
    """A topic and its settings."""

    name: str
    topic_id: bytes
    partitions: int
    max_message_bytes: int = 1_048_588


class Image(NamedTuple):
    """What the controller knows at one moment."""

    partitions: Mapping[TopicPartition, PartitionState]
    topics: Mapping[str, Topic]
    #: Brokers that are not fenced.
    live: tuple[int, ...]

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic's name."""
        return next((topic.name for topic in self.topics.values() if topic.topic_id == topic_id), None)


class Controller:
    """The one controller of the cluster."""

    def __init__(self, cluster: "Cluster", rng: random.Random, *, session_s: float) -> None:
        self._cluster = cluster
        self._rng = rng
        self._session_s = session_s
        self._last_producer_id = 0
        #: Since when a broker has been silent.
        self._silent_since: dict[int, float] = {}
        self.image = Image({}, {}, ())

    def register(self, node_ids: tuple[int, ...]) -> None:
        """The brokers of the cluster."""
        self.image = self.image._replace(live=node_ids)

    def new_producer_id(self) -> int:
        """A producer id that was never given out before."""
        self._last_producer_id += 1
        return self._last_producer_id

    # topics

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic with a replica on every broker. Its partitions have different leaders."""
        topic_id = self._rng.randbytes(16)
        states = dict(self.image.partitions)
        ids = tuple(sorted(self._cluster.nodes))
        first = self._rng.randrange(len(ids))
        for number in range(partitions):
            at = (first + number) % len(ids)
            replicas = ids[at:] + ids[:at]
            states[TopicPartition(name, number)] = PartitionState(replicas[0], 0, replicas, replicas)
        topics = {**self.image.topics, name: Topic(name, topic_id, partitions)}
        self._publish(self.image._replace(partitions=states, topics=topics))

    def set_max_message_bytes(self, name: str, size: int) -> None:
        """Set `max.message.bytes` of a topic."""
        changed = self.image.topics[name]._replace(max_message_bytes=size)
        self._publish(self.image._replace(topics={**self.image.topics, name: changed}))

    # leaders

    def elect(self, tp: TopicPartition, wanted: int | None = None) -> bool:
        """Elect a leader among the replicas in sync, `wanted` if possible. Returns whether the leader has changed."""
        state = self.image.partitions[tp]
        able = [n for n in self.electable(state) if n in self.image.live and not self._cluster.nodes[n].is_offline(tp)]
        others = [n for n in able if n != state.leader]
        if wanted is not None and wanted in others:
            leader = wanted
        elif state.leader in able and wanted is None:
            return False
        else:
            leader = self._rng.choice(others) if others else (able[0] if able else NO_LEADER)
        if leader == state.leader:
            return False
        self._set(tp, state._replace(leader=leader, leader_epoch=state.leader_epoch + 1))
        self._cluster.note("election", f"{tp}: {state.leader} -> {leader}, epoch {state.leader_epoch + 1}")
        return True

    def electable(self, state: PartitionState) -> tuple[int, ...]:
        """The replicas that may lead if they are alive: elections are clean."""
        return state.isr

    def alter_isr(self, tp: TopicPartition, node_id: int, leader_epoch: int, isr: tuple[int, ...]) -> bool:
        """A leader changes the replicas in sync. Refused if it is not the leader, or if it adds a fenced broker."""
        state = self.image.partitions[tp]
        if state.leader != node_id or state.leader_epoch != leader_epoch:
            return False
        if any(n not in self.image.live for n in isr if n not in state.isr):
            return False
        self._set(tp, state._replace(isr=isr))
        self._cluster.note("isr", f"{tp}: {list(state.isr)} -> {list(isr)}")
        return True

    def disk_failed(self, tp: TopicPartition, node_id: int) -> None:
        """A replica is offline: another one has to lead."""
        state = self.image.partitions[tp]
        isr = tuple(n for n in state.isr if n != node_id) or state.isr
        self._set(tp, state._replace(isr=isr))
        self.elect(tp)

    def watch(self) -> None:
        """Fence brokers that are silent for too long; unfence those that are heard again."""
        now_s = self._cluster.loop.time()
        for node_id, node in self._cluster.nodes.items():
            if node.is_up:
                self._silent_since.pop(node_id, None)
                if node_id not in self.image.live:
                    self._unfence(node_id)
            elif now_s - self._silent_since.setdefault(node_id, now_s) >= self._session_s:
                self.fence(node_id)

    def fence(self, node_id: int) -> None:
        """Treat the broker as gone: others lead its partitions. It stays in sync only where it is the last one."""
        if node_id not in self.image.live:
            return
        self._cluster.note("fenced", f"broker {node_id}")
        self.image = self.image._replace(live=tuple(n for n in self.image.live if n != node_id))
        for tp, state in self.image.partitions.items():
            isr = tuple(n for n in state.isr if n != node_id) or state.isr
            if isr != state.isr:
                self._set(tp, state._replace(isr=isr), publish=False)
            if state.leader == node_id:
                self.elect(tp)
        self._publish(self.image)

    def _unfence(self, node_id: int) -> None:
        self._cluster.note("unfenced", f"broker {node_id}")
        self.image = self.image._replace(live=tuple(sorted((*self.image.live, node_id))))
        self.elect_missing()
        self._publish(self.image)

    def elect_missing(self) -> None:
        """Elect leaders of partitions that have none: a broker is back."""
        for tp, state in self.image.partitions.items():
            if state.leader == NO_LEADER:
                self.elect(tp)

    def _set(self, tp: TopicPartition, state: PartitionState, *, publish: bool = True) -> None:
        image = self.image._replace(partitions={**self.image.partitions, tp: state})
        if publish:
            self._publish(image)
        else:
            self.image = image

    def _publish(self, image: Image) -> None:
        self.image = image
        for node in self._cluster.nodes.values():
            node.will_hear()

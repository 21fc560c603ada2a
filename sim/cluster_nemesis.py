"""Faults of the modelled cluster: of its brokers, of their leaders and coordinators, and of the network around them."""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.base.types import TopicPartition
from sim.cluster.cluster import Cluster
from sim.nemesis import Fault, Nemesis

if TYPE_CHECKING:
    from sim.world import World


class ClusterNemesis(Nemesis):
    """See the module."""

    def __init__(self, world: "World", cluster: Cluster, rng: random.Random) -> None:
        super().__init__(world, rng)
        self._cluster = cluster
        self._busy_brokers: set[int] = set()

    def _possible(self) -> Sequence[Fault]:
        return (
            self._freeze_broker,
            self._kill_broker,
            self._move_leader,
            self._move_leader,
            self._move_coordinator,
            self._part_broker_and_client,
            self._part_brokers,
            self._part_from_controller,
            self._storm,
            self._cut_everything,
            self._fail_disk,
            self._shrink_messages,
            self._shrink_messages,
            self._freeze_client,
            self._kill_client,
            self._start_twin,
        )

    def _take_broker(self, rng: random.Random) -> int | None:
        """A broker without a fault, or None: at least one broker always stays without."""
        free = [node_id for node_id in self._cluster.nodes if node_id not in self._busy_brokers]
        if len(free) < 2:
            return None
        node_id = rng.choice(free)
        self._busy_brokers.add(node_id)
        return node_id

    async def _freeze_broker(self, rng: random.Random) -> None:
        node_id = self._take_broker(rng)
        if node_id is not None:
            self._cluster.freeze(node_id)
            await self._for(rng, rng.choice((0.3, 3.0, 8.0)))
            self._cluster.thaw(node_id)
            self._busy_brokers.discard(node_id)

    async def _kill_broker(self, rng: random.Random) -> None:
        node_id = self._take_broker(rng)
        if node_id is not None:
            self._cluster.kill(node_id)
            await self._for(rng, rng.choice((0.3, 3.0)))
            await self._cluster.restart(node_id)
            self._busy_brokers.discard(node_id)

    async def _move_leader(self, rng: random.Random) -> None:
        cluster = self._cluster
        tp = rng.choice([tp for tp in cluster.controller.image.partitions if not cluster.is_internal(tp.topic)])
        cluster.controller.elect(tp, rng.choice(tuple(cluster.nodes)))

    async def _move_coordinator(self, rng: random.Random) -> None:
        cluster = self._cluster
        tp = rng.choice([tp for tp in cluster.controller.image.partitions if cluster.is_internal(tp.topic)])
        cluster.controller.elect(tp, rng.choice(tuple(cluster.nodes)))

    async def _fail_disk(self, rng: random.Random) -> None:
        node_id = self._take_broker(rng)
        if node_id is not None:
            cluster = self._cluster
            led = [tp for tp in self._data_partitions() if cluster.nodes[node_id].replica(tp).leads]
            if led:
                tp = rng.choice(led)
                cluster.fail_disk(node_id, tp)
                await self._for(rng, 3.0)
                cluster.repair_disk(node_id, tp)
            self._busy_brokers.discard(node_id)

    def _data_partitions(self) -> list[TopicPartition]:
        cluster = self._cluster
        return [tp for tp in cluster.controller.image.partitions if not cluster.is_internal(tp.topic)]

    async def _shrink_messages(self, rng: random.Random) -> None:
        topic = rng.choice(self._world.topics)
        controller = self._cluster.controller
        size = rng.choice((150, 200, 400, 1_000))
        self._note("max.message.bytes", f"{topic}: {size}")
        controller.set_max_message_bytes(topic, size)
        await self._for(rng, 3.0)
        self._note("max.message.bytes", f"{topic}: 1048588")
        controller.set_max_message_bytes(topic, 1_048_588)

    async def _part_broker_and_client(self, rng: random.Random) -> None:
        lives = [process.who for process in self._world.processes if process.is_alive]
        if lives:
            broker = rng.choice(list(self._cluster.nodes.values())).host
            pair = [broker, rng.choice(lives)]
            rng.shuffle(pair)
            await self._part(rng, *pair)

    async def _part_brokers(self, rng: random.Random) -> None:
        pair = rng.sample([node.host for node in self._cluster.nodes.values()], 2)
        await self._part(rng, *pair)

    async def _part_from_controller(self, rng: random.Random) -> None:
        node_id = self._take_broker(rng)
        if node_id is not None:
            await self._part(rng, self._cluster.nodes[node_id].host, "controller")
            self._busy_brokers.discard(node_id)

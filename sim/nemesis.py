"""The nemesis (Jepsen's word) makes faults: which, when and for how long is drawn from the seed. All end in time."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ottla.base.types import TopicPartition
from sim.network import Weather

if TYPE_CHECKING:
    from sim.world import World


class Nemesis:
    """Makes faults until its time is over; then it ends them all."""

    def __init__(self, world: "World", rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._busy_brokers: set[int] = set()
        self._running: dict[asyncio.Task[None], None] = {}
        # each world draws its own selection; a fault that is listed twice is drawn more often
        faults: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = (
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
        )
        self._faults = [fault for fault in faults if rng.random() < 0.5] or [self._move_leader]
        self._mean_s = rng.choice((0.3, 1.0, 3.0))

    async def run(self, until_s: float) -> None:
        """Make faults until `until_s`; return when all of them are over."""
        loop = self._world.loop
        while loop.time() < until_s:
            await asyncio.sleep(self._rng.expovariate(1.0 / self._mean_s))
            if loop.time() < until_s:
                task = asyncio.ensure_future(self._rng.choice(self._faults)())
                self._running[task] = None
                task.add_done_callback(self._running.pop)
        if self._running:
            await asyncio.wait(list(self._running))
        self._world.network.weather.calm()
        self._world.cluster.rules.calm()

    async def _for(self, mean_s: float) -> None:
        """Wait as long as a fault lasts: 15 seconds at most, so that the faults end soon after `until_s`."""
        await asyncio.sleep(min(self._rng.expovariate(1.0 / mean_s), 15.0))

    def _note(self, what: str, text: str) -> None:
        self._world.history.add("nemesis", what, text)

    # brokers

    def _take_broker(self) -> int | None:
        """A broker without a fault, or None: at least one broker always stays without."""
        free = [node_id for node_id in self._world.cluster.nodes if node_id not in self._busy_brokers]
        if len(free) < 2:
            return None
        node_id = self._rng.choice(free)
        self._busy_brokers.add(node_id)
        return node_id

    async def _freeze_broker(self) -> None:
        node_id = self._take_broker()
        if node_id is not None:
            self._world.cluster.freeze(node_id)
            await self._for(self._rng.choice((0.3, 3.0, 8.0)))
            self._world.cluster.thaw(node_id)
            self._busy_brokers.discard(node_id)

    async def _kill_broker(self) -> None:
        node_id = self._take_broker()
        if node_id is not None:
            self._world.cluster.kill(node_id)
            await self._for(self._rng.choice((0.3, 3.0)))
            await self._world.cluster.restart(node_id)
            self._busy_brokers.discard(node_id)

    async def _move_leader(self) -> None:
        cluster = self._world.cluster
        tp = self._rng.choice([tp for tp in cluster.controller.image.partitions if not cluster.is_internal(tp.topic)])
        cluster.controller.elect(tp, self._rng.choice(tuple(cluster.nodes)))

    async def _move_coordinator(self) -> None:
        cluster = self._world.cluster
        tp = self._rng.choice([tp for tp in cluster.controller.image.partitions if cluster.is_internal(tp.topic)])
        cluster.controller.elect(tp, self._rng.choice(tuple(cluster.nodes)))

    async def _fail_disk(self) -> None:
        node_id = self._take_broker()
        if node_id is not None:
            cluster = self._world.cluster
            led = [tp for tp in self._data_partitions() if cluster.nodes[node_id].replica(tp).leads]
            if led:
                tp = self._rng.choice(led)
                cluster.fail_disk(node_id, tp)
                await self._for(3.0)
                cluster.repair_disk(node_id, tp)
            self._busy_brokers.discard(node_id)

    def _data_partitions(self) -> list[TopicPartition]:
        cluster = self._world.cluster
        return [tp for tp in cluster.controller.image.partitions if not cluster.is_internal(tp.topic)]

    async def _shrink_messages(self) -> None:
        topic = self._rng.choice(self._world.topics)
        controller = self._world.cluster.controller
        size = self._rng.choice((150, 200, 400, 1_000))
        self._note("max.message.bytes", f"{topic}: {size}")
        controller.set_max_message_bytes(topic, size)
        await self._for(3.0)
        self._note("max.message.bytes", f"{topic}: 1048588")
        controller.set_max_message_bytes(topic, 1_048_588)

    # the network

    async def _part(self, one: str, other: str) -> None:
        network = self._world.network
        both = self._rng.random() < 0.7
        self._note("parted", f"{one} {'and' if both else 'cannot reach'} {other}")
        network.block(one, other, both_ways=both)
        await self._for(self._rng.choice((0.5, 5.0)))
        network.heal(one, other)
        self._note("healed", f"{one} and {other}")
        self._world.cluster.healed()

    async def _part_broker_and_client(self) -> None:
        lives = [process.who for process in self._world.processes if process.is_alive]
        if lives:
            broker = self._rng.choice(list(self._world.cluster.nodes.values())).host
            pair = [broker, self._rng.choice(lives)]
            self._rng.shuffle(pair)
            await self._part(*pair)

    async def _part_brokers(self) -> None:
        pair = self._rng.sample([node.host for node in self._world.cluster.nodes.values()], 2)
        await self._part(*pair)

    async def _part_from_controller(self) -> None:
        node_id = self._take_broker()
        if node_id is not None:
            await self._part(self._world.cluster.nodes[node_id].host, "controller")
            self._busy_brokers.discard(node_id)

    async def _storm(self) -> None:
        weather, draw = self._world.network.weather, self._rng.choice
        before = Weather(weather.delay_s, weather.spike, weather.spike_s, weather.refuse, weather.cut, weather.fragment)
        weather.spike, weather.spike_s = draw((0.0, 0.1)), draw((0.2, 2.0))
        weather.refuse, weather.cut = draw((0.0, 0.3)), draw((0.02, 0.1, 0.3))
        self._note("storm", f"{weather}")
        await self._for(3.0)
        weather.spike, weather.spike_s = before.spike, before.spike_s
        weather.refuse, weather.cut = before.refuse, before.cut
        self._note("storm over", f"{weather}")

    async def _cut_everything(self) -> None:
        network = self._world.network
        links = [link for link in network.links.values() if self._rng.random() < 0.5]
        self._note("cut", f"{len(links)} connections")
        for link in links:
            network.cut_soon(link)

    # clients

    async def _freeze_client(self) -> None:
        lives = [process for process in self._world.processes if process.is_alive]
        if not lives:
            return
        who = self._rng.choice(lives).who
        if self._world.loop.host_runs(who):
            self._note("freeze client", who)
            self._world.loop.freeze(who)
            self._world.network.freeze(who)
            await self._for(self._rng.choice((0.3, 4.0)))
            self._world.network.thaw(who)
            self._world.loop.thaw(who)
            self._note("thaw client", who)

    async def _kill_client(self) -> None:
        lives = [process for process in self._world.processes if process.is_alive]
        if lives:
            self._rng.choice(lives).kill()

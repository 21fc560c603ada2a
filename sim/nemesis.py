"""The nemesis (Jepsen's word) makes faults: which, when and for how long is drawn from the seed. All end in time."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from sim.network import Weather

if TYPE_CHECKING:
    from sim.world import World


#: One fault, from its beginning to its end. It draws from what it is given.
Fault: TypeAlias = Callable[[random.Random], Coroutine[Any, Any, None]]


class Nemesis(ABC):
    """Makes faults until its time is over; then it ends them all. Faults of the brokers are for subclasses."""

    def __init__(self, world: "World", rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._running: dict[asyncio.Task[None], None] = {}
        self._twins = 0
        # each world draws its own selection
        faults = self._possible()
        self._faults = [fault for fault in faults if rng.random() < 0.5] or [faults[0]]
        self._mean_s = rng.choice((0.3, 1.0, 3.0))

    @abstractmethod
    def _possible(self) -> Sequence[Fault]:
        """The faults that there are. One that is listed twice is drawn more often."""

    async def run(self, until_s: float) -> None:
        """Make faults until `until_s`; return when all of them are over.

        They have numbers, from 1 on, and each draws from a source of its own. So a fault that the world's plan leaves
        out changes nothing of what the others draw.
        """
        loop, plan, number = self._world.loop, self._world.plan, 0
        while loop.time() < until_s:
            await asyncio.sleep(self._rng.expovariate(1.0 / self._mean_s))
            fault = self._rng.choice(self._faults)
            number += 1
            if loop.time() < until_s and (plan.only is None or number in plan.only):
                self._world.faults[number] = loop.time()
                task = asyncio.ensure_future(fault(self._world.stream(f"fault {number}")))
                self._running[task] = None
                task.add_done_callback(self._running.pop)
        if self._running:
            await asyncio.wait(list(self._running))
        self._world.network.weather.calm()
        self._world.served.calm()

    async def _for(self, rng: random.Random, mean_s: float) -> None:
        """Wait as long as a fault lasts: 15 seconds at most, so that the faults end soon after `until_s`."""
        await asyncio.sleep(min(rng.expovariate(1.0 / mean_s), 15.0))

    def _note(self, what: str, text: str) -> None:
        self._world.history.add("nemesis", what, text)

    # the network

    async def _part(self, rng: random.Random, one: str, other: str) -> None:
        network = self._world.network
        both = rng.random() < 0.7
        self._note("parted", f"{one} {'and' if both else 'cannot reach'} {other}")
        network.block(one, other, both_ways=both)
        await self._for(rng, rng.choice((0.5, 5.0)))
        network.heal(one, other)
        self._note("healed", f"{one} and {other}")
        self._world.served.healed()

    async def _storm(self, rng: random.Random) -> None:
        weather, draw = self._world.network.weather, rng.choice
        before = Weather(weather.delay_s, weather.spike, weather.spike_s, weather.refuse, weather.cut, weather.fragment)
        weather.spike, weather.spike_s = draw((0.0, 0.1)), draw((0.2, 2.0))
        weather.refuse, weather.cut = draw((0.0, 0.3)), draw((0.02, 0.1, 0.3))
        self._note("storm", f"{weather}")
        await self._for(rng, 3.0)
        weather.spike, weather.spike_s = before.spike, before.spike_s
        weather.refuse, weather.cut = before.refuse, before.cut
        self._note("storm over", f"{weather}")

    async def _cut_everything(self, rng: random.Random) -> None:
        network = self._world.network
        links = [link for link in network.links.values() if rng.random() < 0.5]
        self._note("cut", f"{len(links)} connections")
        for link in links:
            network.cut_soon(link)

    # clients

    async def _freeze_client(self, rng: random.Random) -> None:
        lives = [process for process in self._world.processes if process.is_alive]
        if not lives:
            return
        who = rng.choice(lives).who
        if self._world.loop.host_runs(who):
            self._note("freeze client", who)
            self._world.loop.freeze(who)
            self._world.network.freeze(who)
            await self._for(rng, rng.choice((0.3, 4.0)))
            self._world.network.thaw(who)
            self._world.loop.thaw(who)
            self._note("thaw client", who)

    async def _kill_client(self, rng: random.Random) -> None:
        lives = [process for process in self._world.processes if process.is_alive]
        if lives:
            rng.choice(lives).kill()

    async def _start_twin(self, rng: random.Random) -> None:
        """A process runs twice for a while, with the same transactional id and the same `group.instance.id`: whoever
        starts processes takes a living one for dead. The broker has to fence one of the two."""
        lives = [process for process in self._world.processes if process.is_alive and process.may_run_twice]
        if not lives:
            return
        process = rng.choice(lives)
        self._twins += 1
        twin = type(process)(self._world, process.name)
        twin.life, twin.rng = 100 * self._twins, rng
        self._note("second start", f"{process.who} goes on")
        self._world.processes.append(twin)
        run = asyncio.ensure_future(twin.run())
        await self._for(rng, 5.0)
        twin.kill_for_good()
        await run
        self._world.processes.remove(twin)

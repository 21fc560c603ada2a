"""Faults of the real broker: of its process, its machine and its disk, and of the network around it."""

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.damage import do_damage
from sim.house import MACHINE, House
from sim.nemesis import Fault, Nemesis

if TYPE_CHECKING:
    from sim.world import World


class HouseNemesis(Nemesis):
    """See the module."""

    def __init__(self, world: "World", house: House, rng: random.Random) -> None:
        super().__init__(world, rng)
        self._house = house
        #: Whether something is done to the broker just now that nothing else may come into.
        self._busy = False

    def _possible(self) -> Sequence[Fault]:
        faults: tuple[Fault, ...] = (
            self._kill_house,
            self._kill_house,
            self._freeze_house,
            self._step_clock,
            self._fill_disk,
            self._part_house,
            self._storm,
            self._cut_everything,
            self._freeze_client,
            self._kill_client,
            self._start_twin,
        )
        if self._world.protocols.broker:
            faults = (*faults, self._add_partition)
        if self._world.kind.dies_at_steps:
            faults = (*faults, self._die_at_a_step, self._die_at_a_step, self._die_at_a_step)
        if self._world.loses_power:
            return (*faults, self._lose_power, self._lose_power, self._break_disk, self._slow_disk)
        if self._world.kind.damages_files:
            return (*faults, self._damage_file, self._damage_file, self._damage_file)
        return faults

    async def _kill_house(self, rng: random.Random) -> None:
        if self._busy:
            return
        self._busy = True
        self._house.kill()
        await self._for(rng, rng.choice((0.1, 2.0)))
        await self._house.start()
        self._busy = False

    async def _die_at_a_step(self, rng: random.Random) -> None:
        """The process dies at a call that changes its directory, and perhaps again when it starts."""
        if self._busy:
            return
        self._busy = True
        house = self._house
        house.arm(rng)
        await asyncio.wait((house.died,), timeout=rng.choice((2.0, 10.0)))
        house.disarm()
        while house.app is None:
            await self._for(rng, rng.choice((0.1, 2.0)))
            if rng.random() < 0.5:
                house.arm(rng)
            await house.start_or_die()
        self._busy = False

    async def _lose_power(self, rng: random.Random) -> None:
        if self._busy:
            return
        self._busy = True
        self._house.lose_power()
        await self._for(rng, rng.choice((0.1, 2.0)))
        await self._house.start()
        self._busy = False

    async def _damage_file(self, rng: random.Random) -> None:
        if self._busy:
            return
        self._busy = True
        clean = rng.random() < 0.5
        if clean:
            await self._house.stop()
        else:
            self._house.kill()
        damage = do_damage(self._house.disk, rng, clean=clean)
        await self._for(rng, rng.choice((0.1, 2.0)))
        await (self._house.start() if damage is None else self._house.start_damaged(damage))
        self._busy = False

    async def _break_disk(self, rng: random.Random) -> None:
        if self._busy:
            return
        self._busy = True
        disk = self._house.disk
        disk.broken = rng.choice((0.01, 0.1, 0.5))
        self._note("disk refuses", f"{disk.broken}")
        await self._for(rng, 3.0)
        disk.broken = 0.0
        self._note("disk works", "")
        self._busy = False

    async def _slow_disk(self, rng: random.Random) -> None:
        loop = self._world.loop
        loop.work_s = rng.choice((0.1, 1.0))
        self._note("disk slow", f"{loop.work_s} s")
        await self._for(rng, 10.0)
        loop.work_s = 0.01
        self._note("disk fast", "")

    async def _freeze_house(self, rng: random.Random) -> None:
        if self._busy:
            return
        self._busy = True
        self._house.freeze()
        await self._for(rng, rng.choice((0.3, 3.0, 8.0)))
        self._house.thaw()
        self._busy = False

    async def _step_clock(self, rng: random.Random) -> None:
        self._house.clock.ahead_ms += rng.choice((-3_600_000, -5_000, 5_000, 3_600_000))
        self._note("clock set", f"{self._house.clock.ahead_ms} ms ahead")

    async def _fill_disk(self, rng: random.Random) -> None:
        if self._busy:
            return
        self._busy = True
        disk = self._house.disk
        self._note("disk full", "")
        disk.full = True
        await self._for(rng, 3.0)
        disk.full = False
        self._note("disk has room", "")
        self._busy = False

    async def _add_partition(self, rng: random.Random) -> None:
        """No fault, but the members of groups have to share more than before."""
        partitions = self._world.partitions
        topic = rng.choice(self._world.topics)
        if self._busy or partitions[topic] >= 4:
            return
        self._busy = True
        if await self._house.add_partition(topic, partitions[topic] + 1):
            partitions[topic] += 1
        self._busy = False

    async def _part_house(self, rng: random.Random) -> None:
        lives = [process.who for process in self._world.processes if process.is_alive]
        if lives:
            pair = [MACHINE, rng.choice(lives)]
            rng.shuffle(pair)
            await self._part(rng, *pair)

"""A simulated process. It may be killed or frozen at any step; after a kill it is started again, with a new life."""

import asyncio
import random
from contextvars import copy_context
from typing import TYPE_CHECKING

from ottla.client.consumer.consumer import AsyncConsumer
from ottla.client.errors import InternalError
from ottla.client.producer.producer import AsyncProducer
from ottla.testing.history.facts import Killed
from sim.loop import HOST
from sim.seam import forget

if TYPE_CHECKING:
    from sim.world import World


#: How long a user does nothing, at most. It is longer than `max.poll.interval.ms` of any consumer here. In the end the
#: world waits for the users to finish, but not for ever.
LONGEST_PAUSE_S = 45.0


class Process:
    """A program of a user. Each of its lives runs `live` on a host of its own, which is called `name.life`."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.life = 0
        self.rng: random.Random = world.stream(name)
        #: The clients that this life has made.
        self.clients: list[AsyncProducer | AsyncConsumer] = []
        self._is_over = False
        self._task: asyncio.Task[None] | None = None
        self._killed: asyncio.Future[None] | None = None

    @property
    def who(self) -> str:
        """The name of this life and of its host."""
        return f"{self.name}.{self.life}"

    @property
    def is_alive(self) -> bool:
        """Whether a life is going on."""
        return self._task is not None and not self._task.done()

    @property
    def may_run_twice(self) -> bool:
        """Whether the nemesis may start it a second time beside this one, for a while."""
        return True

    async def live(self) -> None:
        """One life; returns when the users stop."""
        raise AssertionError("a class of processes has to define live()")

    def note(self, what: str, text: str = "", data: object = None) -> None:
        """Something happened to this life."""
        self.world.history.add(self.who, what, text, data)

    def kill(self) -> None:
        """End this life between two steps; `run` begins the next one some time later."""
        if self.is_alive and self._killed is not None and not self._killed.done():
            self.note("killed", data=Killed())
            self.world.loop.kill(self.who)
            self.world.network.drop(self.who)
            self.forget_clients()
            self._killed.set_result(None)

    def kill_for_good(self) -> None:
        """As `kill`, and there is no next life."""
        self._is_over = True
        self.kill()

    def crashed(self, failure: InternalError) -> None:
        """A client of this life has stopped because of a fault of its own."""
        self.world.unexpected(self.who, failure)

    def forget_clients(self) -> None:
        """Let the clients of this life be collected without a warning that nobody has closed them."""
        for client in self.clients:
            forget(client)

    async def run(self) -> None:
        """Run one life after the other until the users stop."""
        again = True
        while again:
            self.life += 1
            self.clients = []
            self._killed = self.world.loop.create_future()
            context = copy_context()
            context.run(HOST.set, self.who)
            self._task = asyncio.create_task(self._whole_life(), name=self.who, context=context)
            await asyncio.wait({self._task, self._killed}, return_when=asyncio.FIRST_COMPLETED)
            again = not self._task.done() and not self._is_over
            if self._task.done() and self._task.cancelled():
                self.world.unexpected(self.who, asyncio.CancelledError("nobody cancels users here"))
            self._task = None
            if again:
                await asyncio.sleep(self.rng.uniform(0.01, 4.0))
                again = not self._is_over

    async def _whole_life(self) -> None:
        try:
            await self.live()
        except Exception as error:  # noqa: BLE001 - it becomes an anomaly
            self.world.unexpected(self.who, error)

    async def pause(self, mean_s: float, most_s: float = LONGEST_PAUSE_S) -> None:
        """Do nothing for a while. The world's `pace` makes it longer."""
        await asyncio.sleep(min(self.rng.expovariate(1.0 / (mean_s * self.world.pace)), most_s))

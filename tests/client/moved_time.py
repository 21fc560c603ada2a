"""An event loop whose clock a test moves on: minutes pass in no time, and what was due runs."""

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine

from tests.steady_loop import Looks, SteadyLoop

_PATIENCE_S = 10.0
#: Client and broker share the loop: once nothing has come for so long, both wait for time to pass.
_QUIET_S = 0.005


class _Looks(Looks):
    """Says when there was nothing to do."""

    def __init__(self) -> None:
        super().__init__()
        self.when_quiet: list[asyncio.Future[None]] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self.when_quiet or timeout == 0:
            return super().select(timeout)
        events = super().select(_QUIET_S)
        if not events:
            waiting, self.when_quiet = self.when_quiet, []
            for future in waiting:
                future.set_result(None)
        return events


class MovableLoop(SteadyLoop):
    """A loop with a clock that is ahead by what the test says, and by nothing that stops the process."""

    _ahead_s = 0.0

    def __init__(self) -> None:
        self._quiet = _Looks()
        super().__init__(self._quiet)

    def time(self) -> float:
        return super().time() + self._ahead_s

    async def move(self, seconds: float) -> None:
        """Let `seconds` pass when everything that can happen now has happened, and then what is due by then."""
        await self._settled()
        self._ahead_s += seconds
        await self._settled()

    async def _settled(self) -> None:
        future = self.create_future()
        self._quiet.when_quiet.append(future)
        await future


def in_moved_time(test: Callable[[MovableLoop], Coroutine[None, None, None]]) -> None:
    """Run `test` on such a loop. Raises TimeoutError when it hangs, by the clock that nobody moves."""
    loop = MovableLoop()

    async def watched() -> None:
        task = asyncio.current_task()
        assert task is not None
        timer = threading.Timer(_PATIENCE_S, loop.call_soon_threadsafe, (task.cancel,))
        timer.start()
        try:
            await test(loop)
        except asyncio.CancelledError:
            raise TimeoutError from None
        finally:
            timer.cancel()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(watched())

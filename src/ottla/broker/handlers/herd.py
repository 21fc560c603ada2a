"""Requests that all members of a group send at the same moment, while others are served.

A rebalance of a thousand members is a thousand JoinGroups, and then a thousand SyncGroups. Who comes behind them would
wait for all of them. So the first few of a turn of the loop are carried out as any other request. The others wait, and
are carried out in the order in which they came, in slices.

What was received is carried out, even if its connection is lost meanwhile: a member that leaves need not wait for the
answer.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from ottla.base.limits import HERD_AT_ONCE
from ottla.broker.answers import Answer, Later
from ottla.broker.handlers.encoding import as_it_is
from ottla.broker.runtime.slices import Slices


class Herd:
    """The requests of one broker that come in herds."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._waiting: deque[tuple[Callable[[], Answer], asyncio.Future[Answer]]] = deque()
        #: Whether those that wait are being carried out, in slices.
        self.is_at_work = False
        #: How many were carried out at once in this turn of the loop.
        self._done = 0

    def carry_out(self, request: Callable[[], Answer]) -> Answer:
        """Its answer: at once, or later when many came before it."""
        loop = asyncio.get_running_loop()
        if not self.is_at_work and self._done < HERD_AT_ONCE:
            if not self._done:
                loop.call_soon(self._next_turn)
            self._done += 1
            return request()
        later: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((request, later))
        if not self.is_at_work:
            self.is_at_work = True
            self._slices.start(self._slices.run(self._steps()), "carrying out requests of many members")
        return Later(later, as_it_is)

    def _next_turn(self) -> None:
        self._done = 0

    def _steps(self) -> Iterator[None]:
        while self._waiting:
            request, later = self._waiting.popleft()
            try:
                answer = request()
            except Exception as fault:  # noqa: BLE001 - its connection gets it
                if not later.done():
                    later.set_exception(fault)
            else:
                if not later.done():
                    later.set_result(answer)
                elif isinstance(answer, Later):
                    answer.future.cancel()
            yield
        self.is_at_work = False

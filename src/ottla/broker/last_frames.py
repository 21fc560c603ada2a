"""Produce requests that came before their client has closed its connection, and are not carried out yet.

A producer with acks=0 waits for nothing: it closes when it has sent all. As in Kafka, what has come is written. (Where
the connection stays half open meanwhile, `server` carries out what waits.) They have of the
loop's turn what the requests of connections have.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ottla.base.clock import Clock
from ottla.base.errors import OttlaError
from ottla.broker.answers import Answer, Dispatch, Frame, Later
from ottla.broker.session import Session
from ottla.broker.turn import Turn
from ottla.wire.apis import ApiKey

_log: Final = logging.getLogger(__name__)

_PRODUCE: Final = int(ApiKey.PRODUCE).to_bytes(2, "big")


def is_produce(frame: Frame) -> bool:
    """Whether this is a request to write records: a client may have sent it and gone, with acks=0."""
    return bytes(frame[:2]) == _PRODUCE


class LastFrames:
    """Those of all connections that are gone."""

    def __init__(self, limit_bytes: int, turn: Turn, clock: Clock) -> None:
        """Of frames that are not begun yet so many bytes are kept at most."""
        self._limit_bytes = limit_bytes
        self._turn = turn
        self._clock = clock
        self._held_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def take(self, under_way: Later | None, frames: Iterable[Frame], dispatch: Dispatch, session: Session) -> bool:
        """Carry out what is under way, and then the frames. Nobody hears what becomes of them.

        False when others have so many that these are dropped.
        """
        if self._is_stopped:
            if under_way is not None:
                under_way.future.cancel()
            return True
        rest = [frame for frame in frames if is_produce(frame)]
        size_bytes = sum(map(len, rest))
        has_room = self._held_bytes + size_bytes <= self._limit_bytes
        if not has_room:
            rest, size_bytes = [], 0
        if under_way is None and not rest:
            return has_room
        self._held_bytes += size_bytes
        task = asyncio.get_running_loop().create_task(self._carry_out(under_way, rest, dispatch, session))
        self._tasks.add(task)

        def ended(gone: asyncio.Task[None]) -> None:
            self._tasks.discard(gone)
            self._held_bytes -= size_bytes

        task.add_done_callback(ended)
        return has_room

    def stop(self) -> None:
        """The broker stops, and writes nothing more. Connections that it closes may be lost later."""
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()

    async def _carry_out(
        self, under_way: Later | None, frames: Iterable[Frame], dispatch: Dispatch, session: Session
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            await _end_of(under_way)
            for frame in frames:
                answer: asyncio.Future[Answer] = loop.create_future()
                work = partial(self._dispatch, partial(dispatch, frame, session), answer)
                if self._turn.is_over:
                    self._turn.wait(work)
                else:
                    work()
                await _end_of(await answer)
                await asyncio.sleep(0)
        except OttlaError as fault:
            _log.info("what %s had sent before it closed is not carried out: %s", session.client_host, fault)
        except Exception:  # noqa: BLE001 - logged; one bad request must not be silent
            _log.exception("a request of %s, which has closed its connection, failed", session.client_host)

    def _dispatch(self, dispatch: Callable[[], Answer], answer: asyncio.Future[Answer]) -> None:
        if answer.done():
            return  # the broker has stopped meanwhile
        begun_ms = self._clock.monotonic_ms()
        try:
            answer.set_result(dispatch())
        except Exception as fault:  # noqa: BLE001 - raised where it is waited for
            answer.set_exception(fault)
        self._turn.spend(self._clock.monotonic_ms() - begun_ms)


async def _end_of(answer: Answer) -> None:
    while isinstance(answer, Later):
        result = await answer.future
        if isinstance(result, BaseException):
            raise result
        answer = answer.encode(result)

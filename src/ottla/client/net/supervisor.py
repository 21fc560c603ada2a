"""The tasks of one client, and everything in it that waits. When one of them fails, the user hears of it.

An unexpected exception in a task, a timer or a callback of the loop is a fault of the client itself. It *crashes* the
client: the fault is logged, every task is cancelled, and every call that waits, and every later call, raises
InternalError with the fault as its cause. Otherwise the client might wait in silence for something that never comes.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ottla.client.errors import ClientError, DisconnectedError, InternalError

T = TypeVar("T")
log = logging.getLogger("ottla.client")


class Supervisor:
    """Owns tasks and futures. Everything but the constructor belongs to one event loop."""

    def __init__(self, name: str) -> None:
        """`name` stands in log lines and error messages: "the producer"."""
        self.name = name
        #: Why the client has ended: InternalError after a crash; after `close` its reason, or DisconnectedError.
        self.failure: ClientError | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._scopes: set[asyncio.Timeout] = set()
        self._crash_listeners: list[Callable[[InternalError], object]] = []

    def on_crash(self, listener: Callable[[InternalError], object]) -> Callable[[], None]:
        """Call `listener` once if the client crashes. Returns a function that removes the listener."""
        self._crash_listeners.append(listener)
        return lambda: self._crash_listeners.remove(listener) if listener in self._crash_listeners else None

    def check(self) -> None:
        """Raise `failure`, if there is one."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Run `work` in the background. An exception that it does not handle itself is a crash."""
        if self.failure is not None:
            work.close()
            raise self.failure.with_traceback(None)
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def guarded(self, callback: Callable[..., object]) -> Callable[..., None]:
        """`callback`, for the loop to call: an exception of it is a crash."""

        def call(*arguments: object) -> None:
            try:
                callback(*arguments)
            except Exception as error:  # noqa: BLE001  any exception is a crash
                self.crash(error)

        return call

    def future(self) -> "asyncio.Future[Any]":
        """A future that fails when the client crashes or is closed."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.failure is not None:
            future.set_exception(self.failure)
            return future
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future

    @asynccontextmanager
    async def scope(self) -> AsyncIterator[None]:
        """A block in a caller's own task. When the client ends, the block stops waiting and raises `failure`."""
        self.check()
        scope = asyncio.timeout(None)
        self._scopes.add(scope)
        try:
            async with scope:
                yield
        except TimeoutError:
            if self.failure is None or not scope.expired():
                raise
            raise self.failure.with_traceback(None)  # noqa: B904  it already has its cause
        finally:
            self._scopes.discard(scope)

    def crash(self, fault: BaseException) -> None:
        """End the client because of `fault`. Only the first fault counts."""
        if self.failure is not None:
            log.debug("%s had ended already when %s was raised", self.name, _shown(fault), exc_info=fault)
            return
        failure = InternalError(
            f"{self.name} has stopped because of a fault in its own code, which is the cause of this error: "
            f"{_shown(fault)}. Close it and make a new one, and report the fault"
        )
        failure.__cause__ = fault
        log.critical("%s has stopped because of an unexpected exception: %s", self.name, _shown(fault), exc_info=fault)
        self._end(failure)
        for task in self._tasks:
            task.cancel()
        listeners, self._crash_listeners = self._crash_listeners, []
        for listener in listeners:
            listener(failure)

    async def close(self, reason: ClientError | None = None) -> None:
        """Cancel every task and wait until it ends. Then every call that waits fails with `reason`. Idempotent."""
        here = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not here]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._end(reason or DisconnectedError("the client was closed"))

    def _end(self, failure: ClientError) -> None:
        if self.failure is None:
            self.failure = failure
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(self.failure)
                future.exception()  # if its caller waits no more, asyncio would log it as never retrieved
        scopes, self._scopes = self._scopes, set()
        for scope in scopes:
            scope.reschedule(0.0)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        fault = task.exception()
        if fault is not None:
            self.crash(fault)


def _shown(fault: BaseException) -> str:
    """A fault in words. Not its `repr`: that of a UnicodeError holds the whole text, which may be a password."""
    return f"{type(fault).__name__}: {fault}" if str(fault) else type(fault).__name__

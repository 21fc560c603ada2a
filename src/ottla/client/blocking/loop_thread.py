"""An event loop in a background thread. The asyncio objects behind the blocking clients live on it."""

import asyncio
import concurrent.futures
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ottla.client.errors import IllegalStateError

T = TypeVar("T")
log = logging.getLogger("ottla.client")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop where there is one, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


#: Why a call is refused.
_CLOSED = "the client is closed"
_ENDED = "the client's background thread has ended ({}), nothing can be done with it any more: make a new one"
FORKED = "this client belongs to the process that was forked: make a new one in this one"


class _CarriedError(Exception):
    """Carries an exception of the user's code over the loop to the caller. Raised as it is, it would end the loop."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


async def _carried(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:  # the user's code raised it; asyncio ends the loop for such a task
        raise _CarriedError(error) from None


class Running(Generic[T]):
    """Work that was handed to a loop's thread."""

    def __init__(
        self, thread: "LoopThread", coroutine: Coroutine[Any, Any, T], future: "concurrent.futures.Future[T]"
    ) -> None:
        self._thread = thread
        self._coroutine = coroutine
        self._future = future

    def result(self) -> T:
        """Wait for what it returns. Interrupting the wait (Ctrl-C) cancels it. The loop's end ends the wait too."""
        try:
            return self._future.result()
        except concurrent.futures.CancelledError:
            self._coroutine.close()  # the loop may never have started it
            raise self._thread.refusal(meanwhile=True) from None
        except _CarriedError as carried:
            raise carried.error from None
        except BaseException:
            self._future.cancel()
            raise

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._future.cancel()


class LoopThread:
    """A daemon thread that runs one loop until `stop`. A forked process does not have the thread (`forked`).

    When the loop ends, for whatever reason, `on_end` is called once in its thread. Its argument is the error that later
    calls will raise. `on_end` must not wait.
    """

    def __init__(self, name: str, *, on_end: Callable[[IllegalStateError], object] | None = None) -> None:
        self.loop = new_event_loop()
        self.forked = False
        self._on_end = on_end
        self._stopping = False
        self._why_refused = _CLOSED
        #: Held while work is handed to the loop, so that the loop cannot end in between and leave that work undone.
        self._handing = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _alive.add(self)

    @property
    def is_running(self) -> bool:
        """Whether the loop still runs what is given to `run`."""
        return not self._ended and not self.forked

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` on the loop and wait for it. Interrupting the wait (Ctrl-C) cancels it."""
        return self.submit(coroutine).result()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Running[T]:
        """Run `coroutine` on the loop; whoever wants its result waits for that. Raises IllegalStateError."""
        if threading.current_thread() is self._thread and not self.forked:
            coroutine.close()
            raise IllegalStateError("a blocking call would wait for itself here: do not make it in a callback")
        with self._handing:
            if not self.is_running:
                coroutine.close()
                raise self.refusal()
            future = asyncio.run_coroutine_threadsafe(_carried(coroutine), self.loop)
        return Running(self, coroutine, future)

    def refusal(self, *, meanwhile: bool = False) -> IllegalStateError:
        """Why nothing can be run here any more; with `meanwhile`, why what was handed over was given up."""
        if self.forked:
            return IllegalStateError(FORKED)
        if meanwhile and self._why_refused == _CLOSED:
            return IllegalStateError("the client was closed meanwhile")
        return IllegalStateError(self._why_refused)

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Call `callback` on the loop, without waiting. Does nothing when the loop has ended."""
        with self._handing:
            if self.is_running:
                self.loop.call_soon_threadsafe(callback, *args)

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has ended, at most for `timeout_s`. Returns whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Cancel what runs, end the thread and close the loop. May be called again."""
        self.call_soon(self.stop_here)
        if not self.forked:
            self._thread.join()

    def stop_here(self) -> None:
        """`stop` for code that runs on the loop itself: it does not wait."""
        self._stopping = True
        self.loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            if not self._stopping:
                self._why_refused = _ENDED.format("somebody stopped its event loop")
        except BaseException as error:
            self._why_refused = _ENDED.format(repr(error))
            log.critical("%s: %r was raised on its loop", threading.current_thread().name, error, exc_info=error)
        finally:
            self._wind_up()

    def _wind_up(self) -> None:
        with self._handing:
            self._ended = True
        try:
            if self._on_end is not None:
                self._on_end(IllegalStateError(self._why_refused))
        finally:
            # Work that was handed over last may become tasks only while the first tasks are being cancelled.
            while tasks := asyncio.all_tasks(self.loop) or self._become_tasks():
                for task in tasks:
                    task.cancel()
                self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def _become_tasks(self) -> set["asyncio.Task[Any]"]:
        """Run the callbacks that wait on the loop. Returns the tasks that they have made."""
        self.loop.run_until_complete(asyncio.sleep(0))
        return asyncio.all_tasks(self.loop)


_alive: "weakref.WeakSet[LoopThread]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """Mark every loop as forked. A fork copies no threads: calls would wait for ever for a loop that nobody runs."""
    for thread in list(_alive):
        thread.forked = True
        thread._handing = threading.Lock()  # another thread may have held it at the fork


os.register_at_fork(after_in_child=_after_fork_in_child)

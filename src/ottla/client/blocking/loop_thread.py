"""An event loop in a background thread: where the blocking clients' asyncio objects live."""

import asyncio
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ottla.client.errors import IllegalStateError

T = TypeVar("T")


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
FORKED = "this client belongs to the process that was forked: make a new one in this one"


class LoopThread:
    """One daemon thread that runs one loop until `stop`. In a forked process it is not there (`forked`)."""

    def __init__(self, name: str) -> None:
        self.loop = new_event_loop()
        self.forked = False
        #: Held while something is handed to the loop, so that nothing is handed to one that has ended.
        self._handing = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _alive.add(self)

    @property
    def is_running(self) -> bool:
        """Whether there is still somebody who runs what is given to `run`."""
        return not self._ended and not self.forked

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` on the loop and wait for it. Interrupting the wait (Ctrl-C) cancels it."""
        if threading.current_thread() is self._thread and not self.forked:
            coroutine.close()
            raise IllegalStateError("a blocking call would wait for itself here: do not make it in a callback")
        with self._handing:
            if not self.is_running:
                coroutine.close()
                raise IllegalStateError(FORKED if self.forked else _CLOSED)
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise IllegalStateError("the client was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Call `callback` on the loop, without waiting; nothing when the loop has ended."""
        with self._handing:
            if self.is_running:
                self.loop.call_soon_threadsafe(callback, *args)

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has ended; whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Cancel what runs, end the thread and close the loop. Idempotent."""
        self.call_soon(self.loop.stop)
        if not self.forked:
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            with self._handing:
                self._ended = True
            # what was handed over last becomes tasks while the first ones are being cancelled
            while tasks := asyncio.all_tasks(self.loop) or self._become_tasks():
                for task in tasks:
                    task.cancel()
                self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def _become_tasks(self) -> set["asyncio.Task[Any]"]:
        """Run the callbacks that wait; the tasks that they made."""
        self.loop.run_until_complete(asyncio.sleep(0))
        return asyncio.all_tasks(self.loop)


_alive: "weakref.WeakSet[LoopThread]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """Threads are not forked: without this, calls would wait for ever for a loop that nobody runs."""
    for thread in list(_alive):
        thread.forked = True
        thread._handing = threading.Lock()  # somebody may have held it


os.register_at_fork(after_in_child=_after_fork_in_child)

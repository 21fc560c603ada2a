"""An event loop in a background thread: where the blocking clients' asyncio objects live."""

import asyncio
import concurrent.futures
import threading
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


class LoopThread:
    """One daemon thread that runs one loop until `stop`."""

    def __init__(self, name: str) -> None:
        self.loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` on the loop and wait for it. Interrupting the wait (Ctrl-C) cancels it."""
        if not self.loop.is_running() and not self._thread.is_alive():
            coroutine.close()
            raise IllegalStateError("the client is closed")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise IllegalStateError("a blocking call would wait for itself here: do not make it in a callback")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise IllegalStateError("the client was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Call `callback` on the loop, without waiting."""
        self.loop.call_soon_threadsafe(callback, *args)

    def stop(self) -> None:
        """Cancel what runs, end the thread and close the loop. Idempotent."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

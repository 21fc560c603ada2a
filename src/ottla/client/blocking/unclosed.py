"""Ends blocking clients that the user did not close: dropped by the program, or open when the interpreter ends.

The facade is the object that the user holds. The loop's thread refers to everything except the facade, so the garbage
collector can collect the facade alone. When that happens, or when the interpreter ends, the client ends itself on its
own loop. A producer sends what it still has. A consumer leaves its group without a commit, because nobody knows whether
the user has processed its last records. What is lost is logged as an error; Python prints it to stderr when logging is
not set up.

A child process of multiprocessing ends in the same way. Python calls no atexit handlers there, so `_watch_worker` does.
"""

import asyncio
import atexit
import logging
import os
import sys
import threading
import time
import warnings
import weakref
from typing import Protocol

from ottla.client.blocking.loop_thread import LoopThread

log = logging.getLogger("ottla.client")

#: How long the end of the interpreter waits for a client that has records to send, and for one that has none.
EXIT_TIMEOUT_S = 10.0
_FAREWELL_TIMEOUT_S = 1.0


class Abandonable(Protocol):
    """What an asyncio client must offer to be ended."""

    def unfinished(self) -> str:
        """What would be lost now, as a sentence; "" for nothing. Called in any thread; must take no lock."""
        ...

    async def abandon(self) -> str:
        """Close without calling the user's code. Returns what was lost, as a sentence; "" for nothing."""
        ...


class Unclosed:
    """Watches over one facade until `closed`."""

    def __init__(self, facade: object, client: Abandonable, thread: LoopThread) -> None:
        self._kind = type(facade).__name__
        self._client = client
        self._thread = thread
        self._task: asyncio.Task[None] | None = None
        self._finalizer = weakref.finalize(facade, self._dropped)
        self._finalizer.atexit = False  # at the end of the interpreter `_at_exit` ends all clients together
        _open[self] = None
        _watch_worker()

    def closed(self) -> None:
        """The user has closed the client: stop watching."""
        self._finalizer.detach()
        _open.pop(self, None)

    @property
    def is_open(self) -> bool:
        """Whether the client must still be ended. In a forked process it need not: the threads are in the parent."""
        return self._thread.is_running

    def patience_s(self) -> float:
        """How long the end of the interpreter may wait for this client."""
        return EXIT_TIMEOUT_S if self._unfinished() else _FAREWELL_TIMEOUT_S

    def end(self, when: str) -> None:
        """Begin to end the client, unless that has begun, and then warn. `when` says what came instead of a close."""
        if not self._finalizer.detach() and when == _AT_EXIT:
            return  # the client was dropped before, and is ending
        unfinished = self._unfinished()
        self._thread.call_soon(self._begin)
        warnings.warn(
            f"unclosed {self._kind} {when}{f': {unfinished}' if unfinished else ''}", ResourceWarning, stacklevel=2
        )

    def wait(self, until_s: float) -> None:
        """Wait until the client has ended, at most until the monotonic time `until_s`; then log what was lost."""
        if not self._thread.join(max(0.0, until_s - time.monotonic())):
            lost = self._unfinished()
            if lost:
                log.error("unclosed %s: %s, and the interpreter ends", self._kind, lost)

    def _unfinished(self) -> str:
        try:
            return self._client.unfinished()
        except Exception as fault:  # noqa: BLE001  the other clients still have to be ended
            return f"what is lost could not be found out ({fault!r})"

    def _dropped(self) -> None:
        # The garbage collector calls this in any thread, perhaps on the loop and inside a lock. It must not wait.
        if self.is_open:
            self.end("was dropped")

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._end(), name="ottla-abandoned")

    async def _end(self) -> None:
        try:
            lost = await self._client.abandon()
            if lost:
                log.error("unclosed %s: %s", self._kind, lost)
        finally:
            _open.pop(self, None)
            self._thread.stop_here()


_AT_EXIT = "at the end of the interpreter"
#: Every client that has not ended, in the order they were made.
_open: dict[Unclosed, None] = {}


def _at_exit() -> None:
    """End all clients, at the same time. The loops' daemon threads still run while atexit handlers do."""
    left = [each for each in _open if each.is_open]
    now_s = time.monotonic()
    waits = [(each, now_s + each.patience_s()) for each in left]
    for each in left:
        try:
            each.end(_AT_EXIT)
        except Exception as warning:  # noqa: BLE001  `python -W error`, or what the user makes of warnings
            log.error("%s", warning)
    for each, until_s in waits:
        each.wait(until_s)


#: The child of multiprocessing that `_watch_worker` watches over, by its process id.
_watched_worker: int | None = None


def _watch_worker() -> None:
    """In a child of multiprocessing, make sure that clients are ended: os._exit ends it without atexit handlers."""
    global _watched_worker
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None or _watched_worker == os.getpid():
        return
    from multiprocessing.util import Finalize

    _watched_worker = os.getpid()
    Finalize(None, _worker_ends, exitpriority=_AFTER_OTHERS)


#: Priority of our finalizer: it runs after multiprocessing's own for queues (-5) and directories (-100).
_AFTER_OTHERS = -200


def _worker_ends() -> None:
    # After its finalizers the child waits for its other threads, which may still send. This thread is one of them: the
    # child waits for it too, and it ends the clients after the others.
    threading.Thread(target=_after_threads, name="ottla-end", daemon=False).start()


def _after_threads() -> None:
    here = (threading.current_thread(), threading.main_thread())
    while others := [thread for thread in threading.enumerate() if not thread.daemon and thread not in here]:
        others[0].join()
    _at_exit()


atexit.register(_at_exit)

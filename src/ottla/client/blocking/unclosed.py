"""What becomes of a blocking client that nobody closed: dropped by the program, or open when the interpreter ends.

The loop's thread holds everything but the facade, so the facade is what gets collected; then, or at the end of the
interpreter, the client ends itself on its own loop. A producer still sends what it has, a consumer leaves its group
without a commit (nobody knows whether its last records were worked on). What is lost is told to the log as an error,
which Python prints to stderr when logging is not set up.

A child of multiprocessing ends like an interpreter here, though Python ends it without one (`_watch_worker`).
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

#: How long the end of the interpreter waits for records to be sent, and for a client that has none.
EXIT_TIMEOUT_S = 10.0
_FAREWELL_TIMEOUT_S = 1.0


class Abandonable(Protocol):
    """What an asyncio client has to be able to do."""

    def unfinished(self) -> str:
        """What would be lost now, as a sentence; "" for nothing. In any thread, and under no lock."""
        ...

    async def abandon(self) -> str:
        """Close, without a call into the user's code; what was lost, as a sentence."""
        ...


class Unclosed:
    """Watches over one facade until `closed`."""

    def __init__(self, facade: object, client: Abandonable, thread: LoopThread) -> None:
        self._kind = type(facade).__name__
        self._client = client
        self._thread = thread
        self._task: asyncio.Task[None] | None = None
        self._finalizer = weakref.finalize(facade, self._dropped)
        self._finalizer.atexit = False  # the end of the interpreter is for all of them together
        _open[self] = None
        _watch_worker()

    def closed(self) -> None:
        """The user has closed it."""
        self._finalizer.detach()
        _open.pop(self, None)

    @property
    def is_open(self) -> bool:
        """Whether there is something to end; not so in a forked process, whose parent has the threads."""
        return self._thread.is_running

    def patience_s(self) -> float:
        """How long the end of the interpreter may wait for this one."""
        return EXIT_TIMEOUT_S if self._client.unfinished() else _FAREWELL_TIMEOUT_S

    def end(self, when: str) -> None:
        """Begin to end it, unless that has begun; then warn. `when` says what the user should not have done."""
        if not self._finalizer.detach() and when == _AT_EXIT:
            return  # it was dropped, and is ending
        unfinished = self._client.unfinished()
        self._thread.call_soon(self._begin)
        warnings.warn(
            f"unclosed {self._kind} {when}{f': {unfinished}' if unfinished else ''}", ResourceWarning, stacklevel=2
        )

    def wait(self, until_s: float) -> None:
        """Wait until it has ended, at most until the monotonic time `until_s`; then say what was lost."""
        if not self._thread.join(max(0.0, until_s - time.monotonic())):
            lost = self._client.unfinished()
            if lost:
                log.error("unclosed %s: %s, and the interpreter ends", self._kind, lost)

    def _dropped(self) -> None:
        # runs wherever the collector happens to run, perhaps on the loop inside a lock: nothing here may wait
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
    """Daemon threads still run here: each client gets its time, all of them at once."""
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
    """In a child of multiprocessing have `_at_exit` run: it is ended by os._exit, which calls no atexit handler."""
    global _watched_worker
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None or _watched_worker == os.getpid():
        return
    from multiprocessing.util import Finalize

    _watched_worker = os.getpid()
    Finalize(None, _worker_ends, exitpriority=_AFTER_OTHERS)


#: Priority of a finalizer that runs after those of multiprocessing's own queues and directories (-5 and -100).
_AFTER_OTHERS = -200


def _worker_ends() -> None:
    # only now are the child's other threads waited for, which may still send; then it waits for this one as well
    threading.Thread(target=_after_threads, name="ottla-end", daemon=False).start()


def _after_threads() -> None:
    here = (threading.current_thread(), threading.main_thread())
    while others := [thread for thread in threading.enumerate() if not thread.daemon and thread not in here]:
        others[0].join()
    _at_exit()


atexit.register(_at_exit)

"""What becomes of a blocking client that nobody closed: dropped by the program, or open when the interpreter ends.

The loop's thread holds everything but the facade, so the facade is what gets collected; then, or at the end of the
interpreter, the client ends itself on its own loop. A producer still sends what it has, a consumer leaves its group
without a commit (nobody knows whether its last records were worked on). What is lost is told to the log as an error,
which Python prints to stderr when logging is not set up.
"""

import asyncio
import atexit
import logging
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
        """Begin to end it, unless that has begun; `when` says what the user should not have done."""
        if not self._finalizer.detach() and when == _AT_EXIT:
            return  # it was dropped, and is ending
        unfinished = self._client.unfinished()
        warnings.warn(
            f"unclosed {self._kind} {when}{f': {unfinished}' if unfinished else ''}", ResourceWarning, stacklevel=2
        )
        self._thread.call_soon(self._begin)

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
        each.end(_AT_EXIT)
    for each, until_s in waits:
        each.wait(until_s)


atexit.register(_at_exit)

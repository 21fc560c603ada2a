"""Ctrl-C, SIGTERM and the end of the terminal (SIGHUP) end a command the same way: as a KeyboardInterrupt, which lets
everything it has started be ended, and an exit code that names the signal, as shells have it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """The signals that end this command, once `install` has set them up.

    Only the main thread can handle signals: in another thread `install` changes nothing.
    """

    def __init__(self) -> None:
        self.number: int = signal.SIGINT
        self._held = 0
        self._due = False

    @property
    def exit_code(self) -> int:
        """128 + the number of the signal that came; 130, Ctrl-C, when none did."""
        return 128 + self.number

    @contextmanager
    def install(self) -> Iterator[None]:
        """Handle the signals, except those that are ignored already, as under nohup or in a shell's background job."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self.number, self._due = signal.SIGINT, False
        before = {each: signal.getsignal(each) for each in _ENDING}
        for each, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(each, self._arrived)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no signal interrupt the block: a signal that arrives meanwhile is raised at its end. Main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self._due and not self._held:
            self._due = False
            raise KeyboardInterrupt

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        if self._held:
            self._due = True
        else:
            raise KeyboardInterrupt


#: The interrupts of this process.
interrupts = Interrupts()

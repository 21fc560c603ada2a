"""Progress bars on a terminal; plain lines where there is none."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Takes how much is done so far.
Progress = Callable[[int], None]


class Steps:
    """Says what happens, on standard error, so that standard output is the result alone."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._start = time.monotonic()

    def say(self, message: str) -> None:
        """A line with the seconds since the start; above the bar when there is one."""
        self._console.print(f"[{time.monotonic() - self._start:6.1f} s] {message}", markup=False, soft_wrap=True)

    @contextmanager
    def bar(self, name: str, total: int) -> Iterator[Progress]:
        """A progress bar for one step; yields what to call with the amount done."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        if not sys.stderr.isatty():
            start = time.monotonic()
            self.say(f"{name}: {total:,} to do")
            yield lambda _done: None
            self.say(f"{name}: done in {time.monotonic() - start:.1f} s")
            return
        columns = (TextColumn("{task.description:>8}"), BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn())
        with Bars(*columns, console=self._console) as bars:
            task = bars.add_task(name, total=total)
            yield lambda done: bars.update(task, completed=min(done, total))

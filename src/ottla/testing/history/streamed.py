"""A history that outlives its process: each event is in a file as soon as it is noted."""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.testing.history.builder import History
from ottla.testing.history.facts import Fact
from ottla.testing.history.lines import HistoryError, first_line, last_line, line_of


class StreamedHistory(History):
    """A history that is also a file, for a process that will perhaps be killed.

        with StreamedHistory("reader-1.jsonl") as history:
            notes = history.consumer("reader 1", group="billing")

    `close`, or the end of the block, writes the end of the file, and then `History.read` takes it. What a killed
    process has left is read with `unfinished=True`. `History.merged` puts the histories of several processes together;
    the ordinary `clock` is one for all processes of a machine. A file that is there already is written anew. OSError
    when the file cannot be written.
    """

    def __init__(self, path: str | Path, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._path = Path(path)
        self._file = self._path.open("wb")
        self._write(first_line())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, who: str, fact: Fact, at_s: float | None = None) -> None:
        """As `History.add`. HistoryError after `close`, too."""
        with self._lock:
            if self._file.closed:
                raise HistoryError(
                    f"{self._path} is closed, and {who} notes {type(fact).__name__}: close it as the last"
                )
            event = self._checked(who, fact, at_s)
            self._write(line_of(event))
            self._events.append(event)

    def close(self) -> None:
        """Write the end: the history is whole, and nothing can be noted any more. A second call does nothing."""
        with self._lock:
            if not self._file.closed:
                self._write(last_line(len(self._events)))
                self._file.close()

    def _write(self, line: str) -> None:
        self._file.write(f"{line}\n".encode())
        self._file.flush()

"""`ottla` as a process of its own, as at a terminal."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO

from tests.signals import as_at_a_terminal

_PATIENCE_S = 60


@contextmanager
def ottla_process(
    *arguments: str, environment: Mapping[str, str] | None = None, cwd: os.PathLike[str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """`ottla ARGUMENTS…` with both outputs as pipes; killed at the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "ottla", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        cwd=cwd,
        preexec_fn=as_at_a_terminal,
        text=True,
        bufsize=1,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


class Notes:
    """A pipe with a name, through which a process says what it has come to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        # Opened for writing as well: it is never at its end, whoever comes and goes.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def next(self) -> str:
        """The next thing that was said; fails when nothing is."""
        assert select.select([self._descriptor], [], [], _PATIENCE_S)[0], "it said nothing"
        return os.read(self._descriptor, 4096).decode().strip()

    def close(self) -> None:
        """Listen no more."""
        os.close(self._descriptor)


def line_of(stream: IO[str] | None) -> str:
    """The next line of an output; fails when none comes."""
    assert stream is not None
    lines: Queue[str] = Queue()
    Thread(target=lambda: lines.put(stream.readline()), daemon=True).start()
    try:
        return lines.get(timeout=_PATIENCE_S)
    except Empty:
        raise AssertionError("it said nothing") from None


def line_with(stream: IO[str] | None, text: str) -> str:
    """The next line of an output that has `text` in it; fails when the output ends before."""
    while line := line_of(stream):
        if text in line:
            return line
    raise AssertionError(f"it ended without saying {text!r}")

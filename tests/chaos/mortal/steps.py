"""The durable steps of a process: each call of the system that changes a data directory, under a name.

    pwritev t/.log          a batch is appended to a log of topic `t`
    replace /.checkpoint    …

A step has the name of its call, of its topic, and of its kind of file: without numbers, so that a run has few of them.
"""

import os
import re
import signal
import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

#: A segment's base offset, a partition's number, and what marks a folder that is on its way out.
_OFFSET = re.compile(r"^\d{20}")
_FOLDER = re.compile(r"^(?P<topic>.*?)-\d+(\.[0-9a-f]+-delete)?$")
_NUMBERED = re.compile(r"^churn-\d+")


class Moment(StrEnum):
    """When the process dies."""

    BEFORE = "before"
    #: Half of the bytes are written: of an append, or of the file that is to take another one's place.
    HALF = "half"
    AFTER = "after"


class Death(NamedTuple):
    """Where a process dies: at the `nth` of its steps with this name."""

    step: str
    nth: int
    moment: Moment

    def __str__(self) -> str:
        return f"{self.moment} {self.nth}. {self.step}"


class Steps:
    """Counts the steps of this process, and kills it at one of them.

    `trace` gets a line for each step, and at last the death. It must not lie in `data_dir`.
    """

    def __init__(self, data_dir: Path, trace: Path, death: Death | None) -> None:
        self._root = f"{data_dir}{os.sep}"
        self._death = death
        self._left = 0 if death is None else death.nth
        self._lock = threading.Lock()
        self._write = os.write
        self._trace = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def install(self) -> None:
        """From now on every call of the system goes through here."""
        for name in ("pwritev", "pwrite", "fdatasync", "fsync", "ftruncate"):
            self._watch(name, _path_of)
        for name in ("replace", "rename", "unlink", "rmdir", "mkdir"):
            self._watch(name, os.fspath)
        self._watch("open", os.fspath, counts=lambda path, flags, *_: flags & os.O_CREAT)

    def _watch(self, name: str, path_of: Callable[[Any], str], counts: Callable[..., object] = lambda *_: True) -> None:
        call = getattr(os, name)

        def stepped(*arguments: Any, **more: Any) -> Any:
            step = self._named(name, path_of(arguments[0])) if counts(*arguments) else None
            moment = None if step is None else self._seen(step)
            if moment is Moment.BEFORE:
                self._die()
            if moment is Moment.HALF:
                _HALVES.get(name, _nothing)(call, *arguments)
                self._die()
            result = call(*arguments, **more)
            if moment is Moment.AFTER:
                self._die()
            return result

        setattr(os, name, stepped)

    def _named(self, call: str, path: str) -> str | None:
        """None for what lies elsewhere."""
        if not path.startswith(self._root) or path.endswith(os.sep + ".lock"):
            return None
        folder, _, file = path.removeprefix(self._root).removesuffix(" (deleted)").rpartition(os.sep)
        if not folder and _FOLDER.match(file):
            folder, file = file, ""
        if found := _FOLDER.match(folder):
            folder = found["topic"]
        return f"{call} {_NUMBERED.sub('churn', folder)}/{_OFFSET.sub('', file)}"

    def _seen(self, step: str) -> Moment | None:
        """How the process dies at this step; None if it does not."""
        with self._lock:
            self._write(self._trace, f"{step}\n".encode())
            if self._death is None or step != self._death.step:
                return None
            self._left -= 1
            return self._death.moment if self._left == 0 else None

    def _die(self) -> None:
        self._write(self._trace, f"died {self._death}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - often called


def _half_append(call: Callable[..., int], descriptor: int, buffers: Any, position: int) -> None:
    data = buffers if isinstance(buffers, bytes) else b"".join(buffers)
    half = data[: len(data) // 2]
    call(descriptor, half if isinstance(buffers, bytes) else [half], position)


def _half_draft(_call: Callable[..., None], draft: str, _target: str) -> None:
    os.truncate(draft, Path(draft).stat().st_size // 2)


def _nothing(*_: object) -> None:
    """A call that has no half: as before it."""


_HALVES: dict[str, Callable[..., None]] = {
    "pwritev": _half_append,
    "pwrite": _half_append,
    "replace": _half_draft,
}


def has_half(step: str) -> bool:
    """Whether a process can die in the middle of it."""
    return step.startswith("pwrite") or (step.startswith("replace") and step.endswith(".tmp"))

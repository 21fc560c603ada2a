"""kill -9 at every system call that changes a data directory: copies of it, as the next process would find them.

Python tells of each such call before it is made (`sys.addaudithook`). So a copy at that moment is what a process leaves
that dies there. Copies with the same content as the one before are not kept.
"""

import copy
import hashlib
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")

_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class CrashPoint(NamedTuple, Generic[T]):
    """A copy of the directory, what was about to happen, and what was known then."""

    data_dir: Path
    call: str
    known: T


class CrashPoints(Generic[T]):
    """Copies `data_dir` into `copies` while `taken()` lasts; `known` is copied along."""

    def __init__(self, data_dir: Path, copies: Path, known: T) -> None:
        self._data_dir = data_dir
        self._copies = copies
        self._known = known
        self._content = ""
        self._lock = threading.Lock()
        self.points: list[CrashPoint[T]] = []

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Meanwhile every change is a point."""
        _ACTIVE.append(self)
        try:
            yield
        finally:
            _ACTIVE.remove(self)

    def note(self, call: str) -> None:
        """The process may die here."""
        with self._lock:
            known = copy.deepcopy(self._known)
            while not self._copied(call, known):
                pass  # another thread was in the middle of a call

    def _copied(self, call: str, known: T) -> bool:
        to = self._copies / str(len(self.points))
        try:
            content = f"{_digest(self._data_dir)} {known}"
            if content != self._content:
                shutil.copytree(self._data_dir, to)
                self._content = content
                self.points.append(CrashPoint(to, call, known))
        except OSError:  # shutil.Error is one, too
            shutil.rmtree(to, ignore_errors=True)
            return False
        return True


_ACTIVE: list[CrashPoints[Any]] = []
_BUSY = threading.local()


def _heard(event: str, arguments: tuple[object, ...]) -> None:
    if not _ACTIVE or getattr(_BUSY, "copying", False):
        return
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES
    if event in _CHANGES or writes:
        _BUSY.copying = True
        try:
            for points in tuple(_ACTIVE):
                points.note(f"{event} {arguments[0]}")
        finally:
            _BUSY.copying = False


sys.addaudithook(_heard)


def _digest(data_dir: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(data_dir.rglob("*")):
        found.update(f"{path.relative_to(data_dir)}\n".encode())
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()

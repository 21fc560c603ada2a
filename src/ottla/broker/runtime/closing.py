"""Closes many logs when the broker stops: the device takes the syncs of several threads together."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from ottla.base.errors import StorageError

_log = logging.getLogger(__name__)

#: More do not make a device faster, and each takes memory.
MOST_THREADS: Final = 64


def do_all(work: Sequence[Callable[[], None]], threads: int) -> dict[int, StorageError]:
    """Do all of it, in as many threads; with one, in order and in the caller's. What went wrong, by its number.

    Nothing keeps the rest from being done. What is done must have nothing in common that one thread alone may touch.
    """
    left = deque(enumerate(work))
    faults: dict[int, StorageError] = {}
    others = min(threads, len(left), MOST_THREADS) - 1
    if others > 0:
        with ThreadPoolExecutor(others, "closing") as pool:
            with suppress(RuntimeError):  # the system has no threads left: those that are there do it
                for _ in range(others):
                    pool.submit(_take, left, faults)
            _take(left, faults)
    _take(left, faults)
    return dict(sorted(faults.items()))


def _take(left: deque[tuple[int, Callable[[], None]]], faults: dict[int, StorageError]) -> None:
    """Do one after the other until none is left. Other threads take some, too."""
    while left:
        try:
            number, each = left.popleft()
        except IndexError:  # another thread has taken the last one
            return
        try:
            each()
        except StorageError as fault:
            faults[number] = fault
        except Exception as fault:  # noqa: BLE001 - logged, and told as a fault
            _log.exception("a log cannot be closed")
            faults[number] = StorageError(f"{type(fault).__name__}: {fault}")

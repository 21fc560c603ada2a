"""Python processes of Spark that serve one task after the other (`pyspark.daemon`).

SIGTERM and SIGHUP end such a process where it is: a service manager sends them to all processes of a service, and
Spark's daemon to its workers when an executor ends. What a task has open in Kafka would stay open.

Between two tasks Spark runs a full garbage collection in such a process. It looks at every object of PySpark, PyArrow
and Ottla, some 200,000, and frees none of them: that takes longer than a small task, and the next task waits for it.
"""

import gc
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

_DAEMONS = frozenset({"pyspark.daemon", "ottla.spark.worker_daemon"})
_ENDING = (signal.SIGTERM, signal.SIGHUP)
#: Kinds of work, and how many modules there were when a task of such ended.
_rested: set[tuple[str, int]] = set()


def rest(work: str) -> None:
    """A task of this kind of `work` ends. After the first one, collections pass over what is there by now.

    The same again when modules have come in the meantime: Spark imports pandas behind the first task that writes.

    What is there is what was imported for such work, connections, and what the user's own functions keep in the process
    by then. It is still freed when nothing refers to it any more, unless it is part of a cycle: then it stays until the
    process ends. Only a process of Spark's that serves many tasks is changed.
    """
    known = (work, len(sys.modules))
    if known in _rested or not _serves_many():
        return
    _rested.add(known)
    gc.collect()
    gc.freeze()


@contextmanager
def ends_in_order() -> Iterator[None]:
    """A block in which the first signal to end this process raises SystemExit, so that the block can clean up.

    Nothing is changed where a signal does something else already, nor in other threads than the main one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is _end:
                signal.signal(number, signal.SIG_DFL)


def _end(number: int, _frame: object) -> NoReturn:
    for each in _ENDING:  # Spark's daemon hears the one, and sends the other
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _serves_many() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name in _DAEMONS

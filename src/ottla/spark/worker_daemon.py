"""Spark's daemon of Python workers, which has imported beforehand what their tasks need.

`spark.python.daemon.module=ottla.spark.worker_daemon`, as `ottla run` sets it on a local master. Spark's own daemon
(`pyspark.daemon`) forks workers that import everything for themselves: PyArrow, the client, the source and the sink
take half a second of a core or more. Spark ends workers that were idle for a minute, so the first micro-batch after a
pause waited for these imports once more.

A process with threads must not be forked, because the locks that they hold stay locked in the copy for ever. jemalloc's
thread, which PyArrow starts, is no such danger: jemalloc takes its locks before a fork, and gives them back in both
processes. If there is any other thread after the imports, this process becomes Spark's own daemon.
"""

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

_SPARKS_OWN: Final = "pyspark.daemon"
#: Serves the tasks of executors. Each other kind of worker has a daemon of its own, and most of those serve once.
_OF_TASKS: Final = "pyspark.worker"
#: What a worker has from its start.
IMPORTED: Final = (_OF_TASKS, "ottla.spark.datasource")
_KNOWN_THREADS: Final = frozenset({"jemalloc_bg_thd"})


def main(arguments: Sequence[str]) -> None:
    """Serve as Spark's daemon; `arguments` are the module of the workers, if it is given."""
    if list(arguments[:1]) == [_OF_TASKS]:
        for module in IMPORTED:
            import_module(module)
        if strange_threads():
            os.execv(sys.executable, [sys.executable, "-m", _SPARKS_OWN, *arguments])
        gc.collect()
        gc.freeze()  # so a worker's collections, one after each task, have nothing to look at
    import_module(_SPARKS_OWN).manager()


def strange_threads() -> list[str]:
    """Names of this process's threads that could be in the way of a fork; on other systems than Linux one, always."""
    own, tasks = str(os.getpid()), Path("/proc/self/task")
    if not tasks.is_dir():
        return ["unknown"]
    names = [(each / "comm").read_text().strip() for each in tasks.iterdir() if each.name != own]
    return [name for name in names if name not in _KNOWN_THREADS]


if __name__ == "__main__":
    main(sys.argv[1:])

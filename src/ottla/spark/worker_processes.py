"""Python processes of Spark that serve one task after the other (`pyspark.daemon`).

Between two tasks Spark runs a full garbage collection in such a process. It looks at every object of PySpark, PyArrow
and Ottla, some 200,000, and frees none of them: that takes longer than a small task, and the next task waits for it.
"""

import gc
import sys

_DAEMONS = frozenset({"pyspark.daemon", "ottla.spark.worker_daemon"})
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


def _serves_many() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name in _DAEMONS

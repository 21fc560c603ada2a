"""Forks the Python processes that Spark starts, from one that has imported beforehand what they need.

A query on a Python source and sink starts seven kinds of Python processes, one after the other: to find the source, to
make it, to plan a read, to plan a write, for its offsets, for its commits, and for tasks. Each imported PySpark,
PyArrow and Ottla for itself, half a second of a core or more, and the query waited for it. Under `ottla run` on a local
master this server imports them once, while Spark's JVM starts, and each process is a copy of it (`fork_client` asks).

A process with threads must not be forked (see `worker_daemon`): if there is one after the imports, the server ends, and
each process imports for itself. It ends with the driver, too. What a process has of the one that started it (limits,
priority, group, umask and more) it gets of the client: Spark's JVM, or the script, may have changed it since.
"""

import contextlib
import gc
import json
import os
import resource
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.spark.fork_client import SERVER_VARIABLE
from ottla.spark.worker_daemon import IMPORTED, strange_threads

#: What the processes are, beside `IMPORTED`; what a version of PySpark does not have is left out.
_KINDS: Final = (
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.streaming.python_streaming_source_runner",
)
#: Spark has it in a zip before everything else, in the same version.
_OF_SPARKS_ZIP: Final = "py4j"
#: What the interpreter and libraries read of the environment when they start must be the same, too, but for what Spark
#: says to its Python processes.
_AT_START: Final = (
    *("ARROW_", "GLIBC_", "LANG", "LC_", "LD_", "MALLOC_", "MKL_", "NPY_", "OMP_", "OPENBLAS_", "OPENSSL_", "OTTLA_"),
    *("PYSPARK_ENABLE_", "PYTHON", "SPARK_TESTING"),
)
_OF_SPARK: Final = "PYTHON_"
_MAY_DIFFER: Final = frozenset({"PYTHONPATH", "PYTHONUNBUFFERED", SERVER_VARIABLE})
#: As Spark starts them: a JVM of `spark-submit` has no hash seed of its own, and numpy's library has no threads then.
_ENVIRON: Final[Mapping[str, str]] = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"}
_REQUEST_S: Final = 10.0
_BACKLOG: Final = 64


class Request(NamedTuple):
    """A process that is asked for: the module and its arguments, and what it would have from its start."""

    argv: list[str]
    cwd: str
    environ: dict[str, str]
    path: list[str]
    umask: int
    #: Its standard input and outputs.
    fds: list[int]


def start(python: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Start a server that ends with this process, and what its environment needs to ask it; nothing if it cannot be.

    `python` is the program that runs `fork_client` (`home`).
    """
    if not sys.platform.startswith("linux") or not os.access(python, os.X_OK):
        return {}
    folder = Path(tempfile.mkdtemp(prefix="ottla-fork-"))
    path = folder / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(str(path))
        except OSError:  # the name of the user's folder for temporary files is too long for a socket's
            shutil.rmtree(folder)
            return {}
        listener.listen(_BACKLOG)
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(listener.fileno()), str(folder), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            env={**environ, **_ENVIRON},
        )
    return {SERVER_VARIABLE: str(path), "PYSPARK_PYTHON": str(python)}


def main(arguments: list[str]) -> None:
    """Serve at the socket with this number until the driver with this number ends; take the folder away then."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the driver's, which may still need processes
        signal.signal(number, signal.SIG_IGN)
    listener, folder, driver = socket.socket(fileno=int(arguments[0])), Path(arguments[1]), int(arguments[2])
    request = None
    try:
        ended = os.pidfd_open(driver)
        if os.getppid() == driver and _import():
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who has ended is forgotten at once
            request = _serve(listener, ended, _found())
    except OSError:  # it has ended already, or the system does not tell
        return
    finally:
        if request is None:
            shutil.rmtree(folder, ignore_errors=True)
    if request is not None:
        _become(*request)


def _import() -> bool:
    """Import everything; whether the process may be forked then."""
    for module in (*IMPORTED, *_KINDS):
        with contextlib.suppress(ModuleNotFoundError):
            import_module(module)
    if strange_threads():
        return False
    gc.collect()
    gc.freeze()
    return True


def _found() -> dict[str, str]:
    """Where each module was found: a process must find it there, too."""
    specs = {name: getattr(module, "__spec__", None) for name, module in sys.modules.items() if "." not in name}
    left_out = ("__main__", _OF_SPARKS_ZIP)
    return {
        name: spec.origin
        for name, spec in specs.items()
        if spec is not None and spec.has_location and spec.origin and name not in left_out
    }


def _serve(listener: socket.socket, ended: int, found: Mapping[str, str]) -> tuple[Request, socket.socket] | None:
    """Fork until the driver ends; in a forked process, what it is to be and who has asked for it."""
    while True:
        ready, _, _ = select.select([listener.fileno(), ended], [], [])
        if ended in ready:
            return None
        client, _ = listener.accept()
        request = _taken(client, found)
        if request is not None:
            if _is_forked():
                listener.close()
                os.close(ended)
                return request, client
            _close(request.fds)
        client.close()


def _is_forked() -> bool:
    """Whether this is the new process; if there can be none, the client sees the end of its connection."""
    try:
        return os.fork() == 0
    except OSError:
        return False


def _taken(client: socket.socket, found: Mapping[str, str]) -> Request | None:
    """What the client asks for; None if it cannot be, or if the client has gone."""
    fds: list[int] = []
    try:
        client.settimeout(_REQUEST_S)
        head, fds, _, _ = socket.recv_fds(client, 4, 3)
        text = bytearray()
        while len(text) < int.from_bytes(head, "big"):
            part = client.recv(65_536)
            if not part:
                raise ConnectionError("the client has gone")
            text += part
        request = Request(**json.loads(text), fds=fds)
        if _fits(request, found):
            return request
        client.sendall(bytes(4))
    except (OSError, ValueError, TypeError, AttributeError):
        pass  # it starts without us
    _close(fds)
    return None


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def _fits(request: Request, found: Mapping[str, str]) -> bool:
    """Whether a copy of this process is what would be without it."""
    if _at_start(request.environ) != _at_start(os.environ):
        return False
    for name, origin in found.items():
        spec = PathFinder.find_spec(name, request.path)
        if spec is None or spec.origin != origin:
            return False
    return True


def _at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {**_ENVIRON} | {
        name: value
        for name, value in environ.items()
        if name.startswith(_AT_START) and not name.startswith(_OF_SPARK) and name not in _MAY_DIFFER
    }


def _become(request: Request, client: socket.socket) -> None:
    """Be the process that was asked for, and tell how it ends."""
    try:
        for number, fd in enumerate(request.fds):
            os.dup2(fd, number)
            os.close(fd)
        _inherit_of(client)
        os.chdir(request.cwd)
    except (OSError, ValueError):
        with contextlib.suppress(OSError):
            client.sendall(bytes(4))
        return
    os.umask(request.umask)
    os.environ.clear()
    os.environ.update(request.environ)
    time.tzset()
    sys.path[:] = request.path
    sys.argv[:] = request.argv
    os.register_at_fork(after_in_child=client.close)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        client.sendall(os.getpid().to_bytes(4, "big"))
    if not _agreed(client):
        return
    code: Any = 1
    try:
        sys.modules.pop(request.argv[0], None)  # it is to run as the main one
        runpy.run_module(request.argv[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
        raise
    finally:
        with contextlib.suppress(OSError):
            client.sendall(bytes([code & 0xFF if isinstance(code, int) else int(code is not None)]))


def _inherit_of(client: socket.socket) -> None:
    """Have what the client has of the process that started it. OSError or ValueError where that cannot be."""
    pid, _, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            kind = getattr(resource, name)
            limits = resource.prlimit(pid, kind)
            if limits != resource.getrlimit(kind):
                resource.setrlimit(kind, limits)
    os.setpgid(0, os.getpgid(pid))  # it is ended with that one, and not with the driver
    os.sched_setaffinity(0, os.sched_getaffinity(pid))
    priority = os.getpriority(os.PRIO_PROCESS, pid)
    if priority != os.getpriority(os.PRIO_PROCESS, 0):
        os.setpriority(os.PRIO_PROCESS, 0, priority)


def _agreed(client: socket.socket) -> bool:
    """Whether the client still wants it: else it has become Python itself."""
    try:
        return client.recv(1) != b""
    except OSError:
        return False


if __name__ == "__main__":
    main(sys.argv[1:])

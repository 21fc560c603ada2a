"""A Python process that Spark starts, forked by `fork_server` from one that has imported everything.

Spark starts what PYSPARK_PYTHON names, with `-m` and a module; under `ottla run` on a local master that is this file.
It asks the server for a process with its arguments, environment, path, input and outputs. Then it has only to stay as
long as that process does, to hand on the signals by which Spark ends it, and to end with its exit code. If there is no
server, or what the server has imported is not what this process would import, this process becomes Python itself.

A process must begin fast to be worth it, so this file imports nothing of Ottla, and little else.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
from types import FrameType

#: Where the server listens: the path of a Unix socket.
SERVER_VARIABLE = "OTTLA_SPARK_FORK_SERVER"
#: How long the server may take; it is still importing when the first process asks.
_PATIENCE_S = 20.0
#: They say where Python's own modules and the user's are. This process is started without them (`-E`).
_LAYOUT = ("PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONUSERBASE")
_HANDED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main(arguments: list[str]) -> int:
    """Be the process of `python ARGUMENTS`; the exit code."""
    path = os.environ.get(SERVER_VARIABLE)
    if path and len(arguments) >= 2 and arguments[0] == "-m" and not any(name in os.environ for name in _LAYOUT):
        code = _forked(path, arguments[1:])
        if code is not None:
            return code
    return os.execv(sys.executable, [sys.executable, *arguments])


def _forked(path: str, arguments: list[str]) -> int | None:
    """The exit code of the forked process; None if there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.settimeout(_PATIENCE_S)
        try:
            server.connect(path)
            folder = os.getcwd()  # noqa: PTH109 - pathlib takes as long to import as all the rest
            umask = os.umask(0)
            os.umask(umask)
            text = json.dumps(
                {
                    "argv": arguments,
                    "cwd": folder,
                    "umask": umask,
                    "environ": dict(os.environ),
                    "path": _path() if "PYTHONSAFEPATH" in os.environ else [folder, *_path()],
                }
            ).encode()
            socket.send_fds(server, [len(text).to_bytes(4, "big")], [0, 1, 2])
            server.sendall(text)
            pid = int.from_bytes(server.recv(4), "big")
            if not pid:
                return None
            signals = _begin(server, pid)
        except TimeoutError:  # the next ones need not wait for it, too
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108
            return None
        except OSError:
            return None
        return _wait(server, signals)


def _path() -> list[str]:
    """Where Python would look for modules: first where PYTHONPATH says, which this process was started without."""
    given = os.environ.get("PYTHONPATH")
    named = [os.path.abspath(each) for each in given.split(os.pathsep)] if given else []  # noqa: PTH100
    return list(dict.fromkeys([*named, *sys.path]))


def _begin(server: socket.socket, pid: int) -> int:
    """Let the process begin: it waits for this, and who has lost patience begins without it. See `_hand_on`.

    A signal that comes meanwhile ends this process if that one does not begin, and that one if it does.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDED_ON)
    try:
        server.sendall(b"\1")
        return _hand_on(pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hand_on(pid: int) -> int:
    """From now on the process gets the signals by which Spark ends this one. A descriptor that has a byte for each."""
    read, write = os.pipe()
    os.set_blocking(write, False)

    def hand_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in _HANDED_ON:
        signal.signal(number, hand_on)
    return read


def _wait(server: socket.socket, signals: int) -> int:
    """The exit code. Python handles a signal between two of its steps: one that comes just before a call that waits
    would be handed on when that is over. So it waits for `signals`, too."""
    server.settimeout(None)
    ours = server.fileno()
    while ours not in select.select([ours, signals], [], [])[0]:
        os.read(signals, 100)
    try:
        return (server.recv(1) or b"\1")[0]
    except OSError:
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

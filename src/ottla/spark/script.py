"""The process of a script that `ottla run` starts on a local master, and what Spark leaves its user to guess.

    python -P -m ottla.spark.script SCRIPT [ARGUMENT…]

The script runs as `__main__`, as `python SCRIPT` would run it. Beside it two things are told. A script may choose a
cluster itself (`.master("spark://…")`): what `ottla run` has set is for a local master and does not fit. And when
Spark's JVM ends by a signal, PySpark says that a connection is gone: the signal is named, and the exit code is the one
that a shell has for it.

Queries and writes that still run when the script ends, by Ctrl-C, SIGTERM, SIGHUP or otherwise, are stopped: what they
have open is aborted then. Else readers of committed records would wait for `kafka.transaction.timeout.ms`, or for the
next start. Spark can stop nothing once its JVM has heard such a signal. So the JVM, and what it starts, are a process
group of their own: a signal to all that `ottla run` has started comes to the script alone, which ends the rest.

It imports nothing of Ottla: the script waits for it.
"""

import atexit
import contextlib
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

_EVERY_S = 0.5
#: A process is still ending when its connections are closed already.
_ENDING_S = 5.0
_STOP_TIMEOUT, _STOPPED_WITHIN_S = "spark.sql.streaming.stopTimeout", 20
_LOOK_S = 0.1
#: More statements than these never run at once.
_LATEST = 20
#: Signals that end a script in order, and what the next one does. Who sends SIGTERM again does not want to wait. Of
#: SIGHUP a terminal that is closed sends two.
_ENDING = {signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_IGN}
#: What PySpark and its scripts see of a JVM that has ended.
_LOST = frozenset({"Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError", "EOFError"})
_ADVICE = {
    signal.SIGKILL: "If nobody has sent it, the kernel has, when memory was short: its log says so",
    signal.SIGSEGV: "Java has crashed: see hs_err_pid*.log",
    signal.SIGABRT: "Java has crashed, or has ended itself: see hs_err_pid*.log",
}


class Beside:
    """What is shown beside a script: here, what is told and nothing else."""

    def look(self) -> None:
        """Called twice a second while the script runs, in another thread."""

    def tell(self, what: str) -> None:
        """Say something to the user."""
        sys.stderr.write(f"ottla run: {what}\n")

    def end(self) -> None:
        """The script has ended."""


def run(arguments: list[str], beside: Beside) -> int:
    """Run the script with its arguments; the exit code. SystemExit and KeyboardInterrupt are the script's own."""
    script = arguments[0]
    sys.argv = arguments
    folder = str(Path(script).resolve().parent)
    sys.path[: not sys.flags.safe_path] = [folder]  # in the place of what `-m` puts there without `-P`
    over, cut_off, master = threading.Event(), threading.Event(), _Master(beside)

    def keep_looking() -> None:
        while not over.wait(_EVERY_S):
            master.look()
            beside.look()

    thread = threading.Thread(target=keep_looking, name="ottla-run", daemon=True)
    thread.start()
    atexit.register(_stop_queries, cut_off)  # the script's own threads have ended by then
    for number, then in _ENDING.items():
        if signal.getsignal(number) is signal.SIG_DFL:  # Python would end without a word to anybody
            signal.signal(number, partial(_terminated, then=then))
    os.register_at_fork(after_in_child=_apart)
    failure: Exception | None = None
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception as error:  # noqa: BLE001 - it is shown below, as Python shows it
        failure = error
    except BaseException:
        cut_off.set()
        raise
    finally:
        over.set()
        thread.join(_EVERY_S)
        beside.end()
        master.look()
    if failure is None:
        return 0
    trace = _of_script(failure.__traceback__)
    sys.excepthook(type(failure), failure.with_traceback(trace), trace)
    return _code_after(failure, beside)


def _terminated(number: int, _frame: object, then: signal.Handlers) -> None:
    """End the script as `sys.exit` would, once."""
    signal.signal(number, then)
    raise SystemExit(128 + number)


def _apart() -> None:
    """Have a process group of its own, if this process was forked to become Spark's JVM."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "launch_gateway" and frame.f_globals.get("__name__") == "pyspark.java_gateway":
            os.setpgid(0, 0)
        frame = frame.f_back


class _Master:
    """Tells once that the script has chosen a cluster."""

    def __init__(self, beside: Beside) -> None:
        self._beside, self._told = beside, False

    def look(self) -> None:
        context = getattr(_spark_context(), "_active_spark_context", None)
        master = getattr(context, "master", None)
        if self._told or not isinstance(master, str) or master.startswith("local"):
            return
        self._told = True
        self._beside.tell(
            f"the script chooses the master {master} itself, and what is set is for a local one: workers are told to "
            "take a Python that is on this machine alone, and the driver listens at 127.0.0.1. Start it with "
            f"`ottla run --master {master}`, which sets what a cluster needs"
        )


def _spark_context() -> Any:
    """PySpark's class, if the script has imported it."""
    return getattr(sys.modules.get("pyspark.core.context"), "SparkContext", None)


def session_of_this_process() -> Any:
    """The session that the script has made; None as long as there is none."""
    module = sys.modules.get("pyspark.sql.session") or sys.modules.get("pyspark.sql")
    return getattr(getattr(module, "SparkSession", None), "_instantiatedSession", None)


def _jvm() -> subprocess.Popen[bytes] | None:
    """The process of Spark's JVM, if this one has started it."""
    process = getattr(getattr(_spark_context(), "_gateway", None), "proc", None)
    return process if isinstance(process, subprocess.Popen) else None


def _stop_queries(cut_off: threading.Event) -> None:
    """Stop what still runs; `cut_off` tells whether that may be a write. What cannot be stopped ends with the JVM."""
    session, jvm = session_of_this_process(), _jvm()
    if session is None or jvm is None or jvm.poll() is not None:
        return
    with contextlib.suppress(Exception):
        if session.conf.get(_STOP_TIMEOUT) in ("0", "0ms"):  # for ever: a query may wait for a broker that is gone
            session.conf.set(_STOP_TIMEOUT, f"{_STOPPED_WITHIN_S}s")
        for query in session.streams.active:
            with contextlib.suppress(Exception):
                query.stop()
        if cut_off.is_set():
            _stop_writes(session)


def _stop_writes(session: Any) -> None:
    """Fail the jobs of what the script waited for: it goes on in the JVM, and a write aborts what it has open then."""
    session.sparkContext.cancelAllJobs()
    statements = session._jsparkSession.sharedState().statusStore()
    for _ in range(int(_STOPPED_WITHIN_S / _LOOK_S)):
        if not _is_at_work(statements):
            break
        time.sleep(_LOOK_S)


def _is_at_work(statements: Any) -> bool:
    """Whether one of Spark's latest SQL executions, of which each write is one, has not ended."""
    latest = statements.executionsList(max(0, statements.executionsCount() - _LATEST), _LATEST)
    return any(latest.apply(at).completionTime().isEmpty() for at in range(latest.size()))


def _of_script(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the script's own first line on; None for a script that cannot be read."""
    while trace is not None and (
        trace.tb_frame.f_code is run.__code__ or trace.tb_frame.f_globals.get("__name__") == runpy.__name__
    ):
        trace = trace.tb_next
    return trace


def _code_after(error: BaseException, beside: Beside) -> int:
    """The exit code of a script that this error has ended; says what has become of Spark's JVM."""
    jvm = _jvm()
    if jvm is None:
        return 1
    is_lost = any(type(each).__name__ in _LOST for each in _causes(error))
    try:
        ended = jvm.wait(_ENDING_S if is_lost else 0)
    except subprocess.TimeoutExpired:
        return 1
    number = -ended if ended < 0 else ended - 128  # a JVM that hears SIGTERM ends in order, with the code of a shell
    if number not in set(signal.Signals):
        beside.tell(f"Spark's JVM (process {jvm.pid}) has ended with exit code {ended}")
        return 1
    advice = _ADVICE.get(signal.Signals(number))
    name = signal.Signals(number).name
    beside.tell(f"Spark's JVM (process {jvm.pid}) was ended by {name}{'' if advice is None else f'. {advice}'}")
    return 128 + number


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and those that it was raised for."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], Beside()))

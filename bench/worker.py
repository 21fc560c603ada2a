"""One figure in a process of its own: `python -m bench.worker MODULE FIGURE BOOTSTRAP SCALE` prints its values."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

from bench.figure import Values

_TIMEOUT_S = 600.0
#: In this variable a figure finds the broker's process, where that is measured, too.
BROKER_PID = "OTTLA_BENCH_BROKER_PID"


class FigureFailedError(Exception):
    """A figure could not be measured; the message is the last line that its process said."""

    def __init__(self, message: str, said: str = "") -> None:
        super().__init__(message)
        #: The end of all that it said.
        self.said = said


def measure(module: str, figure: str, bootstrap: str, scale: float, broker_pid: int | None = None) -> Values:
    """Run a figure in a fresh process and return its values. FigureFailedError."""
    environment = {**os.environ, **({} if broker_pid is None else {BROKER_PID: str(broker_pid)})}
    command = [sys.executable, "-m", "bench.worker", module, figure, bootstrap, str(scale)]
    # a session of its own: what it has started (a canary) ends with it, and does not keep its output open
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            out, said = process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise FigureFailedError(f"{figure}: not done after {_TIMEOUT_S:.0f} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        last = next((line for line in reversed(said.splitlines()) if line.strip()), f"exit {process.returncode}")
        raise FigureFailedError(f"{figure}: {last[:200]}", said[-1500:])
    values: Values = json.loads(out.splitlines()[-1])
    return values


def main() -> None:
    """Measure what the arguments say."""
    module, figure, bootstrap, scale = sys.argv[1:]
    print(json.dumps(importlib.import_module(f"bench.{module}").FIGURES[figure](bootstrap, float(scale))))


if __name__ == "__main__":
    main()

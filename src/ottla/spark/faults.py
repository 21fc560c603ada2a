"""Fault switches: make a pipeline die or stop at a named step, for tests and for `ottla demo`.

    OTTLA_FAULT      comma-separated: POINT[:BATCH][=kill|pause|fail]; e.g. sink.after-decision:3=pause
    OTTLA_FAULT_DIR  a directory. A fault happens once, counted over all processes and restarts, and leaves a file
                     here: POINT[:BATCH]-ACTION, with the process id in it. Without this variable there are no faults.

`kill` sends SIGKILL to the process that reaches the point. `pause` waits at the point until the file is removed, so
that another process can kill the whole session meanwhile. `fail` raises InjectedError: the process lives on. Without
the variables a point costs one comparison.

The sink's points, in the order in which a batch reaches them: sink.claimed (driver), sink.write-begun, sink.mid-write,
sink.flushed (tasks), sink.mid-copy, sink.before-decision, sink.after-decision, sink.between-slots, sink.after-slots,
sink.after-done (driver). The source has one point: source.read (tasks; a task of the source does not know its batch's
number).
"""

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from ottla.base.digits import natural
from ottla.base.errors import ConfigError

POINTS = (
    "sink.claimed",
    "sink.write-begun",
    "sink.mid-write",
    "sink.flushed",
    "sink.mid-copy",
    "sink.before-decision",
    "sink.after-decision",
    "sink.between-slots",
    "sink.after-slots",
    "sink.after-done",
    "source.read",
)
_ACTIONS = ("kill", "pause", "fail")
_PAUSE_S = 0.05


class InjectedError(Exception):
    """What `fail` raises: an error that nobody else does."""


class Fault(NamedTuple):
    """What happens at which point. With `batch` None it happens to the first batch that reaches the point."""

    point: str
    batch: int | None
    action: str

    @property
    def file_name(self) -> str:
        """The name of the file that says that the fault has happened."""
        return f"{self.point}{'' if self.batch is None else f':{self.batch}'}-{self.action}"


def parse(text: str) -> tuple[Fault, ...]:
    """The faults of `OTTLA_FAULT`. Raises ConfigError."""
    return tuple(_fault(part.strip()) for part in text.split(",") if part.strip())


def _fault(text: str) -> Fault:
    where, _, action = text.partition("=")
    point, _, batch = where.partition(":")
    if point not in POINTS or (action or "kill") not in _ACTIONS or (batch and natural(batch) is None):
        raise ConfigError(
            f"OTTLA_FAULT {text}: expected POINT[:BATCH][=kill|pause|fail] with a point of {', '.join(POINTS)}"
        )
    return Fault(point, int(batch) if batch else None, action or "kill")


_ARMED = parse(os.environ.get("OTTLA_FAULT", "")) if os.environ.get("OTTLA_FAULT_DIR") else ()


def armed(point: str) -> bool:
    """Whether a fault is set for `point`."""
    return any(fault.point == point for fault in _ARMED)


def reach(point: str, batch: int | None = None) -> None:
    """A process is at `point` of `batch`. Raises InjectedError if it is to fail there."""
    if _ARMED:
        for fault in _ARMED:
            if fault.point == point and fault.batch in (None, batch):
                _happen(fault)


def _happen(fault: Fault) -> None:
    path = Path(os.environ["OTTLA_FAULT_DIR"], fault.file_name)
    try:
        # This file stays when the other one is removed. Other tasks of the batch and restarted processes reach the same
        # point; this file tells them that the fault has happened.
        path.with_name(f".{path.name}.happened").touch(exist_ok=False)
    except FileExistsError:
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(f"{os.getpid()}\n")
    partial.rename(path)  # who sees the file finds its content complete
    if fault.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault.action == "fail":
        raise InjectedError(f"{fault.point}: OTTLA_FAULT is to fail here")
    while path.exists():
        time.sleep(_PAUSE_S)

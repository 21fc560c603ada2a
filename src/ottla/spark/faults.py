"""Fault switches: make a pipeline die or stop at a named step, for tests and for `ottla demo`.

    OTTLA_FAULT      comma-separated: POINT[:BATCH][=kill|pause]; for example  sink.after-decision:3=pause
    OTTLA_FAULT_DIR  a directory; each fault happens once, over all processes and restarts, and leaves a file there
                     that is called POINT[:BATCH]-ACTION and holds the process id. Without it nothing happens.

`kill` is SIGKILL of the process that reaches the point. `pause` waits there until the file is removed: time enough for
somebody outside to kill the whole session. Without the variables a point costs one comparison.

Points of the sink, in the order they are reached: sink.claimed (driver), sink.write-begun, sink.mid-write,
sink.flushed (tasks), sink.before-decision, sink.after-decision, sink.between-slots, sink.after-slots, sink.after-done
(driver). Of the source: source.read (tasks; it knows no batch).
"""

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import ConfigError

POINTS = (
    "sink.claimed",
    "sink.write-begun",
    "sink.mid-write",
    "sink.flushed",
    "sink.before-decision",
    "sink.after-decision",
    "sink.between-slots",
    "sink.after-slots",
    "sink.after-done",
    "source.read",
)
_ACTIONS = ("kill", "pause")
_PAUSE_S = 0.05


class Fault(NamedTuple):
    """What happens where; `batch` None means the first time that any batch reaches the point."""

    point: str
    batch: int | None
    action: str

    @property
    def file_name(self) -> str:
        """The name of the file that says that it has happened."""
        return f"{self.point}{'' if self.batch is None else f':{self.batch}'}-{self.action}"


def parse(text: str) -> tuple[Fault, ...]:
    """The faults of `OTTLA_FAULT`. Raises ConfigError."""
    return tuple(_fault(part.strip()) for part in text.split(",") if part.strip())


def _fault(text: str) -> Fault:
    where, _, action = text.partition("=")
    point, _, batch = where.partition(":")
    if point not in POINTS or (action or "kill") not in _ACTIONS or (batch and not batch.isdigit()):
        raise ConfigError(
            f"OTTLA_FAULT {text}: expected POINT[:BATCH][=kill|pause] with a point of {', '.join(POINTS)}"
        )
    return Fault(point, int(batch) if batch else None, action or "kill")


_ARMED = parse(os.environ.get("OTTLA_FAULT", "")) if os.environ.get("OTTLA_FAULT_DIR") else ()


def armed(point: str) -> bool:
    """Whether a fault is set for `point`."""
    return any(fault.point == point for fault in _ARMED)


def reach(point: str, batch: int | None = None) -> None:
    """A process is at `point` of `batch`."""
    if _ARMED:
        for fault in _ARMED:
            if fault.point == point and fault.batch in (None, batch):
                _happen(fault)


def _happen(fault: Fault) -> None:
    path = Path(os.environ["OTTLA_FAULT_DIR"], fault.file_name)
    try:
        # Stays when the other file is removed: four tasks of a batch come by here, and restarts do.
        path.with_name(f".{path.name}.happened").touch(exist_ok=False)
    except FileExistsError:
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(f"{os.getpid()}\n")
    partial.rename(path)  # appears with its content
    if fault.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while path.exists():
        time.sleep(_PAUSE_S)

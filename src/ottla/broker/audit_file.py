"""The audit log in a file of its own (`audit.log.path`). A thread writes it: the loop waits for no device.

If lines come faster than the file takes them, up to `MAX_WAITING_AUDIT_LINES` wait. What comes then is lost, and a line
says how many were. A file that was renamed, as by logrotate, is made anew.
"""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from logging.handlers import QueueHandler, QueueListener, WatchedFileHandler
from queue import Full, Queue

from ottla.base.limits import MAX_WAITING_AUDIT_LINES
from ottla.broker.access.audit import AUDIT


class Waiting(QueueHandler):
    """Lines on their way to the thread."""

    def __init__(self, lines: "Queue[logging.LogRecord]") -> None:
        super().__init__(lines)
        self.lost = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            if self.lost:
                self.queue.put_nowait(_lost(record, self.lost))
                self.lost = 0
            self.queue.put_nowait(record)
        except Full:
            self.lost += 1


def _lost(after: logging.LogRecord, count: int) -> logging.LogRecord:
    """The line that stands for those that are lost."""
    text = json.dumps({"time_ms": int(after.created * 1000), "result": "LOST", "lines": count})
    return logging.makeLogRecord({"name": AUDIT.name, "levelno": logging.INFO, "levelname": "INFO", "msg": text})


class AuditFile(WatchedFileHandler):
    """A file that is made anew when it was renamed, so that only this user can read it."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_private)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def audit_to(path: str) -> Iterator[None]:
    """Meanwhile the audit log is written to this file, and nowhere else.

    OSError when the file cannot be opened. At the end everything is in the file.
    """
    file = AuditFile(path)
    file.setFormatter(logging.Formatter("%(message)s"))
    lines: Queue[logging.LogRecord] = Queue(MAX_WAITING_AUDIT_LINES)
    waiting = Waiting(lines)
    listener = QueueListener(lines, file)
    listener.start()
    AUDIT.addHandler(waiting)
    AUDIT.propagate = False
    try:
        yield
    finally:
        AUDIT.propagate = True
        AUDIT.removeHandler(waiting)
        listener.stop()
        file.close()

"""How a process that a test starts hears signals."""

from __future__ import annotations

import signal


def as_at_a_terminal() -> None:
    """Called where a process begins. Tests in the background have SIGINT ignored, under nohup SIGHUP: it would, too."""
    for each in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)

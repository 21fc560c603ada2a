"""`ottla run` at a terminal: the script, and below its output one line that says how far its queries are.

    python -P -m ottla.spark.live SCRIPT [ARGUMENT…]

The script runs as `ottla.spark.script` runs it. A thread asks the session, once it is there, for the last progress of
its queries; the script and the session are not changed.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, TextIO

from ottla.spark.progress import Report, make_notes_directory, read_notes, report_of
from ottla.spark.script import Beside, run, session_of_this_process

_CLEAR = "\r\x1b[K"


class LiveLine(Beside):
    """One line of a terminal, written anew when a query has made progress."""

    def __init__(self, out: TextIO, find_session: Callable[[], Any] = session_of_this_process) -> None:
        self._out = out
        self._find_session = find_session
        self._last: dict[str, Report] = {}
        self._is_written = False

    def look(self) -> None:
        """Ask the queries once. What a session that is being stopped answers is no matter here."""
        session = self._find_session()
        if session is None:
            return
        try:
            progresses = [query.lastProgress for query in session.streams.active]
            reports = [_report(progress) for progress in progresses if progress is not None]
        except Exception:  # noqa: BLE001 - the JVM may be gone, in the middle of any call
            return
        new = {report.query: report for report in reports}
        if new and new != self._last:
            self._last = new
            self._out.write(_CLEAR + " | ".join(report.line() for report in new.values()))
            self._out.flush()
            self._is_written = True

    def tell(self, what: str) -> None:
        """Say it above the line."""
        self._out.write(f"{_CLEAR}ottla run: {what}\n")
        self._out.flush()
        self._last, self._is_written = {}, False

    def end(self) -> None:
        """Leave the line as it is, and begin another one."""
        if self._is_written:
            self._out.write("\n")
            self._out.flush()
            self._is_written = False


def _report(progress: Any) -> Report:
    given = progress if isinstance(progress, dict) else json.loads(progress.json)
    return report_of(given, read_notes(given["id"]))


def main(arguments: list[str]) -> int:
    """Run the script with its arguments; the exit code. SystemExit and KeyboardInterrupt are the script's own."""
    make_notes_directory()
    return run(arguments, LiveLine(sys.stderr))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

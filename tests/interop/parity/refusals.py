"""What counts as a refusal of ours: an error that has a name, and says what it is about. A crash is none."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

#: How one begins.
TRACEBACK: Final = "Traceback (most recent call last):"
#: The last line of a traceback: an exception, and what it says. Lines of code are indented.
_RAISED = re.compile(r"^(?P<error>[A-Za-z_][\w.]*): (?P<said>.*)", re.MULTILINE)
_OURS = re.compile(r"ottla\.(base|spark)\.errors\.[A-Z]\w+")
#: What Spark refuses by itself, before it asks a data source in Python; with Spark's words, so that it is nothing else.
_SPARKS_OWN: Final = (
    "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION]",
    "[UNSUPPORTED_DATA_SOURCE_SAVE_MODE]",
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION]",
    "requirement failed: ottla does not support Update mode",
    "Sink ottla does not support async progress tracking",
    "Data source ottla does not support continuous processing",
    "checkpointLocation must be specified either through option",
)


def crash(text: str, words: Collection[str]) -> str | None:
    """Why the error `text` is no refusal; None if it is one. Ours names one of the `words`, if there are any."""
    _, traceback, last = text.rpartition(TRACEBACK)
    raised = _RAISED.search(last) if traceback else None
    if raised is None:
        return None if any(own in text for own in _SPARKS_OWN) else f"Spark says {text.strip().splitlines()[0]}"
    if not _OURS.fullmatch(raised["error"]):
        return f"{raised['error']}: {raised['said']}"
    if words and not any(word.lower() in last[raised.start("said") :].lower() for word in words):
        return f"{raised['error']} names none of {', '.join(words)}: {raised['said']}"
    return None

"""Patterns that clients send: RE2 matches them, so no pattern can hold up the event loop.

Apache Kafka matches such patterns with RE2/J: the id pattern of ListTransactions, and the subscriptions of KIP-848.
The syntax here is RE2's. `docs/adr/0011` has the reasons for the limits.
"""

from typing import Any

from ottla.base.limits import (
    MATCH_CALL_STEPS,
    MAX_PATTERN_CHARACTERS,
    MAX_PATTERN_CLASSES,
    MAX_PATTERN_MEMORY_BYTES,
    MAX_PATTERN_PROGRAM,
)


class PatternError(ValueError):
    """This is no pattern, or it is too large."""


def _words(fault: Exception) -> str:
    """What RE2 says is wrong; it says so in bytes."""
    said = fault.args[0] if fault.args else ""
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` matches."""
        return self._compiled.fullmatch(text) is not None

    def steps(self, text: str) -> int:
        """How many steps that may take at most."""
        return MATCH_CALL_STEPS + int(self._compiled.programsize) * len(text)


def compile_pattern(pattern: str) -> Pattern:
    """Compile `pattern`; PatternError when RE2 refuses it, or when it is larger than the limits."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise PatternError(f"a pattern of {len(pattern)} characters, at most {MAX_PATTERN_CHARACTERS} are allowed")
    classes = pattern.count(r"\p") + pattern.count(r"\P")
    if classes > MAX_PATTERN_CLASSES:
        raise PatternError(f"a pattern with {classes} classes (\\p, \\P), at most {MAX_PATTERN_CLASSES} are allowed")
    import re2  # here, because few brokers need it, and a start has half a second

    options = re2.Options()
    options.max_mem = MAX_PATTERN_MEMORY_BYTES
    options.log_errors = False  # a client's mistake is the client's to read, not the operator's
    options.never_capture = True  # only "matches or not" is asked, and RE2 finds that out faster without groups
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as fault:
        raise PatternError(_words(fault)) from None
    re2.purge()  # the library would keep the last 128 patterns, with up to `max_mem` each
    if compiled.programsize > MAX_PATTERN_PROGRAM:
        raise PatternError(f"a pattern of {compiled.programsize} steps, at most {MAX_PATTERN_PROGRAM} are allowed")
    return Pattern(compiled)

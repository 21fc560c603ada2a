"""The pattern of `subscribePattern`: in Java's syntax, and found anywhere in a topic's name, as Spark's connector does.

RE2 matches it, which has most of Java's syntax; the names of Java's classes of characters (`\\p{Alpha}`) are put into
RE2's. What RE2 lacks, to look ahead and behind, Python's own `re` does.
"""

import re
from collections.abc import Callable
from typing import Final

import re2

from ottla.base.errors import ConfigError

#: Java's names of classes of ASCII characters, as RE2 has them.
_POSIX: Final = frozenset(
    {"Lower", "Upper", "Alpha", "Digit", "Alnum", "Punct", "Graph", "Print", "Blank", "Cntrl", "XDigit", "Space"}
    | {"ASCII"}
)
_ESCAPES: Final = re.compile(r"\\Q.*?(?:\\E|$)|\\([pP])\{(\w+)\}|\\.|(\[\^?\]?)|(\])", re.DOTALL)


def topic_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether a topic's name is meant. Raises ConfigError for what is no regular expression."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        found = re2.compile(_in_re2(pattern), options)
    except re2.error:
        try:
            found = re.compile(pattern)
        except re.error as fault:
            raise ConfigError(f"subscribePattern {pattern} is no regular expression: {fault}") from None
    return lambda topic: found.search(topic) is not None


def _in_re2(pattern: str) -> str:
    """With RE2's names for Java's classes. Inside of brackets such a class stands alone, outside it needs its own."""
    depth = 0

    def named(match: re.Match[str]) -> str:
        nonlocal depth
        kind, name, opens, closes = match.groups()
        if opens:
            depth += 1
        elif closes:
            depth = max(0, depth - 1)
        if name not in _POSIX:
            return match[0]
        known = f"[:{'^' if kind == 'P' else ''}{name.lower()}:]"
        return known if depth else f"[{known}]"

    return _ESCAPES.sub(named, pattern)

"""The pattern of `subscribePattern`: in Java's syntax, and found anywhere in a topic's name, as Spark's connector does.

RE2 matches it, which has most of Java's syntax; what it lacks, to look ahead and behind, Python's own `re` does. What
Java alone writes so is put as both take it: names of classes of characters (`\\p{Alpha}`), quoted text, named groups.
Java's intersections and unions of classes are refused: both would read them as something else, without an error.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import re2

from ottla.base.errors import ConfigError

#: Java's names of classes of ASCII characters: the first and the last character of each range, in order.
_POSIX: Final = {
    "Lower": ("az",),
    "Upper": ("AZ",),
    "Alpha": ("AZ", "az"),
    "Digit": ("09",),
    "Alnum": ("09", "AZ", "az"),
    "Punct": ("!/", ":@", "[`", "{~"),
    "Graph": ("!~",),
    "Print": (" ~",),
    "Blank": ("\t\t", "  "),
    "Cntrl": ("\0\x1f", "\x7f\x7f"),
    "XDigit": ("09", "AF", "af"),
    "Space": ("\t\r", "  "),
    "ASCII": ("\0\x7f",),
}
_LAST: Final = chr(sys.maxunicode)
_TOKENS: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|$)|\\(?P<kind>[pP])\{(?P<name>\w+)\}|\\."
    r"|(?P<opens>\[\^?\]?)|(?P<closes>\])|(?P<both>&&)|(?P<group>\(\?<(?=[A-Za-z]))",
    re.DOTALL,
)


def topic_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether a topic's name is meant. Raises ConfigError for what is no regular expression, or none of ours."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    translated = _translated(pattern)
    try:
        found = re2.compile(translated, options)
    except re2.error:
        try:
            found = re.compile(translated)
        except re.error as fault:
            raise ConfigError(f"subscribePattern {pattern} is no regular expression: {fault}") from None
    return lambda topic: found.search(topic) is not None


def _translated(pattern: str) -> str:
    """What Java means by `pattern`, as RE2 and Python write it. Raises ConfigError."""
    within = False  # brackets

    def in_both(match: re.Match[str]) -> str:
        nonlocal within
        if match["quoted"] is not None:
            return re.escape(match["quoted"])
        if match["name"] in _POSIX:
            inner = _ranges(match["name"], negated=match["kind"] == "P")
            return inner if within else f"[{inner}]"
        if within and (match["opens"] or match["both"]):
            what = "&& between brackets as an intersection" if match["both"] else "[ between brackets as a union"
            raise ConfigError(
                f"subscribePattern {pattern}: Java reads {what}, and we do not: name the characters in one class "
                "([ad-z] for [a-z&&[^bc]], [a-dm-p] for [a-d[m-p]]), or put \\ before one that stands for itself"
            )
        within = bool(match["opens"]) or (within and not match["closes"])
        return "(?P<" if match["group"] and not within else match[0]

    return _TOKENS.sub(in_both, pattern)


def _ranges(name: str, *, negated: bool) -> str:
    """The characters of a class, or all others, as they stand between brackets."""
    ranges = _others(_POSIX[name]) if negated else _POSIX[name]
    return "".join(f"{_written(each[0])}-{_written(each[1])}" for each in ranges)


def _others(ranges: Iterable[str]) -> Iterator[str]:
    first = "\0"
    for each in ranges:
        if first < each[0]:
            yield first + chr(ord(each[0]) - 1)
        first = chr(ord(each[1]) + 1)
    yield first + _LAST


def _written(character: str) -> str:
    return f"\\x{ord(character):02x}" if character.isascii() else character

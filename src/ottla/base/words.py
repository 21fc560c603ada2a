"""Sentences for people: numbers in them, and how long they may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.base.limits import MAX_ERROR_TEXT

#: So many names stand in a sentence.
_MOST_NAMES: Final = 10
#: So many characters of a name that may have 32,767: those of good clients have fewer.
_MOST_SHOWN: Final = 100


def cut(text: str) -> str:
    """An error message as it may be told: of one that names very long words, the beginning."""
    return text if len(text) <= MAX_ERROR_TEXT else f"{text[:MAX_ERROR_TEXT]}… ({len(text):,} characters)"


def shown(name: str) -> str:
    """A name that somebody else has chosen, as it stands in a line: quoted, and of a long one the beginning."""
    return repr(name) if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]!r}… ({len(name):,} characters)"


def one_line(text: str) -> str:
    """A text with what others have sent in it, as one line of bounded length that moves no cursor."""
    text = cut(text)
    return text if text.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def counted(number: int, one: str, many: str | None = None) -> str:
    """How many there are, as a person says it: "no pauses", "1 pause", "2,000 pauses". `many` is `one` with an s."""
    many = f"{one}s" if many is None else many
    if number == 0:
        return f"no {many}"
    return f"1 {one}" if number == 1 else f"{number:,} {many}"


def listing(names: Sequence[str]) -> str:
    """Names in a sentence; of many the first ones, and how many more there are."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")

"""Numbers that people and files give as text."""

from __future__ import annotations

from typing import Final

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def natural(text: str, most: int = INT64_MAX) -> int | None:
    """The number that `text` is, from 0 to `most`, in digits of ASCII and nothing else; None if it is none.

    `str.isdigit` also takes a superscript two, which `int` does not, and `int` refuses 5,000 digits.
    """
    if not (text.isascii() and text.isdigit()) or len(text.lstrip("0")) > len(str(most)):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= most else None

"""Numbers in sentences for people."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """How many there are, as a person says it: "no pauses", "1 pause", "2,000 pauses". `many` is `one` with an s."""
    many = f"{one}s" if many is None else many
    if number == 0:
        return f"no {many}"
    return f"1 {one}" if number == 1 else f"{number:,} {many}"

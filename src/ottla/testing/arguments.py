"""Checks of what a test says to `ottla.testing`: what is wrong is told where it is given, not from inside."""

from typing import Final

#: The longest time that anything here takes or waits: a year. The system's own limits are not much further away.
MOST_S: Final = 31_536_000


def whole(what: str, value: object, least: int, rule: str = "") -> int:
    """The number. TypeError for what is no int; ValueError, with the `rule`, for one that is less than `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be an int, not {value!r}")
    if value < least:
        raise ValueError(f"{what} {rule or f'is at least {least}'}; it cannot be {value}")
    return value


def seconds(what: str, value: object, rule: str = "is a number of seconds, or 0") -> float:
    """The number of seconds. TypeError for what is no number; ValueError, with the `rule`, if it is not 0 to a year."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} must be a number of seconds, not {value!r}")
    if not 0 <= value <= MOST_S:
        raise ValueError(f"{what} {rule}, up to a year; it cannot be {value}")
    return float(value)


def text(what: str, value: object) -> str:
    """The text. TypeError for what is none."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {value!r}")
    return value

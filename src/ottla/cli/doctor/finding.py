"""What a check of `ottla doctor` has found."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Status(Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"


class Finding(NamedTuple):
    """One thing that was looked at: what is there, and what to do about it, if it is not as it should be."""

    check: str
    status: Status
    found: str
    advice: str | None = None


def ok(check: str, found: str) -> Finding:
    """It is as it should be."""
    return Finding(check, Status.OK, found)


def warning(check: str, found: str, advice: str) -> Finding:
    """It works, or perhaps does not."""
    return Finding(check, Status.WARNING, found, advice)


def error(check: str, found: str, advice: str) -> Finding:
    """It cannot work."""
    return Finding(check, Status.ERROR, found, advice)


def skipped(check: str, why: str) -> Finding:
    """It was not looked at."""
    return Finding(check, Status.SKIPPED, why)

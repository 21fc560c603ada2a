"""The report of a campaign: a JSON file with its figures, which a campaign that was stopped goes on from.

Worlds are counted in the order of their seeds, so the file says with one number which of them are done.
"""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as default
from pathlib import Path
from typing import Any, NamedTuple

from ottla.base.errors import OttlaError
from ottla.base.words import counted
from sim.fields import FieldError, count, document, field, list_of, mapping, one_of, optional, seconds, text, whole
from sim.world import Kind

#: Another form of the file, or another meaning of a figure, has another version.
_VERSION = 2


class ReportError(OttlaError):
    """The file is no report, or is of another campaign."""


class Asked(NamedTuple):
    """What a campaign is to do: the seeds from `first` on, as many as `most` (None: until it is stopped)."""

    first: int
    most: int | None
    kind: Kind | None

    def __str__(self) -> str:
        worlds = "worlds" if self.most is None else counted(self.most, "world")
        return f"{worlds}{f' of kind {self.kind.value}' if self.kind else ''} from seed {self.first} on"


class Failure(NamedTuple):
    """A world that has an anomaly."""

    kind: str
    seed: int
    anomalies: list[str]
    #: The command that runs it again, and the file that it left.
    again: str
    file: str | None


class Known(NamedTuple):
    """A world that has anomalies whose cause is known (`sim.known`): what must be looked at, to see that it is that."""

    kind: str
    seed: int
    causes: list[str]


@dataclass(slots=True)
class Report:
    """What a campaign has found so far."""

    asked: Asked
    #: The commit of the code. With one that is exact (`is_exact`) no report counts worlds of two.
    commit: str
    #: So many seeds are done, from the first one on; all runs together took so many seconds.
    done: int = 0
    seconds: float = 0.0
    kinds: dict[Kind, Counter[str]] = default(default_factory=dict)
    failures: list[Failure] = default(default_factory=list)
    known: list[Known] = default(default_factory=list)

    @property
    def total(self) -> Counter[str]:
        """The figures of all kinds together."""
        found: Counter[str] = Counter()
        for each in self.kinds.values():
            found.update(each)
        return found

    @property
    def is_complete(self) -> bool:
        """Whether every world that was asked for is done."""
        return self.asked.most is not None and self.done >= self.asked.most

    def count(self, kind: Kind, figures: Mapping[str, int]) -> None:
        """The next world is done."""
        self.done += 1
        self.kinds.setdefault(kind, Counter()).update(figures)

    def save(self, path: Path) -> None:
        """Write the file: all of it or nothing, whenever the process is stopped. Raises ReportError."""
        content = {
            "version": _VERSION,
            "commit": self.commit,
            "first": self.asked.first,
            "most": self.asked.most,
            "kind": self.asked.kind.value if self.asked.kind else None,
            "done": self.done,
            "seconds": round(self.seconds, 3),
            "total": dict(sorted(self.total.items())),
            "kinds": {kind.value: dict(sorted(found.items())) for kind, found in self.kinds.items()},
            "failures": [failure._asdict() for failure in self.failures],
            "known": [each._asdict() for each in self.known],
        }
        beside = path.with_name(path.name + ".tmp")
        try:
            beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            beside.replace(path)
        except OSError as fault:
            raise ReportError(f"the report {path} cannot be written: {fault.strerror}") from None


def load(path: Path) -> Report | None:
    """The report in a file; None if there is none. Raises ReportError."""
    try:
        content = document(path)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise ReportError(f"the report {path} cannot be read: {fault.strerror}") from None
    except FieldError as wrong:
        raise ReportError(f"{path} is no report: {wrong}. Name another file, or remove it") from None
    if not isinstance(content, dict) or type(found := content.get("version")) is not int or found != _VERSION:
        raise ReportError(f"{path} is no report of version {_VERSION}. Name another file, or remove it")
    try:
        return _report(content)
    except FieldError as wrong:
        raise ReportError(f"{path} is no report: {wrong}. Name another file, or remove it") from None


def _report(content: Mapping[str, Any]) -> Report:
    asked = Asked(
        field(content, "first", whole),
        field(content, "most", optional(count)),
        field(content, "kind", optional(one_of(Kind))),
    )
    kinds = field(content, "kinds", mapping)
    return Report(
        asked,
        field(content, "commit", text),
        field(content, "done", count),
        field(content, "seconds", seconds),
        {one_of(Kind)(name): Counter(_figures(field(kinds, name, mapping))) for name in kinds},
        [_failure(each) for each in field(content, "failures", list_of(mapping))],
        [_known(each) for each in field(content, "known", list_of(mapping))],
    )


def _figures(found: Mapping[str, Any]) -> dict[str, int]:
    return {name: field(found, name, count) for name in found}


def _failure(each: Mapping[str, Any]) -> Failure:
    return Failure(
        field(each, "kind", text),
        field(each, "seed", whole),
        field(each, "anomalies", list_of(text)),
        field(each, "again", text),
        field(each, "file", optional(text)),
    )


def _known(each: Mapping[str, Any]) -> Known:
    return Known(field(each, "kind", text), field(each, "seed", whole), field(each, "causes", list_of(text)))


def commit() -> str:
    """The commit of this code, with "-dirty" behind it if it was changed since; "unknown" without git."""
    here = Path(__file__).resolve().parent
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    try:
        told = subprocess.run(command, cwd=here, capture_output=True, check=True, text=True, env={**os.environ})
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return told.stdout.strip()


def is_exact(commit: str) -> bool:
    """Whether the commit says which code it is. Of code that was changed since, or without git, nothing does."""
    return commit != "unknown" and not commit.endswith("-dirty")

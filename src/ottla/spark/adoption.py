"""A checkpoint that changes hands between `format("ottla")` and Spark's own connector, `format("kafka")`.

Spark keeps a file `offsets/N` for each micro-batch it has planned, and `commits/N` for each that is done. Our source
reads the other connector's offsets as they are. The other one does not know ours: on the way back they are written as
its own.
"""

import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from ottla.spark.errors import PipelineError
from ottla.spark.plan import Offsets, SourceOffset, offsets_to_json

_NO_SOURCE = "-"


class Owner(Enum):
    """Whose source a line of the offset log is of."""

    OTTLA = "ottla"
    KAFKA = "kafka"
    OTHER = "other"


class Source(NamedTuple):
    """One source of a query, and up to where a micro-batch reads it."""

    owner: Owner
    end: Offsets


class Checkpoint(NamedTuple):
    """What a checkpoint says: the newest micro-batch that is planned, and the newest that is committed; -1 for none."""

    directory: Path
    planned: int
    committed: int
    #: Of the newest planned micro-batch, and of the newest committed one.
    sources: list[Source]
    committed_sources: list[Source]

    @property
    def newest(self) -> Path:
        """The file of the newest planned micro-batch."""
        return self.directory / "offsets" / str(self.planned)


def read_checkpoint(directory: Path) -> Checkpoint:
    """Read it. Raises PipelineError for what is no checkpoint."""
    planned, committed = _newest(directory / "offsets"), _newest(directory / "commits")
    if planned < 0:
        raise PipelineError(
            f"{directory} is no checkpoint of a query that has planned a micro-batch: no file offsets/0"
        )
    if not planned - 1 <= committed <= planned:
        raise PipelineError(
            f"{directory} is not as Spark leaves a checkpoint: offsets/{planned} is its newest plan, "
            f"and its newest commit is {f'commits/{committed}' if committed >= 0 else 'missing'}"
        )
    before = _sources(directory / "offsets" / str(committed)) if committed >= 0 else []
    return Checkpoint(directory, planned, committed, _sources(directory / "offsets" / str(planned)), before)


def as_kafkas(text: str) -> str:
    """A file of the offset log with our sources' offsets as Spark's own connector writes them."""
    return "\n".join(_as_kafkas(line) for line in text.split("\n"))


def _newest(directory: Path) -> int:
    try:
        return max((int(file.name) for file in directory.iterdir() if file.name.isdecimal()), default=-1)
    except (FileNotFoundError, NotADirectoryError):
        return -1


def _sources(file: Path) -> list[Source]:
    try:
        version, *lines = file.read_text().split("\n")
    except (OSError, UnicodeDecodeError) as fault:
        raise PipelineError(f"{file} cannot be read: {fault}") from None
    if version not in ("v1", "v2") or not lines:
        raise PipelineError(f"{file} has an unknown form, it begins with {version[:20]!r}")
    return [_source(value) for line in lines[1:] for _, value in _parts(line)]


def _parts(line: str) -> Iterator[tuple[str, Any]]:
    """What stands before a source's offset, and the offset; nothing for a line without one.

    In version 2 of the log a source's name and a colon stand before it.
    """
    at = line.find("{")
    if at < 0 or line == _NO_SOURCE:
        return
    try:
        yield line[:at], json.loads(line[at:])
    except ValueError:
        yield line[:at], None


def _source(value: Any) -> Source:
    try:
        offset = SourceOffset.from_json(value)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Source(Owner.OTHER, {})
    return Source(Owner.KAFKA if offset.adopted else Owner.OTTLA, offset.end)


def _as_kafkas(line: str) -> str:
    for before, value in _parts(line):
        source = _source(value)
        if source.owner is Owner.OTTLA:
            return before + json.dumps(offsets_to_json(source.end), separators=(",", ":"))
    return line

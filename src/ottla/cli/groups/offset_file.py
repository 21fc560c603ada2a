"""Offsets in a file, in the form that `kafka-consumer-groups.sh --reset-offsets --export` writes: CSV without a header,
`topic,partition,offset` for one group, `group,topic,partition,offset` for several."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.base.digits import INT32_MAX, INT64_MAX, natural
from ottla.cli.common import CommandError

if TYPE_CHECKING:
    from ottla import TopicPartition

_FORM = "write topic,partition,offset, or group,topic,partition,offset"


def to_csv(offsets: Mapping[TopicPartition, int]) -> str:
    """The offsets of one group."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows((*tp, offset) for tp, offset in sorted(offsets.items()))
    return text.getvalue()


def read_csv(path: Path, group: str) -> dict[TopicPartition, int]:
    """The offsets of `group` in a file. Rows of other groups are passed over. Raises CommandError."""

    try:
        content = path.read_text(encoding="utf-8-sig")  # spreadsheets put a mark in front
    except FileNotFoundError:
        raise CommandError(f"--from-file {path} does not exist; `--export` prints what such a file holds") from None
    except (IsADirectoryError, UnicodeDecodeError):
        raise CommandError(f"--from-file {path} is not a text file; {_FORM}") from None
    found: dict[TopicPartition, int] = {}
    others: set[str] = set()
    for number, row in enumerate(_rows(content, path), 1):
        if not row:
            continue
        name, tp, offset = _row(row, f"{path}, line {number}")
        if name is not None and name != group:
            others.add(name)
        elif tp in found:
            raise CommandError(f"{path}, line {number}: {tp} is there twice")
        else:
            found[tp] = offset
    if not found:
        theirs = f"; it has {', '.join(sorted(others))}" if others else ""
        raise CommandError(f"--from-file {path} has no offsets of group {group}{theirs}")
    return found


def _rows(content: str, path: Path) -> Iterator[list[str]]:
    rows = csv.reader(io.StringIO(content))
    try:
        yield from rows
    except csv.Error as fault:
        raise CommandError(f"{path}, line {rows.line_num}: {fault}; {_FORM}") from None


def _row(row: list[str], where: str) -> tuple[str | None, TopicPartition, int]:
    from ottla import TopicPartition

    if len(row) not in (3, 4):
        raise CommandError(f"{where}: {len(row)} columns; {_FORM}")
    *name, topic, partition, offset = row
    return (
        name[0] if name else None,
        TopicPartition(topic, _number(partition, where, INT32_MAX)),
        _number(offset, where),
    )


def _number(text: str, where: str, most: int = INT64_MAX) -> int:
    number = natural(text.strip(), most)
    if number is None:
        raise CommandError(f"{where}: {text!r} is not a partition or an offset; {_FORM}")
    return number

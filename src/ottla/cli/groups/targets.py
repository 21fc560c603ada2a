"""Where `ottla groups reset` moves offsets to. What it is asked for is understood first, then the cluster is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.base.digits import natural
from ottla.base.duration import duration_ms
from ottla.cli.common import CommandError
from ottla.cli.groups.offset_file import read_csv

if TYPE_CHECKING:
    from ottla import Admin, TopicPartition

_WAYS = "say where to: --to, --by-duration, --shift, or --from-file"


@dataclass(frozen=True, slots=True)
class Way:
    """What the user wants; exactly one of these is given."""

    #: Milliseconds since the epoch, or an `OffsetSpec`.
    time_ms: int | None = None
    offset: int | None = None
    shift: int | None = None
    current: bool = False
    #: From a file.
    offsets: Mapping[TopicPartition, int] | None = None


@dataclass(slots=True)
class Plan:
    """The new offsets, and what the user should know of them."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def way_of(
    group: str,
    *,
    to: str | None,
    by_duration: str | None,
    shift: int | None,
    from_file: Path | None,
    now_ms: int,
) -> Way:
    """The options as a `Way`. Raises CommandError when there is none, or more than one, or when one means nothing."""
    given = [each for each in (to, by_duration, shift, from_file) if each is not None]
    if len(given) != 1:
        raise CommandError(_WAYS if not given else f"{_WAYS}, but only one of them")
    if from_file is not None:
        return Way(offsets=read_csv(from_file, group))
    if shift is not None:
        return Way(shift=shift)
    if by_duration is not None:
        time_ms = time_ago_ms(by_duration, now_ms)
        if time_ms is None:
            raise CommandError(f"--by-duration {by_duration!r} is no ISO 8601 duration; write for example PT2H or P7D")
        return Way(time_ms=time_ms)
    return _way_to(to or "")


def _way_to(to: str) -> Way:
    from ottla.client.admin.types import OffsetSpec

    if to == "current":
        return Way(current=True)
    named = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
    if to in named:
        return Way(time_ms=named[to])
    offset = natural(to)
    if offset is not None:
        return Way(offset=offset)
    time_ms = iso_time_ms(to)
    if time_ms is None:
        raise CommandError(f"--to {to!r} is neither earliest, latest, current, an offset nor an ISO time")
    return Way(time_ms=time_ms)


def iso_time_ms(text: str) -> int | None:
    """An ISO 8601 time as milliseconds since the epoch, UTC if it has no zone; None if it is none."""
    from datetime import UTC, datetime

    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))


def time_ago_ms(duration: str, now_ms: int) -> int | None:
    """When an ISO 8601 duration before now was; None if it is none."""
    ago_ms = duration_ms(duration)
    return None if ago_ms is None else max(0, now_ms - ago_ms)  # below 0 are numbers with a special meaning


def plan(admin: Admin, way: Way, partitions: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]) -> Plan:
    """The new offset of each partition. Numbers are moved into the log, as Kafka's own tool does."""
    if way.time_ms is not None:
        return _by_time(admin, partitions, way.time_ms)
    if way.shift is not None:
        missing = sorted(str(tp) for tp in partitions if tp not in committed)
        if missing:
            raise CommandError(f"the group has no offset for {', '.join(missing)} to shift; use --to instead")
        return _within(admin, {tp: committed[tp] + way.shift for tp in partitions})
    if way.offsets is not None:
        return _within(admin, way.offsets)
    if way.offset is not None:
        return _within(admin, dict.fromkeys(partitions, way.offset))
    return _current(admin, partitions, committed)


def _current(admin: Admin, partitions: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]) -> Plan:
    from ottla.client.admin.types import OffsetSpec

    without = [tp for tp in partitions if tp not in committed]
    ends = admin.list_offsets(dict.fromkeys(without, OffsetSpec.LATEST)) if without else {}
    offsets = {tp: committed[tp] if tp in committed else ends[tp].offset for tp in partitions}
    return Plan(offsets, [f"{tp}: nothing is committed; the log's end is taken" for tp in without])


def _by_time(admin: Admin, partitions: Sequence[TopicPartition], time_ms: int) -> Plan:
    from ottla.client.admin.types import OffsetSpec

    found = admin.list_offsets(dict.fromkeys(partitions, time_ms))
    none = [tp for tp in partitions if found[tp].offset < 0]
    ends = admin.list_offsets(dict.fromkeys(none, OffsetSpec.LATEST)) if none else {}
    offsets = {tp: ends[tp].offset if tp in ends else found[tp].offset for tp in partitions}
    return Plan(offsets, [f"{tp}: no record from that time on; the log's end is taken" for tp in none])


def _within(admin: Admin, wanted: Mapping[TopicPartition, int]) -> Plan:
    from ottla.client.admin.types import OffsetSpec

    first = admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
    last = admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
    made = Plan()
    for tp, offset in wanted.items():
        made.offsets[tp] = min(max(offset, first[tp].offset), last[tp].offset)
        if offset < first[tp].offset:
            made.remarks.append(f"{tp}: {offset} is before the log's beginning; {first[tp].offset} is taken")
        elif offset > last[tp].offset:
            made.remarks.append(f"{tp}: {offset} is beyond the log's end; {last[tp].offset} is taken")
    return made

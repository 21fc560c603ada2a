"""Where a query begins and ends: what its options say, and whether the log still holds those offsets. Pure."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.spark.plan import Offsets

#: In JSON offsets, and in ListOffsets: the partition's first offset, and its end.
EARLIEST, LATEST = -2, -1


class AtOffsets(NamedTuple):
    """An offset, EARLIEST or LATEST for each partition that `option` names; all other partitions have `others`."""

    option: str
    named: Offsets
    others: int


class AtTimes(NamedTuple):
    """The first record at or after a time (milliseconds since the epoch); `others` is a time, EARLIEST or LATEST.

    A partition may have no record at or after the time. With `late_is_latest` the bound is then the partition's end;
    without it the bound is an error.
    """

    option: str
    named: Offsets
    others: int
    late_is_latest: bool


Bound = AtOffsets | AtTimes


def asked(bound: Bound, partitions: Collection[TopicPartition]) -> Offsets:
    """What `bound` says for each of `partitions`. Raises ConfigError if `bound` names a partition not among them."""
    strangers = sorted(set(bound.named) - set(partitions))
    if strangers:
        raise ConfigError(f"{bound.option} names {listed(strangers)}: not there, or not read by the query")
    return {tp: bound.named.get(tp, bound.others) for tp in partitions}


def require_assigned(assigned: Iterable[TopicPartition], there: Collection[TopicPartition]) -> None:
    """Raise ConfigError if an assigned partition does not exist."""
    missing = sorted(set(assigned) - set(there))
    if missing:
        raise ConfigError(f"assign names {listed(missing)}, which does not exist")


def require_times_found(bound: AtTimes, times: Offsets, found: Offsets) -> None:
    """Raise ConfigError if a partition holds no record at or after the time at which the query shall begin."""
    late = sorted(tp for tp, offset in found.items() if offset < 0)
    if late:
        raise ConfigError(
            f"{bound.option}: {late[0]} holds no record at or after {times[late[0]]}; "
            "set startingOffsetsByTimestampStrategy to latest to begin at its end"
        )


def require_order(start: Offsets, end: Offsets) -> None:
    """Raise ConfigError if a batch read ends before it begins."""
    for tp in sorted(start):
        if tp in end and end[tp] < start[tp]:
            raise ConfigError(f"the read of {tp} would begin at offset {start[tp]}, after its end at {end[tp]}")


def outside(option: str, offsets: Offsets, earliest: Offsets, latest: Offsets) -> list[str]:
    """A sentence for each offset that the log does not hold, or no longer holds."""
    return [
        f"{option}: offset {offset} of {tp} is not in the log, which holds {earliest[tp]} to {latest[tp]}"
        for tp, offset in sorted(offsets.items())
        if tp in earliest and tp in latest and not earliest[tp] <= offset <= latest[tp]
    ]


def inside(offsets: Offsets, earliest: Offsets, latest: Offsets) -> Offsets:
    """The same offsets, each moved to the nearest one that the log holds."""
    return {tp: min(max(at, earliest[tp]), latest[tp]) for tp, at in offsets.items() if tp in earliest and tp in latest}


def listed(partitions: Iterable[TopicPartition]) -> str:
    """Names for a message."""
    return ", ".join(f"partition {tp.partition} of topic {tp.topic}" for tp in partitions)

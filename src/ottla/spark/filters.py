"""What a query's filters say of the records that it needs, so that a batch read fetches no others. Pure.

Spark applies every filter to the rows again, so a filter that is not understood costs nothing but time. What is left
out here cannot come back, so only that is left out of which no record can pass:

* a range of offsets, for each partition the same;
* partitions and topics that are not named;
* records before the first one that is at or after a time. An upper bound of time leaves out nothing: the records of a
  topic need not be in the order of their times, so a record behind a later one may still pass.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ottla.base.types import TopicPartition
from ottla.spark.plan import Offsets

_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
_OFFSET, _PARTITION, _TOPIC, _TIMESTAMP = "offset", "partition", "topic", "timestamp"


class Narrowed(NamedTuple):
    """What records can pass the filters. Bounds that nobody has given are None; `last_offset` is included."""

    first_offset: int | None = None
    last_offset: int | None = None
    first_partition: int | None = None
    last_partition: int | None = None
    partitions: frozenset[int] | None = None
    topics: frozenset[str] | None = None
    #: Milliseconds since the epoch.
    since_ms: int | None = None

    def keeps(self, tp: TopicPartition) -> bool:
        """Whether records of the partition can pass."""
        return (
            (self.topics is None or tp.topic in self.topics)
            and (self.partitions is None or tp.partition in self.partitions)
            and (self.first_partition is None or tp.partition >= self.first_partition)
            and (self.last_partition is None or tp.partition <= self.last_partition)
        )

    def bounds(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """The part of these ranges that is in the bounds of offset and partition."""
        kept = [tp for tp in end if tp in start and self.keeps(tp)]
        begin = {tp: start[tp] if self.first_offset is None else max(start[tp], self.first_offset) for tp in kept}
        stop = {tp: end[tp] if self.last_offset is None else min(end[tp], self.last_offset + 1) for tp in kept}
        return begin, stop


def narrowed(filters: Iterable[Any]) -> Narrowed:
    """What Spark's filters (`pyspark.sql.datasource`), all of which must hold, say together."""
    found = Narrowed()
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        value = getattr(each, "value", None)
        rule = _RULES.get((type(each).__name__, attribute[0])) if len(attribute) == 1 else None
        if rule is not None:
            found = rule(found, value)
    return found


def _most(a: int | None, b: int) -> int:
    return b if a is None else max(a, b)


def _least(a: int | None, b: int) -> int:
    return b if a is None else min(a, b)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _above(field: str, step: int) -> Callable[[Narrowed, Any], Narrowed]:
    def rule(found: Narrowed, value: Any) -> Narrowed:
        change: dict[str, Any] = {field: _most(getattr(found, field), value + step)} if _is_whole(value) else {}
        return found._replace(**change)

    return rule


def _below(field: str, step: int) -> Callable[[Narrowed, Any], Narrowed]:
    def rule(found: Narrowed, value: Any) -> Narrowed:
        change: dict[str, Any] = {field: _least(getattr(found, field), value - step)} if _is_whole(value) else {}
        return found._replace(**change)

    return rule


def _offset_is(found: Narrowed, value: Any) -> Narrowed:
    return _above("first_offset", 0)(_below("last_offset", 0)(found, value), value)


def _offset_in(found: Narrowed, values: Any) -> Narrowed:
    if not values or not all(map(_is_whole, values)):
        return found
    return _above("first_offset", 0)(_below("last_offset", 0)(found, max(values)), min(values))


def _one_of(field: str, kind: type) -> Callable[[Narrowed, Any], Narrowed]:
    def rule(found: Narrowed, values: Any) -> Narrowed:
        if not all(isinstance(value, kind) and not isinstance(value, bool) for value in values):
            return found
        before = getattr(found, field)
        change: dict[str, Any] = {field: frozenset(values) if before is None else before & frozenset(values)}
        return found._replace(**change)

    return rule


def _is(field: str, kind: type) -> Callable[[Narrowed, Any], Narrowed]:
    return lambda found, value: _one_of(field, kind)(found, (value,))


def _since(found: Narrowed, value: Any) -> Narrowed:
    """Kafka's times are whole milliseconds; a time between two of them counts as the earlier one.

    A record without a time has -1, which lies before the epoch, and no question for a time finds it.
    """
    if not isinstance(value, datetime) or value.tzinfo is None or value < _EPOCH:
        return found
    return found._replace(since_ms=_most(found.since_ms, (value - _EPOCH) // _MS))


def _since_first(found: Narrowed, values: Any) -> Narrowed:
    if not values or not all(isinstance(value, datetime) and value.tzinfo is not None for value in values):
        return found
    return _since(found, min(values))


#: (Spark's filter, column) → what it adds. A filter with null passes no row, and is left to Spark.
_RULES: dict[tuple[str, str], Callable[[Narrowed, Any], Narrowed]] = {
    ("EqualTo", _OFFSET): _offset_is,
    ("EqualNullSafe", _OFFSET): _offset_is,
    ("In", _OFFSET): _offset_in,
    ("GreaterThan", _OFFSET): _above("first_offset", 1),
    ("GreaterThanOrEqual", _OFFSET): _above("first_offset", 0),
    ("LessThan", _OFFSET): _below("last_offset", 1),
    ("LessThanOrEqual", _OFFSET): _below("last_offset", 0),
    ("EqualTo", _PARTITION): _is("partitions", int),
    ("EqualNullSafe", _PARTITION): _is("partitions", int),
    ("In", _PARTITION): _one_of("partitions", int),
    ("GreaterThan", _PARTITION): _above("first_partition", 1),
    ("GreaterThanOrEqual", _PARTITION): _above("first_partition", 0),
    ("LessThan", _PARTITION): _below("last_partition", 1),
    ("LessThanOrEqual", _PARTITION): _below("last_partition", 0),
    ("EqualTo", _TOPIC): _is("topics", str),
    ("EqualNullSafe", _TOPIC): _is("topics", str),
    ("In", _TOPIC): _one_of("topics", str),
    ("EqualTo", _TIMESTAMP): _since,
    ("EqualNullSafe", _TIMESTAMP): _since,
    ("In", _TIMESTAMP): _since_first,
    ("GreaterThan", _TIMESTAMP): _since,
    ("GreaterThanOrEqual", _TIMESTAMP): _since,
}

"""Filters of a query that leave out what need not be fetched."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from ottla.base.types import TopicPartition
from ottla.spark.filters import Narrowed, narrowed

TPS = [TopicPartition(topic, partition) for topic in ("a", "b") for partition in range(4)]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARE = {
    EqualTo: lambda a, b: a == b,
    EqualNullSafe: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
}


def value_of(column: str) -> st.SearchStrategy[Any]:
    match column:
        case "topic":
            return st.sampled_from(["a", "b", "c"])
        case "timestamp":
            return st.integers(-3_000, 30_000).map(lambda micros: EPOCH + timedelta(microseconds=micros))
        case _:
            return st.integers(-1, 12)


def filters() -> st.SearchStrategy[Filter]:
    def of(column: str) -> st.SearchStrategy[Filter]:
        values = value_of(column)
        compared = st.builds(lambda kind, value: kind((column,), value), st.sampled_from(list(_COMPARE)), values)
        among = st.lists(values, min_size=1, max_size=3).map(lambda listed: In((column,), tuple(listed)))
        return st.one_of(compared, among, compared.map(Not))

    return st.sampled_from(["topic", "partition", "offset", "timestamp"]).flatmap(of)


def passes(row: dict[str, Any], each: Any) -> bool:
    if isinstance(each, Not):
        return not passes(row, each.child)
    value = row[each.attribute[0]]
    return value in each.value if isinstance(each, In) else bool(_COMPARE[type(each)](value, each.value))


@given(st.lists(filters(), max_size=4), st.lists(st.integers(-1, 30), min_size=10, max_size=10))
def test_s5_no_record_that_can_pass_is_left_out(told: list[Filter], times_ms: list[int]) -> None:
    """A record without a time has -1 ms."""
    found = narrowed(told)
    start, end = found.bounds(dict.fromkeys(TPS, 0), dict.fromkeys(TPS, 10))
    since_ms = min(times_ms) if found.since_ms is None else found.since_ms  # as ListOffsets finds it
    first = next((at for at, time in enumerate(times_ms) if time >= since_ms), 10)
    for tp in TPS:
        for offset, time_ms in enumerate(times_ms):
            time = EPOCH + timedelta(milliseconds=time_ms)
            row = {"topic": tp.topic, "partition": tp.partition, "offset": offset, "timestamp": time}
            if all(passes(row, each) for each in told):
                assert start[tp] <= offset < end[tp]
                assert offset >= first


def test_s5_what_is_told_narrows() -> None:
    told = [
        IsNotNull(("offset",)),
        GreaterThan(("offset",), 3),
        LessThan(("offset",), 9),
        In(("partition",), (1, 2)),
        GreaterThanOrEqual(("partition",), 2),
        EqualTo(("topic",), "a"),
        GreaterThanOrEqual(("timestamp",), EPOCH + timedelta(milliseconds=7)),
    ]
    found = narrowed(told)
    tp = TopicPartition("a", 2)
    assert found.bounds(dict.fromkeys(TPS, 0), dict.fromkeys(TPS, 20)) == ({tp: 4}, {tp: 9})
    assert found.since_ms == 7


@pytest.mark.parametrize(
    "told",
    [
        EqualTo(("offset",), None),
        EqualTo(("offset",), True),
        EqualTo(("offset",), 1.5),
        EqualTo(("headers", "offset"), 1),
        EqualTo(("value",), b"x"),
        In(("offset",), (1, None)),
        In(("partition",), (1, "2")),
        EqualTo(("topic",), 7),
        Not(EqualTo(("offset",), 1)),
        LessThan(("timestamp",), EPOCH),
        GreaterThan(("timestamp",), datetime(2026, 1, 1)),  # of a type without a zone
        GreaterThan(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC)),  # a record without a time passes
        EqualTo(("timestamp",), EPOCH - timedelta(milliseconds=1)),
        In(("timestamp",), (EPOCH - timedelta(milliseconds=1), EPOCH + timedelta(days=1))),
    ],
)
def test_s5_what_is_not_understood_leaves_out_nothing(told: Filter) -> None:
    assert narrowed([told]) == Narrowed()

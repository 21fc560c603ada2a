"""Batch writes: columns, topics, save modes, SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.interop.parity.case import Case, Side, options_of
from tests.interop.spark_topics import Found

VALUE = "SELECT 'v' AS value"
_SPARK = "Spark does not give this to a data source in Python"
_TWICE = "Spark gives no rows with two columns of one name to a data source in Python: drop or rename one"


def written(side: Side, topic: str) -> str:
    """What a reader of committed records finds: key, value, headers; where a test says so, the partition."""
    return "; ".join(sorted(map(_record, side.topics.found(topic)))) or "nothing"


def _record(record: Found) -> str:
    headers = f" [{', '.join(f'{name}={value}' for name, value in record.headers)}]" if record.headers else ""
    key = "" if record.key is None else f"{record.key}="
    return f"{key}{'null' if record.value is None else record.value}{headers}"


def _partitions(side: Side, topic: str) -> str:
    return "; ".join(f"{record.value} in {record.partition}" for record in side.topics.found(topic)) or "nothing"


def write(
    group: str,
    name: str,
    rows: str,
    options: Mapping[str, Any] | None = None,
    why: str = "",
    mode: str | None = "append",
    by_partition: bool = False,
) -> Case:
    """A batch write of the query `rows`; `OUT` in it and in the options is a topic of the case's own."""

    def run(side: Side) -> str:
        topic = side.fresh("out")
        side.topics.make(topic)
        given = {"topic": topic, **(options or {})}
        frame = side.spark.sql(rows.replace("OUT", topic)).coalesce(1)
        writer = side.writer(frame.write if mode is None else frame.write.mode(mode), given)
        writer.save()
        return _partitions(side, topic) if by_partition else written(side, topic)

    words = ["value", *options_of(options or {}), *re.findall(r" AS (\w+)", rows), mode or "mode"]
    return Case(group, name, run, why, tuple(words))


def columns() -> Iterator[Case]:
    """Which columns there may be."""
    null = "CAST(null AS STRING)"
    header = "array(struct('h' AS key, CAST('x' AS BINARY) AS value))"
    for name, rows in {
        "value as text": VALUE,
        "value as bytes": "SELECT CAST('v' AS BINARY) AS value",
        "key and value as text": "SELECT 'k' AS key, 'v' AS value",
        "key and value as bytes": "SELECT CAST('k' AS BINARY) AS key, CAST('v' AS BINARY) AS value",
        "value null": f"SELECT 'k' AS key, {null} AS value",
        "key null": f"SELECT {null} AS key, 'v' AS value",
        "an empty value": "SELECT '' AS value",
        "no value": "SELECT 'k' AS key",
        "value a number": "SELECT 1 AS value",
        "value a struct": "SELECT struct(1 AS a) AS value",
        "key a number": "SELECT 1 AS key, 'v' AS value",
        "VALUE in capitals": "SELECT 'v' AS VALUE",
        "a column that is not the sink's": "SELECT 'v' AS value, 7 AS other",
        "many rows": "SELECT CAST(id AS STRING) AS value FROM range(5)",
        "no rows": "SELECT 'v' AS value WHERE false",
        "headers": f"SELECT 'v' AS value, {header} AS headers",
        "headers null": "SELECT 'v' AS value, CAST(null AS array<struct<key:string,value:binary>>) AS headers",
        "headers empty": "SELECT 'v' AS value, CAST(array() AS array<struct<key:string,value:binary>>) AS headers",
        "headers of text": "SELECT 'v' AS value, array(struct('h' AS key, 'x' AS value)) AS headers",
        "headers a map": "SELECT 'v' AS value, map('h', 'x') AS headers",
        "headers, two of one name": f"SELECT 'v' AS value, concat({header}, {header}) AS headers",
    }.items():
        yield write("columns of a write", name, rows)
    for name, rows in {
        "two columns value": "SELECT 'v' AS value, 'w' AS value",
        "two columns of one name that are not the sink's": "SELECT 'v' AS value, 7 AS other, 8 AS other",
    }.items():
        yield write("columns of a write", name, rows, why=_TWICE)
    for flag in ("true", "false"):
        rows = f"SELECT 'v' AS value, {header} AS headers"
        yield write("columns of a write", f"headers, includeHeaders={flag}", rows, {"includeHeaders": flag})
    for name, column, why in (
        ("0", "0", ""),
        ("1", "1", ""),
        ("null", "CAST(null AS INT)", ""),
        ("one that is not there", "9", ""),
        ("negative", "-1", ""),
        ("a bigint", "CAST(1 AS BIGINT)", ""),
        ("text", "'1'", ""),
    ):
        rows = f"SELECT 'v' AS value, {column} AS partition"
        yield write("column partition", name, rows, {"kafka.max.block.ms": "5000"}, why, by_partition=name in "01")


def topics() -> Iterator[Case]:
    """Where rows go."""
    soon = {"kafka.max.block.ms": "3000"}
    for name, rows, options in (
        ("the option", VALUE, {}),
        ("the column", "SELECT 'v' AS value, 'OUT' AS topic", {"topic": None}),
        ("the option and the column", "SELECT 'v' AS value, 'parity-elsewhere' AS topic", {}),
        ("neither", VALUE, {"topic": None}),
        ("the column null", "SELECT 'v' AS value, CAST(null AS STRING) AS topic", {"topic": None}),
        ("the column null, and the option", "SELECT 'v' AS value, CAST(null AS STRING) AS topic", {}),
        ("the column a number", "SELECT 'v' AS value, 1 AS topic", {"topic": None}),
        ("the option empty", VALUE, {"topic": "", **soon}),
        ("a name that cannot be one", VALUE, {"topic": "a topic!", **soon}),
    ):
        yield write("topic of a write", name, rows, options)
    yield write("topic of a write", "TOPIC in capitals", VALUE, {"TOPIC": "parity-elsewhere", "topic": None})


def modes() -> Iterator[Case]:
    """Save modes and SQL."""
    for mode in ("append", "ignore", "overwrite", "errorifexists"):
        yield write("save mode", mode, VALUE, why=_SPARK if mode == "errorifexists" else "", mode=mode)
    yield write("save mode", "not said", VALUE, why=_SPARK, mode=None)
    yield Case("SQL", "a view that reads", _view_reads)
    views = "Spark's own connector lets SQL write to no view; ours does"
    yield Case("SQL", "INSERT INTO a view", lambda side: _view_writes(side, "INSERT INTO"), views)
    yield Case("SQL", "INSERT OVERWRITE a view", lambda side: _view_writes(side, "INSERT OVERWRITE"))
    yield Case(
        "SQL",
        "CREATE TABLE USING, and SELECT",
        _table,
        "Spark gives the table's options to no Python source: take a view",
    )
    yield Case("SQL", "a column that is no column", _no_column)
    name = "Without a name for the sink nothing can be exactly once; queries that stream have one from their checkpoint"
    yield Case("other options of a write", "no sink.id", _unnamed, name)
    yield write(
        "other options of a write",
        "a typing error",
        VALUE,
        {"topics": "x"},
        "Ours knows every option, and names the nearest one",
    )
    yield write("other options of a write", "semantics=at-least-once", VALUE, {"semantics": "at-least-once"})
    yield write("other options of a write", "checkpointLocation", VALUE, {"checkpointLocation": "unused"})


def _view(side: Side, options: Mapping[str, str]) -> str:
    name = side.fresh("view").replace("-", "_")
    given = {"kafka.bootstrap.servers": side.topics.bootstrap, **options}
    said = ", ".join(f"'{option}' '{value}'" for option, value in given.items())
    side.spark.sql(f"CREATE TEMPORARY VIEW {name} USING {side.connector} OPTIONS ({said})")
    return name


def _view_reads(side: Side) -> str:
    return str(side.spark.sql(f"SELECT * FROM {_view(side, {'subscribe': 'parity-a'})}").count())


def _no_column(side: Side) -> str:
    return str(side.spark.sql(f"SELECT nothing FROM {_view(side, {'subscribe': 'parity-a'})}").count())


def _view_writes(side: Side, insert: str) -> str:
    """A view has the options of a source; ours takes those of both sides."""
    topic = side.fresh("out")
    side.topics.make(topic)
    name = {"sink.id": side.fresh("sink")} if side.connector == "ottla" else {}
    view = _view(side, {"subscribe": topic, "topic": topic, **name})
    side.spark.sql(f"{insert} {view} (value) SELECT CAST('v' AS BINARY)")
    return written(side, topic)


def _table(side: Side) -> str:
    name = side.fresh("table").replace("-", "_")
    said = f"'kafka.bootstrap.servers' '{side.topics.bootstrap}', subscribe 'parity-a'"
    side.spark.sql(f"CREATE TABLE {name} USING {side.connector} OPTIONS ({said})")
    try:
        return str(side.spark.sql(f"SELECT * FROM {name}").count())
    finally:
        side.spark.sql(f"DROP TABLE {name}")


def _unnamed(side: Side) -> str:
    topic = side.fresh("out")
    side.topics.make(topic)
    options = {"kafka.bootstrap.servers": side.topics.bootstrap, "topic": topic}
    side.spark.sql(VALUE).write.format(side.connector).options(**options).mode("append").save()
    return written(side, topic)


def all_writes() -> list[Case]:
    """Every case of this file."""
    return [case for cases in (columns, topics, modes) for case in cases()]

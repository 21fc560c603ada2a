"""Batch reads: what is read, where it begins and ends, how it is cut into tasks, and its columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.interop.parity.case import Case, Side, options_of, places, shown

_A, _TRIM = "parity-a", "parity-trim"
_NO_OTHERS = "Partitions that a bound does not name: ours takes the earliest or latest offset of each"
_NO_TIME = "A time before 1970 is no record's time; to Kafka itself -1 says the end"
_EMPTY = "A partition without rows is a task there, and none here"
_ALONE = f"In a batch read Spark's takes this option only with minPartitions. {_EMPTY}"
_SHARE = "A task of ours takes further partitions until it has minRecordsPerPartition offsets (100)"
_NO_OPTION = "An option of ours: it sets how few offsets a task of its own is worth"
_CUT = "Ours cuts until there are at least as many tasks as minPartitions says"
_TYPO = "Ours knows every option, and names the nearest one; Spark's passes over what it does not know"
_COMMITTED = "Ours reads committed records unless told otherwise: an aborted transaction's records are no result"


def read(
    group: str,
    name: str,
    options: Mapping[str, Any],
    why: str = "",
    then: Callable[[Any], str] = places,
) -> Case:
    """A batch read of the topic `parity-a`, if `options` name no other."""
    chosen = {"subscribe", "subscribePattern", "assign"} & options.keys()
    given = options if chosen else {"subscribe": _A, **options}
    return Case(group, name, lambda side: then(side.reader(given).load()), why, options_of(given))


def tasks(frame: Any) -> str:
    """How many tasks the read has."""
    count = frame.rdd.getNumPartitions()
    return "1 task" if count == 1 else f"{count} tasks"


def _at(**partitions: int) -> str:
    return json.dumps({_A: {name[1:]: at for name, at in partitions.items()}})


def topics() -> Iterator[Case]:
    """Which topics and partitions are read."""
    given: dict[str, dict[str, str | None]] = {
        "one topic": {"subscribe": _A},
        "two topics": {"subscribe": "parity-a,parity-b"},
        "two topics with a space": {"subscribe": "parity-a, parity-b"},
        "a topic twice": {"subscribe": "parity-b,parity-b"},
        "a topic that is not there": {"subscribe": "parity-none"},
        "one of two is not there": {"subscribe": "parity-b,parity-none"},
        "an empty name": {"subscribe": ""},
        "commas alone": {"subscribe": ",,"},
        "the option in capitals": {"SUBSCRIBE": "parity-b", "subscribe": None},
        "nothing is named": {"subscribe": None},
        "subscribe and a pattern": {"subscribe": _A, "subscribePattern": "parity-b"},
        "subscribe and assign": {"subscribe": _A, "assign": '{"parity-b":[0]}'},
    }
    for name, options in given.items():
        yield read("subscribe", name, options)
    for pattern in (
        "parity-b", "^parity-a$", "arity-[ab]$", "parity-(a|b)$", r"parity-\p{Alpha}$", r"parity-\p{Lower}$",
        r"\Qparity-b\E", "(?i)PARITY-B", r"parity-\w$", r"^parity\Wb$", "parity-[^b-z]$", "parity-none.*", "(",
        "parity-[", "", "parity-b{1}$",
    ):  # fmt: skip
        yield read("subscribePattern", f"`{pattern}`".replace("|", r"\|"), {"subscribePattern": pattern})
    for pattern in ("parity-(?!a)[ab]$", "(?<=parity-)b$", "parity-b++$", r"(parity)-b(?!\1)$"):
        yield read("subscribePattern", f"`{pattern}`", {"subscribePattern": pattern})
    binary = "Properties of Unicode (`\\p{Is…}`) are not in RE2's syntax: ours says that it is no expression"
    yield read(
        "subscribePattern", r"`parity-\p{IsAlphabetic}$`", {"subscribePattern": r"parity-\p{IsAlphabetic}$"}, binary
    )
    nothing = "Ours says that nothing would be read; Spark's reads nothing"
    for name, assign, why in (
        ("one partition", '{"parity-a":[0]}', ""),
        ("two topics", '{"parity-a":[1],"parity-b":[0]}', ""),
        ("a partition twice", '{"parity-b":[0,0]}', ""),
        ("a partition that is not there", '{"parity-a":[9]}', nothing),
        ("a topic that is not there", '{"parity-none":[0]}', ""),
        ("no JSON", "parity-a:0", ""),
        ("numbers as text", '{"parity-a":["0"]}', ""),
        ("no list", '{"parity-a":0}', ""),
        ("a partition that is true", '{"parity-a":[true]}', ""),
        ("nothing", "{}", nothing),
        ("a negative partition", '{"parity-a":[-1]}', nothing),
    ):
        yield read("assign", name, {"assign": assign}, why)


def offsets() -> Iterator[Case]:
    """Bounds by offset."""
    for side, good in (("starting", "earliest"), ("ending", "latest")):
        option = f"{side}Offsets"
        for name, value, why in (
            (good, good, ""),
            (good.upper(), good.upper(), ""),
            (f"`{good}` with spaces", f" {good} ", ""),
            ("latest" if side == "starting" else "earliest", "latest" if side == "starting" else "earliest", ""),
            ("a word", "now", ""),
            ("JSON", _at(p0=3, p1=2, p2=0), ""),
            ("JSON, -2", _at(p0=-2, p1=2, p2=0), ""),
            ("JSON, -1", _at(p0=-1, p1=2, p2=0), ""),
            ("JSON, -3", _at(p0=-3, p1=2, p2=0), ""),
            ("JSON, a partition is left out", _at(p0=3, p1=2), _NO_OTHERS),
            ("JSON, a partition that is not there", _at(p0=3, p1=2, p2=0, p7=0), ""),
            ("JSON, a topic that is not read", '{"parity-b":{"0":1}}', ""),
            ("JSON, behind the end", _at(p0=3, p1=99, p2=0), ""),
            ("JSON, an offset as text", '{"parity-a":{"0":"3","1":2,"2":0}}', ""),
            ("JSON, an offset that is true", '{"parity-a":{"0":true,"1":2,"2":0}}', ""),
            ("JSON, a partition that is no number", '{"parity-a":{"0_0":3,"1":2,"2":0}}', ""),
            ("JSON, no object", "[1]", ""),
            ("JSON cut off", '{"parity-a":{"0":3', ""),
            ("nothing", "", ""),
        ):
            yield read(option, name, {option: value}, why)
    both = {"startingOffsets": _at(p0=5, p1=0, p2=0), "endingOffsets": _at(p0=3, p1=5, p2=0)}
    yield read("endingOffsets", "before startingOffsets", both)
    both = {"startingOffsets": _at(p0=3, p1=1, p2=0), "endingOffsets": _at(p0=5, p1=1, p2=0)}
    yield read("endingOffsets", "a range, and an empty one", both)
    yield read("failOnDataLoss", "true, from the beginning of a log cut off", {"subscribe": _TRIM})
    cut = {"subscribe": _TRIM, "startingOffsets": '{"parity-trim":{"0":1}}'}
    yield read("failOnDataLoss", "true, before the log's beginning", cut)
    yield read("failOnDataLoss", "false, before the log's beginning", {**cut, "failOnDataLoss": "false"})
    behind = {"subscribe": "parity-b", "endingOffsets": '{"parity-b":{"0":9}}', "failOnDataLoss": "false"}
    yield read("failOnDataLoss", "false, behind the end", behind)
    yield read("failOnDataLoss", "FALSE", {"failOnDataLoss": "FALSE"})
    yield read("failOnDataLoss", "no flag", {"failOnDataLoss": "perhaps"})


def times() -> Iterator[Case]:
    """Bounds by time."""
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    for name, options, why in (
        ("in the middle", {"startingTimestamp": "3000"}, ""),
        ("before everything", {"startingTimestamp": "0"}, ""),
        ("between two records", {"startingTimestamp": "2500"}, ""),
        ("behind some partitions' end", {"startingTimestamp": "7000"}, ""),
        ("behind some partitions' end, strategy latest", {"startingTimestamp": "7000", **late}, ""),
        ("behind everything, strategy latest", {"startingTimestamp": "99999999", **late}, ""),
        ("negative", {"startingTimestamp": "-1", **late}, _NO_TIME),
        ("no number", {"startingTimestamp": "noon"}, ""),
        ("before startingOffsets", {"startingTimestamp": "3000", "startingOffsets": "latest", **late}, ""),
        ("strategy in capitals", {"startingTimestamp": "7000", "startingOffsetsByTimestampStrategy": "LATEST"}, ""),
        ("a strategy that is none", {"startingTimestamp": "0", "startingOffsetsByTimestampStrategy": "soon"}, ""),
    ):
        yield read("startingTimestamp", name, {**late, **options} if name == "in the middle" else options, why)
    for name, value in {"in the middle": "3000", "before everything": "0", "behind everything": "99999999"}.items():
        yield read("endingTimestamp", name, {"endingTimestamp": value})
    yield read("endingTimestamp", "negative", {"endingTimestamp": "-1"}, _NO_TIME)
    yield read("endingTimestamp", "a range", {"startingTimestamp": "2000", "endingTimestamp": "4000", **late})
    backwards = {"startingTimestamp": "4000", "endingTimestamp": "2000", **late}
    yield read("endingTimestamp", "before the beginning", backwards)
    for side in ("starting", "ending"):
        option = f"{side}OffsetsByTimestamp"
        for name, value, why in (
            ("each partition", _at(p0=3000, p1=2000, p2=0), ""),
            ("a partition is left out", _at(p0=3000, p1=2000), _NO_OTHERS),
            ("a topic that is not read", '{"parity-b":{"0":1}}', ""),
            ("no JSON", "3000", ""),
            ("a negative time", _at(p0=-5, p1=2000, p2=0), _NO_TIME),
            ("behind everything", _at(p0=99999999, p1=99999999, p2=99999999), ""),
        ):
            yield read(option, name, {**late, option: value}, why)
    both = {"startingOffsetsByTimestamp": _at(p0=3000, p1=2000, p2=0), "startingTimestamp": "1000", **late}
    yield read("startingOffsetsByTimestamp", "with startingTimestamp", both)


def splits() -> Iterator[Case]:
    """Into how many tasks a read is cut."""
    for value in ("1", "3", "6", "15", "100"):
        yield read("minPartitions", value, {"minPartitions": value}, _EMPTY if value == "1" else "", then=tasks)
        yield read("minPartitions", f"{value}, rows", {"minPartitions": value})
    for value in ("0", "-1", "many"):
        yield read("minPartitions", value, {"minPartitions": value}, then=tasks)
    for value in ("1", "2", "4"):
        yield read("maxRecordsPerPartition", value, {"maxRecordsPerPartition": value}, _ALONE, then=tasks)
    yield read("maxRecordsPerPartition", "100", {"maxRecordsPerPartition": "100"}, _SHARE, then=tasks)
    yield read("maxRecordsPerPartition", "3, rows", {"maxRecordsPerPartition": "3"})
    both = {"maxRecordsPerPartition": "4", "minPartitions": "9"}
    yield read("maxRecordsPerPartition", "4, minPartitions 9", both, _CUT, then=tasks)
    for value in ("0", "-1", "few"):
        yield read("maxRecordsPerPartition", value, {"maxRecordsPerPartition": value}, then=tasks)
    yield read("minRecordsPerPartition", "not set", {}, _SHARE, then=tasks)
    yield read("minRecordsPerPartition", "1", {"minRecordsPerPartition": "1"}, f"{_NO_OPTION}. {_EMPTY}", then=tasks)
    yield read("minRecordsPerPartition", "5, rows", {"minRecordsPerPartition": "5"})
    for value in ("0", "-1", "few"):
        yield read("minRecordsPerPartition", value, {"minRecordsPerPartition": value}, _NO_OPTION, then=tasks)


def columns() -> Iterator[Case]:
    """Schema and values."""

    def schema(frame: Any) -> str:
        return ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in frame.schema)

    kept, head = {"subscribe": "parity-headers"}, {"subscribe": "parity-headers", "includeHeaders": "true"}
    yield read("rows", "schema", {}, then=schema)
    yield read("rows", "schema with includeHeaders", {"includeHeaders": "true"}, then=schema)
    yield read("rows", "keys and values, null ones too", kept, then=shown("key", "value"))
    yield read("rows", "headers", head, then=shown("headers"))
    yield read("rows", "includeHeaders no flag", {"includeHeaders": "perhaps"}, then=schema)
    yield read("rows", "includeHeaders TRUE", {"includeHeaders": "TRUE"}, then=schema)
    stamps = ("unix_millis(timestamp)", "timestampType")
    yield read("rows", "times of the records", {"subscribe": "parity-b"}, then=shown(*stamps))
    yield read("rows", "LogAppendTime", {"subscribe": "parity-append"}, then=shown("timestampType"))
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        yield read("rows", codec, {"subscribe": f"parity-{codec}"}, then=shown("length(value)"))
    yield read("rows", "a value of 900 kB", {"subscribe": "parity-large"}, then=shown("length(value)"))
    yield read("rows", "an empty topic", {"subscribe": "parity-empty"})
    for name, frame in {
        "count": lambda frame: str(frame.count()),
        "limit": lambda frame: str(frame.limit(3).count()),
        "a filter on offset": lambda frame: places(frame.where("offset >= 3 AND offset < 5")),
        "a filter on partition": lambda frame: places(frame.where("partition IN (1, 2)")),
        "a filter on topic": lambda frame: places(frame.where("topic = 'parity-b'")),
        "a filter on timestamp": lambda frame: places(frame.where("unix_millis(timestamp) = 3000")),
        "a union with itself": lambda frame: str(frame.union(frame).count()),
        "a join with itself": lambda frame: str(frame.alias("x").join(frame.alias("y"), "key").count()),
        "distinct keys": lambda frame: str(frame.select("key").distinct().count()),
    }.items():
        yield read("rows", name, {}, then=frame)
    swapped = (
        "value binary, key binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )
    for name, ddl in {"two columns swapped": swapped, "two columns alone": "key binary, value binary"}.items():
        yield Case("rows", f"a schema that is given, {name}", _given(ddl))
    given = {"subscribe": "parity-txn"}
    yield read("transactions", "isolation level not said", given, _COMMITTED)
    for level in ("read_committed", "read_uncommitted"):
        yield read("transactions", level, {**given, "kafka.isolation.level": level})
        still = {"subscribe": "parity-open", "kafka.isolation.level": level}
        yield read("transactions", f"{level}, one is open", still)
    yield read("transactions", "a level that is none", {**given, "kafka.isolation.level": "read_some"})


def _given(ddl: str) -> Callable[[Side], str]:
    return lambda side: str(side.reader({"subscribe": "parity-b"}).schema(ddl).load().count())


def names() -> Iterator[Case]:
    """Options by other names, and options that say nothing in a batch read."""
    for name, value in {
        "maxOffsetsPerTrigger": "1",
        "minOffsetsPerTrigger": "99",
        "maxTriggerDelay": "1s",
        "fetchOffset.numRetries": "3",
        "fetchOffset.retryIntervalMs": "10",
        "kafkaConsumer.pollTimeoutMs": "60000",
        "groupIdPrefix": "mine",
    }.items():
        yield read("other options", f"{name}={value}", {name: value})
    for name in ("startingOffset", "subscribes", "failOnDatLoss"):
        yield read("other options", f"{name}: a typing error", {name: "earliest"}, _TYPO)


def all_reads() -> list[Case]:
    """Every case of this file."""
    return [case for cases in (topics, offsets, times, splits, columns, names) for case in cases()]

"""A case of the table: what is done with a connector, in words that do not depend on which connector it is."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.parity.refusals import crash
from tests.interop.spark_topics import Topics

SPARKS, OURS = "kafka", "ottla"
REFUSED = "refused"
CRASHED = "crashed"
_WORD = re.compile(r"[\w.-]{3,}")


class Side(NamedTuple):
    """One of the two connectors, and what its cases need."""

    connector: str
    spark: Any
    topics: Topics
    folder: Path
    numbers: Iterator[int]

    def fresh(self, stem: str) -> str:
        """A name that no other case has."""
        return f"parity-{stem}-{self.connector}-{next(self.numbers)}"

    def reader(self, options: Mapping[str, Any]) -> Any:
        """A batch reader; an option that is None is left out."""
        return self._with(self.spark.read.format(self.connector), options)

    def stream(self, options: Mapping[str, Any]) -> Any:
        """A streaming reader."""
        return self._with(self.spark.readStream.format(self.connector), options)

    def writer(self, writer: Any, options: Mapping[str, Any]) -> Any:
        """A writer of a frame or of a stream. Ours gets a name for its sink, which Spark's has no use for."""
        if self.connector == OURS and options.get("semantics") != "at-least-once":
            options = {"sink.id": self.fresh("sink"), **options}
        return self._with(writer.format(self.connector), {"kafkaConsumer.pollTimeoutMs": None, **options})

    def checkpoint(self) -> Path:
        """A folder for a query's checkpoint."""
        return self.folder / f"checkpoint-{next(self.numbers)}"

    def _with(self, maker: Any, options: Mapping[str, Any]) -> Any:
        # Spark's connector waits two minutes for records that are not there, if it is not told otherwise.
        soon = {"kafkaConsumer.pollTimeoutMs": "3000"}
        given = {"kafka.bootstrap.servers": self.topics.bootstrap, **soon, **options}
        return maker.options(**{name: value for name, value in given.items() if value is not None})


class Case(NamedTuple):
    """A row of the table. `why` says why the outcomes differ; it is empty if they have to be the same.

    An error of ours that refuses it has one of the `words` in it, if there are any.
    """

    group: str
    name: str
    run: Callable[[Side], str]
    why: str = ""
    words: tuple[str, ...] = ()


def outcome(case: Case, side: Side) -> tuple[str, str]:
    """What came of `case`, and for whoever looks into a refusal, what was said. Ours refuses by named errors alone."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return case.run(side), ""
    except (PySparkException, Py4JError) as refusal:
        wrong = crash(str(refusal), case.words) if side.connector == OURS else None
        return (REFUSED, str(refusal)) if wrong is None else (f"{CRASHED}: {wrong}", str(refusal))


def options_of(options: Mapping[str, Any]) -> tuple[str, ...]:
    """What an error about one of the options names: the option, or what it says."""
    said = [word for value in options.values() for word in _WORD.findall(str(value))]
    return tuple(name.removeprefix("kafka.") for name in options) + tuple(said)


def ranges(places: Iterable[tuple[str, int, int]]) -> str:
    """`a/0 0-9, a/1 0-4`: which offsets were read, each once, of which topics and partitions."""
    by_partition: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition, offset in places:
        by_partition[f"{topic.removeprefix('parity-')}/{partition}"].append(offset)
    return ", ".join(f"{where} {_runs(sorted(offsets))}" for where, offsets in sorted(by_partition.items())) or "no row"


def _runs(offsets: list[int]) -> str:
    parts = []
    for _, run in itertools.groupby(enumerate(offsets), lambda each: each[1] - each[0]):
        numbers = [number for _, number in run]
        parts.append(f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}")
    return " ".join(parts)


def places(frame: Any) -> str:
    """The rows of a frame, by topic, partition and offset."""
    return ranges(
        (row.topic, row.partition, row.offset) for row in frame.select("topic", "partition", "offset").collect()
    )


def shown(*columns: str) -> Callable[[Any], str]:
    """The rows' columns as text, ordered by partition and offset."""

    def show(frame: Any) -> str:
        rows = frame.orderBy("topic", "partition", "offset").selectExpr(*columns).collect()
        return "; ".join(", ".join(map(_plain, row)) for row in rows) or "no row"

    return show


def _plain(value: Any) -> str:
    if isinstance(value, bytearray | bytes):
        return bytes(value).decode()
    if isinstance(value, list):
        return f"[{', '.join('='.join(map(_plain, each)) for each in value)}]"
    return "null" if value is None else str(value)

"""How far a streaming query is: what Spark's own progress says of our source, and what its API cannot carry.

    from ottla.spark.progress import listen
    listen(spark, lambda report: print(report.line()))

Python's data source API gives Spark the offsets of a micro-batch and nothing else: no metrics of the source (Spark's
Kafka connector has min, avg and maxOffsetsBehindLatest there) and none of the sink. So a `Report` computes the first
from the offsets, and the sink leaves the others in a file of the driver's machine, in a directory that `listen` makes.
Without that directory it writes nothing.
"""

import fcntl
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from ottla.base.words import counted
from ottla.spark.plan import Offsets, SourceOffset, offsets_from_json

log = logging.getLogger("ottla.spark")
#: Of how many of a query's last batches notes are kept.
_BATCHES = 50


class SinkNote(NamedTuple):
    """What the sink has done with a batch."""

    batch: int
    #: Rows that were written now; none of a replay that was skipped.
    rows: int
    #: Transactions of slots, and the driver's.
    transactions: int
    #: What the claim found of an earlier driver: decided slots that it committed, open transactions that it aborted.
    slots_recovered: int
    transactions_aborted: int
    #: Whether the whole batch was committed before.
    skipped: bool
    #: The sink's id; empty in a note of a version before.
    sink: str = ""

    def line(self) -> str:
        """What was done, for a person."""
        said = "skipped, it was written before" if self.skipped else f"{self.rows} written"
        if self.slots_recovered or self.transactions_aborted:
            said += f", {self.slots_recovered} slots recovered, {self.transactions_aborted} aborted"
        return said


class SourceReport(NamedTuple):
    """One source in a micro-batch: from where it read, up to where, and how far its topics reach.

    `start`, `end` and `latest` are topic → partition → offset of the next record. How far partitions are behind
    `latest` is counted in offsets; None if Spark has not said how far they reach, or there is no partition.
    """

    description: str
    start: Mapping[str, Mapping[str, int]]
    end: Mapping[str, Mapping[str, int]]
    latest: Mapping[str, Mapping[str, int]] | None
    rows: int
    min_offsets_behind_latest: int | None = None
    avg_offsets_behind_latest: float | None = None
    max_offsets_behind_latest: int | None = None
    #: All partitions together.
    offsets_behind_latest: int | None = None


class Report(NamedTuple):
    """A micro-batch of a streaming query. Rates are rows a second, `duration_ms` is the whole trigger's."""

    query: str
    name: str | None
    batch: int
    timestamp: str
    rows: int
    rows_per_second: float
    duration_ms: int
    sources: tuple[SourceReport, ...]
    #: The sink that was written last.
    sink: SinkNote | None
    #: Each sink that was written: a foreachBatch may have several.
    sinks: tuple[SinkNote, ...] = ()

    def line(self) -> str:
        """All of it in one line, for a person."""
        behind = [each.offsets_behind_latest for each in self.sources if each.offsets_behind_latest is not None]
        said = [
            f"{self.name or self.query[:8]}: batch {self.batch}",
            f"{counted(self.rows, 'row')} in {self.duration_ms} ms ({self.rows_per_second:,.0f} a second)",
        ]
        if behind:
            said.append(f"{counted(sum(behind), 'offset')} behind")
        if len(self.sinks) > 1:
            said += [f"{each.sink}: {each.line()}" for each in self.sinks]
        elif self.sink is not None:
            said.append(self.sink.line())
        return ", ".join(said)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON or a metrics system."""
        sources = [each._asdict() for each in self.sources]
        sinks = [each._asdict() for each in self.sinks]
        last = None if self.sink is None else self.sink._asdict()
        return {**self._asdict(), "sources": sources, "sink": last, "sinks": sinks}


def report_of(progress: Mapping[str, Any], notes: Iterable[SinkNote] = ()) -> Report:
    """A report from Spark's progress, as JSON gives it, and the query's notes. Sources of others are left out."""
    sources = (_source(each) for each in progress.get("sources", ()))
    written = [note for note in notes if note.batch == progress["batchId"]]
    return Report(
        progress["id"],
        progress.get("name"),
        int(progress["batchId"]),
        progress["timestamp"],
        int(progress.get("numInputRows", 0)),
        _number(progress.get("processedRowsPerSecond")),
        int(progress.get("durationMs", {}).get("triggerExecution", 0)),
        tuple(each for each in sources if each is not None),
        written[-1] if written else None,
        tuple({note.sink: note for note in written}.values()),
    )


def _number(value: object) -> float:
    found = float(str(value)) if value is not None else 0.0
    return found if found == found and abs(found) != float("inf") else 0.0  # Spark has NaN and Infinity


def _source(given: Mapping[str, Any]) -> SourceReport | None:
    try:
        ended = SourceOffset.from_json(_value(given["endOffset"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    latest: Offsets | None = None
    with suppress(ValueError, TypeError, AttributeError):
        latest = offsets_from_json(_value(given.get("latestOffset")))
    report = SourceReport(
        given.get("description", ""),
        _nested(ended.start),
        _nested(ended.end),
        None if latest is None else _nested(latest),
        int(given.get("numInputRows", 0)),
    )
    behind = [max(0, latest[tp] - ended.end[tp]) for tp in ended.end if tp in latest] if latest else []
    if not behind:
        return report
    return report._replace(
        min_offsets_behind_latest=min(behind),
        avg_offsets_behind_latest=sum(behind) / len(behind),
        max_offsets_behind_latest=max(behind),
        offsets_behind_latest=sum(behind),
    )


def _value(given: object) -> Any:
    """Spark gives offsets as JSON in a text, or as what the text says."""
    return json.loads(given) if isinstance(given, str) else given


def _nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        found.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return found


# -- from the sink's process to the listener's, on the driver's machine


def notes_directory() -> Path:
    """Where sinks leave their notes; only this user may read and write there."""
    return Path(tempfile.gettempdir(), f"ottla-progress-{os.getuid()}")


def leave_note(query: str, note: SinkNote, directory: Path | None = None) -> None:
    """In the sink, when a batch is committed. Nobody listens if the directory is not there; that is no error."""
    directory = directory or notes_directory()
    with suppress(OSError):
        if directory.is_dir() and directory.stat().st_uid == os.getuid() and "/" not in query:
            with _alone(directory):
                new = directory / f".{query}.{os.getpid()}"
                new.write_text(json.dumps([*_still_wanted(read_notes(query, directory), note), note]))
                new.replace(directory / query)


def _still_wanted(notes: Iterable[SinkNote], new: SinkNote) -> list[SinkNote]:
    """Those of the last batches, without what the new one says anew."""
    batches = range(new.batch - _BATCHES + 1, new.batch + 1)
    return [note for note in notes if note.batch in batches and (note.batch, note.sink) != (new.batch, new.sink)]


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """No other sink leaves a note meanwhile. Raises OSError."""
    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def read_notes(query: str, directory: Path | None = None) -> list[SinkNote]:
    """The last notes of a query's sink: a listener hears of a micro-batch when others have followed it."""
    try:
        return [SinkNote(*each) for each in json.loads((directory or notes_directory()).joinpath(query).read_text())]
    except (OSError, ValueError, TypeError):
        return []


def make_notes_directory() -> None:
    """Somebody will listen. What cannot be made means reports without the sink's part."""
    with suppress(OSError):
        notes_directory().mkdir(mode=0o700, exist_ok=True)


def listen(session: Any, tell: Callable[[Report], None]) -> Any:
    """Call `tell` with a Report after each micro-batch of every query of `session`; returns the listener.

    `session.streams.removeListener(listener)` ends it. `tell` runs in a thread of Spark's; what it raises is logged.
    """
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):  # type: ignore[misc]
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            """Nothing is to be told yet."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            """A micro-batch has ended."""
            try:
                progress = json.loads(event.progress.json)
                tell(report_of(progress, read_notes(progress["id"])))
            except Exception:
                log.exception("a report of a streaming query could not be told")

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """Nothing new is to be told."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            """Its notes are not needed any more."""
            with suppress(OSError):
                (notes_directory() / str(event.id)).unlink()

    make_notes_directory()
    listener = Listener()
    session.streams.addListener(listener)
    return listener

"""A task of the source: reads ranges of offsets, and turns fetched bytes directly into Arrow columns."""

import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.base.errors import CorruptDataError
from ottla.base.types import TopicPartition
from ottla.client.blocking.loop_thread import Running
from ottla.client.errors import OffsetOutOfRangeError
from ottla.spark import bounds, faults, plan
from ottla.spark.columns import Chunk
from ottla.spark.errors import DamagedRecordsError, DataLossError
from ottla.spark.kept_chunks import KeptChunks, Origin
from ottla.spark.link import KafkaLink
from ottla.spark.options import SourceOptions
from ottla.spark.plan import Range
from ottla.spark.topics import Topics
from ottla.wire.messages.fetch import PartitionData

log = logging.getLogger("ottla.spark")

#: How many fetches in a row may bring nothing, although the range has records, before the range counts as lost.
_EMPTY_FETCHES = 5
#: Of so many ranges of a task the first fetch is on its way or there: the one that is read, and the next ones.
_BEGUN_RANGES = 4
#: RecordBatches that are smaller go to Spark together with the next ones.
_SMALL_BYTES = 65_536


class Wanted(NamedTuple):
    """A range, and the id of the topic that was meant when it was planned.

    If a later range may go on with what is fetched for this one: the epoch of its leader then, and the planner's
    `KafkaLink.unbroken`.
    """

    range: Range
    topic_id: str | None
    epoch: int | None = None
    unbroken: str | None = None

    @property
    def topic(self) -> tuple[str, str | None]:
        """The topic's name and its id."""
        return self.range.tp.topic, self.topic_id


def read_ranges(
    kafka: KafkaLink, options: SourceOptions, schema: Any, wanted: Sequence[Wanted]
) -> Generator[Any, None, None]:
    """RecordBatches of these ranges, one range after the other."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    return _together(_rows(kafka, options, arrow_schema, wanted))


def _rows(kafka: KafkaLink, options: SourceOptions, schema: Any, wanted: Sequence[Wanted]) -> Iterator[Any]:
    behind, begun = deque(wanted), deque[_Reading]()
    gone: dict[tuple[str, str | None], str] = {}  # topics, and why: none of them is waited for twice
    try:
        while behind or begun:
            while behind and len(begun) < _BEGUN_RANGES:
                each = behind.popleft()
                if each.topic in gone:
                    _lost(options, gone[each.topic])
                else:
                    begun.append(_Reading(kafka, options, each))  # its first fetch is on its way
            if begun:
                reading = begun[0]
                yield from reading.rows(schema)
                if reading.gone is not None:
                    gone[reading.wanted.topic] = reading.gone
                begun.popleft()
    finally:
        for reading in begun:  # after a fault, or when Spark wants no more rows
            reading.stop()


def _together(batches: Iterable[Any]) -> Generator[Any, None, None]:
    """The same rows in the same order; those of small batches in fewer, for each batch costs Spark some time."""
    small: list[Any] = []
    size_bytes = 0
    for batch in batches:
        if batch.nbytes >= _SMALL_BYTES or size_bytes >= _SMALL_BYTES:
            yield from _joined(small)
            small, size_bytes = [], 0
        if batch.nbytes >= _SMALL_BYTES:
            yield batch
            continue
        small.append(batch)
        size_bytes += batch.nbytes
    yield from _joined(small)


def _joined(batches: list[Any]) -> list[Any]:
    if len(batches) < 2:
        return batches
    whole: list[Any] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


class _Reading:
    """One range. One fetch is on its way while the one before is decoded."""

    def __init__(self, kafka: KafkaLink, options: SourceOptions, wanted: Wanted) -> None:
        self.wanted = wanted
        #: Why nothing is read: the topic is gone.
        self.gone: str | None = None
        self._kafka, self._options, self._range = kafka, options, wanted.range
        self._committed = options.client.isolation_level == "read_committed"
        self._kept: KeptChunks = kafka.memory.setdefault("kept chunks", KeptChunks())
        #: As it is before anything is fetched: what comes under a later leader is not taken by who knows that one.
        self._origin = self._origin_now()
        #: What is there of the range, decoded next.
        self._chunk = self._of_the_range_before()
        behind = self._range.start if self._chunk is None else self._chunk.next_offset
        #: None if nothing is to be fetched.
        self._fetched = None if behind is None or behind >= self._range.end else self._fetch_from(behind)
        self._empty_fetches = 0

    def stop(self) -> None:
        """Nobody wants the fetch that is on its way."""
        if self._fetched is not None:
            self._fetched.cancel()

    def rows(self, schema: Any) -> Iterator[Any]:
        """Its RecordBatches of the Arrow schema. Raises DataLossError, DamagedRecordsError, PipelineError."""
        wanted, at = self._range, self._range.start
        while at < wanted.end:
            chunk, self._chunk = self._chunk, None
            if chunk is None:
                at = self._wait(at)
                continue
            begin, following = at, chunk.next_offset
            assert following is not None
            at = following
            faults.reach("source.read")
            with _named(wanted.tp, begin):
                for rows in chunk.rows(wanted.tp, begin, wanted.end, schema):
                    if rows.num_rows:
                        yield rows
            if at > wanted.end and self._origin is not None:
                self._kept.keep(wanted.tp, self._origin, wanted.end, chunk)

    def _wait(self, at: int) -> int:
        """Wait for the fetch at `at`, take what it brings, and begin the next one. Returns where the range goes on."""
        wanted = self._range
        assert self._fetched is not None
        try:
            data = self._fetched.result()
        except DataLossError as loss:  # the topic was deleted, and perhaps made again
            self.gone = str(loss)
            _lost(self._options, self.gone)
            return wanted.end
        except OffsetOutOfRangeError:
            at = self._after_loss(at)
            if at < wanted.end:
                self._fetched = self._fetch_from(at)
            return at
        if data is None:
            self._fetched = self._fetch_from(at)
            return at
        chunk = self._chunk_of(data, at)
        following = chunk.next_offset
        if following is None or following <= at:
            self._empty_fetches += 1
            if self._empty_fetches >= _EMPTY_FETCHES:
                self._nothing_at(at)
                return wanted.end
            self._fetched = self._fetch_from(at, whole=True)  # not everybody sends a batch that is larger
            return at
        self._kafka.memory[self._size_key] = chunk.size_bytes / (following - at)
        self._chunk, self._empty_fetches = chunk, 0
        if following < wanted.end:
            self._fetched = self._fetch_from(following)
        return at

    def _of_the_range_before(self) -> Chunk | None:
        """What a task of this process has fetched beyond its range, which this one continues."""
        origin, wanted = self._origin, self._range
        return None if origin is None else self._kept.take(wanted.tp, origin, wanted.start)

    def _origin_now(self) -> Origin | None:
        """None if nothing is to be kept, or it cannot be told what it is of."""
        tp, topic_id, planned, unbroken = self._range.tp, self.wanted.topic_id, self.wanted.epoch, self.wanted.unbroken
        asked = self._kafka.cluster.snapshot.leader_epoch(tp)
        if topic_id is None or planned is None or unbroken is None or asked < 0:
            return None
        return Origin(topic_id, planned, asked, self._committed, unbroken)

    def _chunk_of(self, data: PartitionData, at: int) -> Chunk:
        aborted = [(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()]
        with _named(self._range.tp, at):
            return Chunk(data.records or b"", aborted, committed=self._committed)

    def _fetch_from(self, offset: int, *, whole: bool = False) -> Running[PartitionData | None]:
        """A fetch of what is left of the range, as far as one may bring it; with `whole` of all that one may bring."""
        client, wanted = self._options.client, self._range
        most = min(client.max_partition_fetch_bytes, client.fetch_max_bytes)
        needed = plan.fetch_bytes(wanted.end - offset, self._kafka.memory.get(self._size_key), most)
        fetch = self._kafka.fetch(
            wanted.tp,
            offset,
            topic_id=self.wanted.topic_id,
            committed=self._committed,
            max_bytes=most if whole else needed,
            max_wait_ms=client.fetch_max_wait_ms,
            end=wanted.end,
        )
        return self._kafka.submit(fetch)

    @property
    def _size_key(self) -> tuple[str, TopicPartition]:
        """In the link's memory: how many bytes an offset of the partition took lately."""
        return "bytes an offset", self._range.tp

    def _after_loss(self, at: int) -> int:
        """Where to go on when `at` is not in the log: at the log's beginning, if that lies in the range."""
        kafka, tp, end = self._kafka, self._range.tp, self._range.end
        earliest = kafka.run(kafka.offsets_at({tp: bounds.EARLIEST}, committed=False)).get(tp, end)
        _lost(self._options, f"offset {at} of {tp} is not in the log any more, which begins at {earliest}")
        return min(earliest, end) if earliest > at else end

    def _nothing_at(self, at: int) -> None:
        tp, end = self._range.tp, self._range.end
        Topics(self._options, lambda: self._kafka).require_stable("the micro-batch", {tp: end})
        _lost(self._options, f"{tp} has nothing at offset {at}, though offsets up to {end} were there")


@contextmanager
def _named(tp: TopicPartition, offset: int) -> Iterator[None]:
    try:
        yield
    except CorruptDataError as fault:
        raise DamagedRecordsError(tp, offset, str(fault)) from fault


def _lost(options: SourceOptions, loss: str) -> None:
    if options.fail_on_data_loss:
        plan.require_no_loss([loss])
    log.warning("failOnDataLoss is false, going on although %s", loss)

"""The source of `format("ottla")`: Kafka topics as rows, in batch and streaming reads.

On the driver one reader lives as long as the query. It says how far the topics reach and cuts the next micro-batch
into ranges; a range is read by one task, straight from fetched bytes to Arrow columns. By default only committed
records are read, up to the last stable offset; so a range holds the same records whenever it is read again.
"""

import logging
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ottla.base.types import TopicPartition
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.client.errors import OffsetOutOfRangeError
from ottla.spark import faults, plan
from ottla.spark.columns import Chunk
from ottla.spark.errors import DataLossError
from ottla.spark.link import KafkaLink, link
from ottla.spark.options import SourceOptions
from ottla.spark.plan import AtTimestamps, Bound, Latest, Offsets, Range, SourceOffset, Specific
from ottla.wire.messages.fetch import PartitionData

log = logging.getLogger("ottla.spark")

#: An idle query asks every 10 ms how far the topics reach; Kafka is asked so often at most.
_ASK_AGAIN_S = 0.02
#: Fetches that bring nothing although there should be something, before the range counts as lost.
_EMPTY_FETCHES = 5


class KafkaRange(InputPartition):  # type: ignore[misc]
    """What one task reads."""

    def __init__(self, topic: str, partition: int, start: int, end: int) -> None:
        self.range = Range(TopicPartition(topic, partition), start, end)


class Topics:
    """The partitions that the options mean, and offsets in them. Blocking; on the driver."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @property
    def kafka(self) -> KafkaLink:
        """This process's link."""
        return link(self._options.kafka)

    def partitions(self) -> list[TopicPartition]:
        """Every partition there is now."""
        options = self._options
        named = {tp.topic for tp in options.partitions} | set(options.topics)
        snapshot = self.kafka.run(self.kafka.topics(None if options.pattern is not None else named))
        pattern = re.compile(options.pattern) if options.pattern is not None else None
        found = [
            TopicPartition(topic, partition)
            for topic, info in snapshot.topics.items()
            if (pattern.fullmatch(topic) if pattern is not None else topic in named) and not info.is_internal
            for partition in info.partitions
        ]
        return sorted(set(found) & set(options.partitions)) if options.partitions else sorted(found)

    def at(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """Offsets at times, or at -2 the earliest and -1 the end of what may be read."""
        committed = self._options.client.isolation_level == "read_committed"
        return self.kafka.run(self.kafka.offsets_at(times, committed=committed))

    def ends(self, tps: list[TopicPartition]) -> tuple[Offsets, Offsets]:
        """The earliest offset and the end of each partition."""
        return self.at(dict.fromkeys(tps, plan.EARLIEST)), self.at(dict.fromkeys(tps, plan.LATEST))

    def resolve(self, bound: Bound) -> Offsets:
        """The offset in every partition that `bound` means. Raises DataLossError for a time that is too late."""
        tps = self.partitions()
        match bound:
            case Latest():
                return self.at(dict.fromkeys(tps, plan.LATEST))
            case Specific(offsets):
                asked = {tp: offsets.get(tp, plan.EARLIEST) for tp in tps}
                named = self.at({tp: offset for tp, offset in asked.items() if offset < 0})
                return {tp: named.get(tp, offset) for tp, offset in asked.items()}
            case AtTimestamps(by_partition, every_ms):
                times = {tp: by_partition.get(tp, every_ms) for tp in tps}
                found = self.at({tp: plan.EARLIEST if ms is None else ms for tp, ms in times.items()})
                late = [tp for tp, offset in found.items() if offset < 0]
                if late and not self._options.timestamp_strategy_latest:
                    raise DataLossError(
                        f"{late[0]} holds no record at or after {times[late[0]]}; "
                        "set startingOffsetsByTimestampStrategy to latest to begin at its end"
                    )
                return {**found, **(self.at(dict.fromkeys(late, plan.LATEST)) if late else {})}

    def losses(self, losses: list[str]) -> None:
        """Stop the query for lost records, or say so in the log, as `failOnDataLoss` has it."""
        if losses and self._options.fail_on_data_loss:
            plan.require_no_loss(losses)
        for loss in losses:
            log.warning("failOnDataLoss is false, going on although %s", loss)


def read_range(options: SourceOptions, schema: Any, wanted: Range) -> Iterator[Any]:
    """RecordBatches of a range, in a task. One fetch is on its way while the one before is decoded."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    kafka = link(options.kafka)
    committed = options.client.isolation_level == "read_committed"
    at, empty = wanted.start, 0
    fetched = kafka.submit(_fetch(kafka, options, wanted.tp, at))
    while at < wanted.end:
        try:
            data: PartitionData = fetched.result()
        except OffsetOutOfRangeError:
            at = _after_loss(kafka, options, wanted, at)
            fetched = kafka.submit(_fetch(kafka, options, wanted.tp, at))
            continue
        aborted = [(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()]
        chunk = Chunk(data.records or b"", aborted, committed=committed)
        begin, following = at, chunk.next_offset
        if following is None or following <= at:
            empty += 1
            if empty >= _EMPTY_FETCHES:
                _lost(options, f"{wanted.tp} has nothing at offset {at}, though it was read up to {wanted.end}")
                return
            fetched = kafka.submit(_fetch(kafka, options, wanted.tp, at))
            continue
        at, empty = following, 0
        if at < wanted.end:
            fetched = kafka.submit(_fetch(kafka, options, wanted.tp, at))
        faults.reach("source.read")
        rows = chunk.rows(wanted.tp, begin, wanted.end, arrow_schema)
        if rows.num_rows:
            yield rows


async def _fetch(kafka: KafkaLink, options: SourceOptions, tp: TopicPartition, offset: int) -> PartitionData:
    client = options.client
    return await kafka.fetch(
        tp,
        offset,
        committed=client.isolation_level == "read_committed",
        max_bytes=min(client.max_partition_fetch_bytes, client.fetch_max_bytes),
        max_wait_ms=client.fetch_max_wait_ms,
    )


def _after_loss(kafka: KafkaLink, options: SourceOptions, wanted: Range, at: int) -> int:
    """Where to go on when `at` is not in the log: at its beginning, if that is still in the range."""
    earliest = kafka.run(kafka.offsets_at({wanted.tp: plan.EARLIEST}, committed=False)).get(wanted.tp, wanted.end)
    _lost(options, f"offset {at} of {wanted.tp} is not in the log any more, which begins at {earliest}")
    return min(earliest, wanted.end) if earliest > at else wanted.end


def _lost(options: SourceOptions, loss: str) -> None:
    if options.fail_on_data_loss:
        plan.require_no_loss([loss])
    log.warning("failOnDataLoss is false, going on although %s", loss)


class OttlaReader(DataSourceReader):  # type: ignore[misc]
    """A batch read: fixed bounds."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> list[InputPartition]:
        """Resolve the bounds, once, and cut the ranges."""
        topics = Topics(self._options)
        start, end = topics.resolve(self._options.start), topics.resolve(self._options.end)
        earliest, latest = topics.ends(sorted(start))
        topics.losses(plan.check_no_loss(start, earliest, latest))
        start, _ = plan.next_target(start, earliest, latest)
        return _input_partitions(self._options, start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A task."""
        assert isinstance(partition, KafkaRange)
        return read_range(self._options, self._schema, partition.range)


def _input_partitions(options: SourceOptions, start: Offsets, end: Offsets) -> list[InputPartition]:
    pieces = plan.split(plan.ranges(start, end), options.min_partitions, options.max_records_per_partition)
    return [KafkaRange(r.tp.topic, r.tp.partition, r.start, r.end) for r in pieces]


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A streaming read. The driver's calls are all made on one object, in one process, for the query's whole life."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self._options, self._schema = options, schema
        self._topics = Topics(options)
        self._initial: dict[str, Any] | None = None
        self._available: Offsets | None = None
        self._asked_at_s = -1.0
        self._ends: tuple[Offsets, Offsets] = ({}, {})
        self._waiting_since_s: float | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the query begins. Spark asks twice; `latest` must not move in between."""
        if self._initial is None:
            resolved = self._topics.resolve(self._options.start)
            self._initial = SourceOffset({}, resolved, self._group).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxOffsetsPerTrigger`."""
        return ReadMaxRows(self._options.max_offsets) if self._options.max_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends at what is there now."""
        self._available = self._topics.ends(self._topics.partitions())[1]

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The next micro-batch; `start` itself when there is nothing new."""
        read_to = SourceOffset.from_json(start).end
        earliest, latest = self._ask()
        self._topics.losses(plan.check_no_loss(read_to, earliest, latest))
        if self._available is not None:
            latest = {tp: min(latest.get(tp, offset), offset) for tp, offset in self._available.items()}
            latest = {tp: max(offset, read_to.get(tp, 0)) for tp, offset in latest.items()}
        begin, end = plan.next_target(read_to, earliest, latest)
        if isinstance(limit, ReadMaxRows):
            end = plan.limited(begin, end, limit.max_rows)
        if plan.backlog(begin, end) == 0 or not self._worth_a_batch(begin, end):
            return start
        return SourceOffset(begin, end, self._group).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How far the topics reach, for the query's progress."""
        return plan.offsets_to_json(self._ends[1]) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of a micro-batch: all is in `end`, so that a replay reads the same."""
        planned = SourceOffset.from_json(end)
        return _input_partitions(self._options, planned.start, planned.end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A task."""
        assert isinstance(partition, KafkaRange)
        return read_range(self._options, self._schema, partition.range)

    def commit(self, end: dict[str, Any]) -> None:
        """The batch that ended there is committed. Spark says so when it constructs the next one.

        The exactly-once sink has committed the group's offsets in its own transaction by then; `commitOffsets=source`
        is for other sinks.
        """
        if self._group is None or not self._options.commit_here:
            return
        offsets = {tp: OffsetAndMetadata(offset) for tp, offset in SourceOffset.from_json(end).end.items()}
        kafka = self._topics.kafka
        kafka.run(kafka.alter_group_offsets(self._group, offsets))

    def stop(self) -> None:
        """The query is over."""

    @property
    def _group(self) -> str | None:
        return self._options.client.group_id

    def _ask(self) -> tuple[Offsets, Offsets]:
        now_s = time.monotonic()
        if now_s - self._asked_at_s >= _ASK_AGAIN_S:
            self._ends = self._topics.ends(self._topics.partitions())
            self._asked_at_s = now_s
        return self._ends

    def _worth_a_batch(self, start: Offsets, end: Offsets) -> bool:
        """Whether `minOffsetsPerTrigger` are there, or `maxTriggerDelay` has passed."""
        least, now_s = self._options.min_offsets, time.monotonic()
        if least is None or self._available is not None or plan.backlog(start, end) >= least:
            self._waiting_since_s = None
            return True
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        if (now_s - self._waiting_since_s) * 1000 < self._options.max_delay_ms:
            return False
        self._waiting_since_s = None
        return True

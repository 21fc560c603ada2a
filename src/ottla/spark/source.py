"""The source of `format("ottla")`: Kafka topics as rows, in batch and streaming reads.

On the driver one reader lives as long as the query. It says how far the topics reach, and cuts the next micro-batch
into ranges, which the tasks read (`ottla.spark.range_reader`). By default a query reads only committed records, up to
the last stable offset, so a range holds the same records each time it is read.
"""

import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.client.errors import KafkaError
from ottla.spark import bounds, plan, worker_processes
from ottla.spark.errors import PipelineError
from ottla.spark.filters import Narrowed, narrowed
from ottla.spark.link import link
from ottla.spark.options import SourceOptions
from ottla.spark.plan import Cut, Logs, Offsets, SourceOffset
from ottla.spark.range_reader import Wanted, read_ranges
from ottla.spark.topics import Topics
from ottla.wire.errors import ErrorCode

log = logging.getLogger("ottla.spark")
#: The shortest time between two questions to Kafka. Spark asks an idle query every 10 ms how far the topics reach.
_ASK_AGAIN_S = 0.02
#: New topics and partitions are found within this time.
_LOOK_AGAIN_S = 1.0


class KafkaRanges(InputPartition):  # type: ignore[misc]
    """What one task reads."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self.wanted = wanted


class _Pushing:
    """`pushFilters` of a reader, which says that it is Spark's own as long as it is not called.

    Spark refuses a reader that has one while `spark.sql.python.filterPushdown.enabled` is false, its default, instead
    of not calling it. Our reader gives the same rows with and without it.
    """

    def __init__(self, reader: "OttlaReader") -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters  # what Spark compares

    def __call__(self, filters: Iterable[Any]) -> list[Any]:
        """All filters come back: Spark applies them to the rows again."""
        told = list(filters)
        self._reader.narrowed = narrowed(told)
        return told


class OttlaReader(DataSourceReader):  # type: ignore[misc]
    """A batch read: fixed bounds, and no more of what is between them than the query's filters can pass."""

    def __init__(self, options: SourceOptions, schema: Any, topics: Topics | None = None) -> None:
        """`topics` is for tests."""
        self._options, self._schema = options, schema
        self._topics = topics or Topics(options)
        #: What the filters say that Spark has told.
        self.narrowed = Narrowed()

    @property
    def pushFilters(self) -> _Pushing:  # noqa: N802
        """Spark calls it with the query's filters, if that is switched on."""
        return _Pushing(self)

    def partitions(self) -> list[InputPartition]:
        """Resolve the bounds, once, and cut the ranges. Raises ConfigError, DataLossError, OpenTransactionError."""
        options, topics = self._options, self._topics
        there = topics.there(as_of_now=True)
        bounds.require_assigned(options.partitions, there.partitions)
        start, end = topics.resolve(options.start, there.partitions), topics.resolve(options.end, there.partitions)
        topics.require_stable(options.start.option, start)
        topics.require_stable(options.end.option, end)
        bounds.require_order(start, end)
        furthest = {tp: max(start.get(tp, 0), at) for tp, at in end.items()}
        logs = topics.confirmed(topics.logs(there), furthest, there.ids)
        earliest, latest, ids = logs.earliest, logs.latest, logs.ids
        topics.losses(
            bounds.outside(options.start.option, start, earliest, latest)
            + bounds.outside(options.end.option, end, earliest, latest)
        )
        start, end = bounds.inside(start, earliest, latest), bounds.inside(end, earliest, latest)
        start, end = self._since(*self.narrowed.bounds(start, end))
        return _input_partitions(start, end, ids, options.cut)

    def _since(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """Without the records before the first one at or after the filters' time, where there is one."""
        since_ms = self.narrowed.since_ms
        if since_ms is None or not start:
            return start, end
        # Asked when the ends are known: what is before an end now cannot come later.
        found = self._topics.at(dict.fromkeys(start, since_ms))
        # Who says that there is none may have been deposed, and not have the newest records.
        snapshot = self._topics.kafka.cluster.snapshot
        none = {tp for tp, at in found.items() if at < 0 and not snapshot.may_have_another_leader(tp)}
        return {tp: end[tp] if tp in none else max(at, found.get(tp, at)) for tp, at in start.items()}, end

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A task."""
        return _read(self._options, self._schema, partition)


def _input_partitions(
    start: Offsets,
    end: Offsets,
    ids: Mapping[str, str],
    cut: Cut,
    epochs: Mapping[TopicPartition, int] | None = None,
    unbroken: str | None = None,
) -> list[InputPartition]:
    """The next batch may use what this one has fetched, with `epochs`, those of the leaders that have planned it, and
    `unbroken`, the connections that it was planned by."""
    epochs = epochs or {}
    tasks = plan.tasks(start, end, cut)
    return [
        KafkaRanges([Wanted(each, ids.get(each.tp.topic), epochs.get(each.tp), unbroken) for each in task])
        for task in tasks
    ]


def _offset_of(value: Any) -> SourceOffset:
    """What Spark gives back from the checkpoint. Raises PipelineError for an offset of another source."""
    try:
        return SourceOffset.from_json(value)
    except ValueError:
        raise PipelineError(
            f"the checkpoint is of another source: {str(value)[:200]} is no offset of Kafka's topics. Set the option "
            "checkpointLocation of the query to a directory of its own"
        ) from None


def _read(options: SourceOptions, schema: Any, partition: InputPartition) -> Iterator[Any]:
    if isinstance(partition, KafkaRanges):  # Spark passes a partition of its own when there is nothing to read
        yield from read_ranges(link(options.kafka), options, schema, partition.wanted)
    worker_processes.rest("read")


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A streaming read. While the query lives, the driver makes all its calls on one object in one process."""

    def __init__(self, options: SourceOptions, schema: Any, topics: Topics | None = None) -> None:
        """`topics` is for tests."""
        self._options, self._schema = options, schema
        self._topics = topics or Topics(options)
        self._initial: dict[str, Any] | None = None
        self._available: Offsets | None = None
        self._asked_at_s = self._looked_at_s = -1.0
        self._logs = Logs({}, {})
        #: `KafkaLink.unbroken` if `_logs` came by connections that were there afterwards, too.
        self._unbroken: str | None = None
        self._assigned_is_there = False
        self._triggered_s: float | None = None
        #: Beside the group's offsets that this reader commits, and those that it has committed last.
        self._name = f"ottla {uuid.uuid4().hex[:12]}"
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._said_shared = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the query begins. Spark asks twice; `latest` must give the same answer twice. Raises ConfigError."""
        if self._initial is None:
            topics, bound = self._topics, self._options.start
            there = topics.there(as_of_now=True)
            bounds.require_assigned(self._options.partitions, there.partitions)
            start = topics.resolve(bound, there.partitions)
            topics.require_stable(bound.option, start)
            logs = topics.confirmed(topics.logs(there), start, there.ids)
            topics.losses(bounds.outside(bound.option, start, logs.earliest, logs.latest))
            start = bounds.inside(start, logs.earliest, logs.latest)
            self._initial = SourceOffset({}, start, self._group, logs.ids, epochs=logs.epochs).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxOffsetsPerTrigger`."""
        return ReadMaxRows(self._options.max_offsets) if self._options.max_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends at what is there now."""
        self._available = self._topics.logs(self._topics.there(as_of_now=True)).latest

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The next micro-batch; `start` itself when there is nothing new.

        Raises DataLossError, ConfigError; OpenTransactionError if what others have read up to `start`, or the query
        itself with another `kafka.isolation.level`, lies behind one.
        """
        read = _offset_of(start)
        logs = self._topics.confirmed(self._ask(), read.end, read.ids)
        logs = self._logs = self._topics.with_cuts(logs, read)
        self._require_assigned(read, logs)
        self._topics.losses(plan.check_no_loss(read, logs, self._topics.asked))
        self._topics.require_stable("the checkpoint", plan.held_back(read, logs))
        begin, end = plan.next_target(read, logs)
        if self._available is not None:
            end = plan.stopped_at(self._available, begin, end)
        if not plan.moves_back(read, begin) and not self._worth_a_batch(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = plan.limited(begin, end, limit.max_rows)
        return SourceOffset(begin, end, self._group, logs.ids, cut=self._options.cut, epochs=logs.epochs).to_json()

    def _require_assigned(self, read: SourceOffset, logs: Logs) -> None:
        """Checked once: a query that continues from a checkpoint may have another `assign`. Partitions that the query
        has read already need not exist any more."""
        if not self._assigned_is_there:
            bounds.require_assigned(set(self._options.partitions) - set(read.end), logs.latest)
            self._assigned_is_there = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How far the topics reach, for the query's progress."""
        return plan.offsets_to_json(self._logs.latest) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of a micro-batch. `end` alone says what they are, so that a replay reads the same."""
        planned = _offset_of(end)
        if planned.adopted:
            planned = self._taken_over(_offset_of(start), planned)
        cut = planned.cut or self._options.cut._replace(min_records_per_partition=1)
        return _input_partitions(planned.start, planned.end, planned.ids, cut, planned.epochs, self._unbroken)

    def _taken_over(self, before: SourceOffset, planned: SourceOffset) -> SourceOffset:
        """A micro-batch that Spark's own connector has planned and not committed: where it begins, too.

        Raises PipelineError for the first one of its query, OpenTransactionError where it ends behind one.
        """
        if not before.adopted:
            raise PipelineError(
                "the checkpoint is of Spark's own connector, and its first micro-batch is not committed: only that "
                'connector knows where it begins. Start the query once more with format("kafka"), until that is done'
            )
        topics = self._topics
        there = topics.there(as_of_now=True)
        topics.require_stable("the checkpoint of Spark's own connector", planned.end)
        logs = topics.confirmed(topics.logs(there), before.end, before.ids)
        topics.losses(plan.check_no_loss(before, logs, topics.asked))
        start = {tp: before.end.get(tp, logs.earliest.get(tp, 0)) for tp in planned.end}
        return SourceOffset(start, planned.end, self._group, logs.ids)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A task."""
        return _read(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """The batch that ends at `end` is committed. Spark calls this when it plans the next batch.

        By then the exactly-once sink has committed the group's offsets in its own transaction. `commitOffsets=source`
        is for other sinks.
        """
        if self._group is None or not self._options.commit_here:
            return
        read, logs = _offset_of(end), self._ask()
        there = logs.latest.keys() - plan.made_anew(read, logs)
        offsets = {tp: OffsetAndMetadata(offset, self._name) for tp, offset in read.end.items() if tp in there}
        if offsets:
            self._topics.kafka.run(self._commit(self._group, offsets))

    async def _commit(self, group: str, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Raises ConfigError if consumers are in the group. That somebody else commits for it is told once."""
        admin = self._topics.kafka.admin
        if self._committed and not self._said_shared:
            found = await admin.list_group_offsets(group, self._committed)
            others = sorted(tp for tp, at in found.items() if at.offset >= 0 and at.metadata != self._name)
            if others:
                self._said_shared = True
                log.warning(
                    "kafka.group.id %s: somebody else commits offsets of %s for it, at %d now. With "
                    "commitOffsets=source the last one wins: give each query a group of its own",
                    group,
                    others[0],
                    found[others[0]].offset,
                )
        try:
            await admin.alter_group_offsets(group, offsets)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            raise ConfigError(
                f"kafka.group.id {group}: consumers are in this group, and nobody else may commit offsets for it. With "
                "commitOffsets=source give the query a group of its own"
            ) from error
        self._committed = offsets

    def stop(self) -> None:
        """The query is over."""

    @property
    def _group(self) -> str | None:
        return self._options.client.group_id

    def _ask(self) -> Logs:
        now_s = time.monotonic()
        if now_s - self._asked_at_s >= _ASK_AGAIN_S:
            anew = now_s - self._looked_at_s >= _LOOK_AGAIN_S
            before = self._topics.kafka.unbroken
            self._logs = self._topics.logs_there(as_of_now=anew)
            self._unbroken = before if before == self._topics.kafka.unbroken else None
            self._asked_at_s = now_s
            if anew:
                self._looked_at_s = now_s
        return self._logs

    def _worth_a_batch(self, start: Offsets, end: Offsets) -> bool:
        """Whether `minOffsetsPerTrigger` are there, or `maxTriggerDelay` has passed since the batch before.

        As in Spark's connector, the first batch after a start waits for nothing.
        """
        if plan.backlog(start, end) == 0:
            return False
        least, now_s, last_s = self._options.min_offsets, time.monotonic(), self._triggered_s
        if least is not None and self._available is None and last_s is not None:
            waited_ms = (now_s - last_s) * 1000
            if plan.backlog(start, end) < least and waited_ms < self._options.max_delay_ms:
                return False
        self._triggered_s = now_s
        return True

"""The sink of `format("ottla")`: rows to Kafka topics, exactly once (the default) or at least once.

A task writes one slot: a transaction of its own, which it leaves open. The driver decides over all slots.
`ottla.spark.protocol` says what is asked of Kafka and why that is right. Here are the rows, and the calls of Spark:

* On the driver, before each micro-batch, Spark makes the data source and the writer anew; then the sink is claimed,
  and what an earlier driver left is finished. The claim travels to the tasks inside the pickled writer.
* After the tasks Spark makes a writer once more, from a pickled data source and in another process, for `commit`. It
  has only the tasks' messages, so they carry the claim.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.base.errors import ConfigError, OttlaError
from ottla.base.require import require
from ottla.spark import faults, worker_processes
from ottla.spark.aborting import abort_unfinished
from ottla.spark.claim_note import claim_left, leave_claim
from ottla.spark.client_errors import told
from ottla.spark.columns import RowDigest, check_writable
from ottla.spark.errors import PipelineError
from ottla.spark.ledger import MOST_SLOTS, UNNAMED, BatchKey, Handle, Plan, SlotMarker
from ottla.spark.ledger_io import LedgerKafka
from ottla.spark.link import link
from ottla.spark.moved import check_not_moved, in_use, sink_in_use
from ottla.spark.options import Atomicity, Semantics, SinkOptions
from ottla.spark.pipeline import Planned, checkpoint_of, of_this_cluster, planned, query_of
from ottla.spark.progress import SinkNote, leave_note
from ottla.spark.protocol import (
    Claim,
    SlotReport,
    SlotTask,
    abort_batch,
    check_same,
    claim_of,
    claim_sink,
    commit_batch,
    committed_plan,
    slot_task,
    unnamed_batch,
)
from ottla.spark.requests import GroupOffsets, Steps
from ottla.spark.sink_client import default_sink_id, former_default_sink_ids
from ottla.spark.slot_writer import PlainWriter, SlotWriter
from ottla.spark.staged import Staged
from ottla.spark.staging import StagingWriter

log = logging.getLogger("ottla.spark")
_BATCH = "streaming.sql.batchId"
#: Spark sets it in the session that each streaming query has of its own, and nobody else does.
_OF_A_QUERY = "spark.sql.streaming.internal.stateStore.partitions"
#: Sinks and checkpoints of which the log has already said, in this process, that the checkpoint cannot be read.
_SAID: set[tuple[str, str | None]] = set()


class SlotMessage(WriterCommitMessage):  # type: ignore[misc]
    """What a task tells the driver. A task of an at-least-once write has no report."""

    def __init__(self, report: SlotReport | None, rows: int) -> None:
        self.report, self.rows = report, rows
        #: Where the query's checkpoint is, if this task knows it. The driver's options may not say it.
        self.checkpoint: str | None = None


class KafkaSink:
    """What batch and streaming writes share. Spark pickles it, so it holds options and the claim, and no connection."""

    def __init__(self, options: SinkOptions, schema: Any, *, on_driver: bool, query: str | None = None) -> None:
        """With `on_driver` this is the driver before the tasks of a batch: it claims the sink.

        `query` is the query's id where it is not in a checkpoint.
        """
        from pyspark.sql.pandas.types import to_arrow_schema

        self.options = options
        check_writable(to_arrow_schema(schema, timezone="UTC"), options.topic)
        self.claim: Claim | None = None
        #: How long brokers have to answer an abort: who stops a query waits for it. The next claim does the rest.
        self.abort_within_s = 5.0
        self._has_default_id = options.sink_id == default_sink_id(options.query_name, options.checkpoint)
        if on_driver and options.semantics is Semantics.EXACTLY_ONCE:
            given, claim = options, self._claimed(query)
            if claim.recovered or claim.aborted:
                log.warning(
                    "sink %s: recovered %d slots that were decided, aborted %d open transactions",
                    claim.sink,
                    claim.recovered,
                    claim.aborted,
                )
            self.claim = claim
            leave_claim(given, claim.sink, claim.driver)
            faults.reach("sink.claimed")
        if on_driver:
            worker_processes.rest("claim")

    def _claimed(self, query: str | None) -> Claim:
        """The claim of the sink. If it was given no id, and is known under one of a version before, of that one."""
        options = self.options
        known = (options.sink_id, *former_default_sink_ids(options.query_name, options.checkpoint))
        if not self._has_default_id or len(set(known)) == 1:
            return self._claim(options.sink_id)
        query = query or query_of(options.checkpoint)
        memory, key = link(options.client).memory, ("sink in use", options.ledger_topic, known, query)
        last: str | None = memory.get(key)
        if last is not None:
            # What the claim has read tells as much as the question before it would.
            claim = self._claim(last)
            ledger = self._ledger.kept()
            if ledger is not None and in_use(ledger, known, query) == last:
                return claim
        memory[key] = str(self._drive(sink_in_use(known, query), None))
        return self._claim(memory[key])

    def _claim(self, sink: str) -> Claim:
        self.options = replace(self.options, sink_id=sink)
        claim: Claim = self._drive(claim_sink(sink), None)
        return claim

    def write(self, key: BatchKey, slot: int, batches: Iterator[Any], attempt: int | None = None) -> SlotMessage:
        """In a task: write one slot. `attempt` is its number if another attempt may run beside it.

        Raises PipelineError.
        """
        with told(self.options, slot), worker_processes.ends_in_order():
            if self.options.semantics is Semantics.AT_LEAST_ONCE:
                message = SlotMessage(None, PlainWriter(self.options).write(batches, key.batch))
            else:
                message = self._write(key, slot, batches, attempt)
        worker_processes.rest("write")
        return message

    def _write(self, key: BatchKey, slot: int, batches: Iterator[Any], attempt: int | None) -> SlotMessage:
        claim = self.claim
        require(claim is not None, "the sink was claimed before its tasks started")
        assert claim is not None
        if slot >= MOST_SLOTS:
            raise ConfigError(
                f"sink {claim.sink}: the write has more than {MOST_SLOTS} Spark partitions. Each is a slot, and one "
                "decision has to name all of them: coalesce the rows before they are written"
            )
        claim = claim.only_for(key.query)
        options = self.options
        by_option = options.batch_id is not None and options.checkpoint is None
        task, marker = slot_task(claim, key, slot, options.topic, by_option=by_option)
        if task is SlotTask.WRITE:
            return self._write_slot(claim, key, slot, batches, attempt)
        digest = RowDigest()
        for batch in batches:
            if marker is not None:
                digest.update(batch)
        if marker is not None:
            check_same(claim, marker, digest.rows, digest.hex())
        whose = claim.reported_by(slot)
        return SlotMessage(SlotReport(whose, key, slot, task, digest.rows, digest.hex(), None), digest.rows)

    def _write_slot(
        self, claim: Claim, key: BatchKey, slot: int, batches: Iterator[Any], attempt: int | None
    ) -> SlotMessage:
        digest = RowDigest()
        ahead = self._begun_ahead(slot, attempt)
        writer: SlotWriter | StagingWriter | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if writer is None:
                    writer = ahead or self._writer(slot, attempt)
                    writer.begin()
                    faults.reach("sink.write-begun", key.batch)
                digest.update(batch)
                writer.send(batch)
                faults.reach("sink.mid-write", key.batch)
            written: Handle | Staged | None = None
            if writer is not None:
                written = writer.finish(SlotMarker(key, slot, digest.rows, digest.hex()))
                faults.reach("sink.flushed", key.batch)
            elif ahead is not None:
                ahead.give_up()
        except BaseException:
            if (begun := writer or ahead) is not None:
                begun.give_up()
            raise
        self._remember_rows(digest.rows)
        report = SlotReport(
            claim.reported_by(slot),
            key,
            slot,
            SlotTask.WRITE,
            digest.rows,
            digest.hex(),
            written if isinstance(written, Handle) else None,
            speculation=attempt is not None,
            staged=written if isinstance(written, Staged) else None,
        )
        return SlotMessage(report, digest.rows)

    def _writer(self, slot: int, attempt: int | None) -> SlotWriter | StagingWriter:
        if self.options.atomicity is Atomicity.BATCH:
            return StagingWriter(self.options, slot)
        return SlotWriter(self.options, slot, attempt or 0)

    def _begun_ahead(self, slot: int, attempt: int | None) -> SlotWriter | None:
        """The slot's transaction, which begins while Spark makes the rows. Where the slot before had none, this one may
        have none either, and no transactional id is used for it."""
        if self.options.atomicity is Atomicity.BATCH or not self._memory.get(self._had_rows):
            return None
        return SlotWriter(self.options, slot, attempt or 0)

    def _remember_rows(self, rows: int) -> None:
        self._memory[self._had_rows] = rows > 0

    @property
    def _memory(self) -> dict[Any, Any]:
        return link(self.options.client).memory

    @property
    def _had_rows(self) -> tuple[str, str]:
        return "the slot before had rows", self.options.sink_id

    def commit(self, messages: Sequence[Any], batch: int | None) -> None:
        """On the driver: decide the batch. Safe to repeat. `batch` is None for a batch write."""
        self._commit(messages, batch)
        worker_processes.rest("commit")

    def _commit(self, messages: Sequence[Any], batch: int | None) -> None:
        reports = _reports(messages)
        if self.options.semantics is Semantics.AT_LEAST_ONCE:
            self._say_no_offsets("semantics=at-least-once commits none; say commitOffsets=source on the source")
        if not reports:
            return
        require(len(reports) == len(messages), "every slot reports to commit()")
        claim, key = claim_of(reports), reports[0].key
        if batch is not None and self._has_default_id and any(each.task is not SlotTask.SKIP for each in reports):
            self._drive(check_not_moved(claim, key), key.batch)
        self.options = replace(self.options, sink_id=claim.sink)
        found = self._planned(messages[0].checkpoint or self.options.checkpoint, batch, reports)
        # A foreachBatch may write elsewhere, too. Only who names the group here says that it follows this write.
        offsets = self._of_this_cluster(found) if batch is not None or self.options.group_id is not None else {}
        self._drive(commit_batch(reports, offsets, Plan(found.digest, self.options.topic)), key.batch)
        leave_note(key.query, _note(reports))

    def _of_this_cluster(self, found: Planned) -> GroupOffsets:
        """The offsets that can be committed with the output: a transaction is of one cluster."""
        if not found.offsets:
            return {}
        kafka, names = link(self.options.client), {topic for topics in found.offsets.values() for topic in topics}
        with told(self.options):
            here = kafka.run(kafka.topic_ids(names))
        offsets, others = of_this_cluster(found.offsets, found.ids, here)
        if others:
            self._say_once(
                ",".join(others),
                f"no offsets of {', '.join(others)} are committed for {', '.join(found.offsets)}: the cluster that the "
                "sink writes to does not have what was read",
            )
        return offsets

    def _planned(self, checkpoint: str | None, batch: int | None, reports: Sequence[SlotReport]) -> Planned:
        """What the checkpoint says of the batch. Raises PipelineError if the batch needs that and it cannot be read."""
        options, key = self.options, reports[0].key
        decided = committed_plan(claim_of(reports), key).offsets is not None
        if key.query == UNNAMED:
            checkpoint = None  # it has none; the option may be there to name the sink
        if batch is None and checkpoint is None:
            found = Planned(None, {}, "checkpointLocation is not an option of the writer")
            self._say_no_offsets("a batch write without a checkpoint has none; leave it out")
        else:
            found = planned(checkpoint, key.batch, options.group_id, needed=decided)
        if found.digest is not None:
            if found.why:
                self._say_once(checkpoint, f"No offsets of a kafka.group.id are committed: {found.why}")
            return found
        if decided:
            raise PipelineError(
                f"sink {options.sink_id}: batch {key.batch} of query {key.query} is committed, in whole or in part, "
                f"but whether this is its replay cannot be told, for the checkpoint cannot be read: {found.why}"
            )
        if any(report.task is not SlotTask.SKIP for report in reports):
            if batch is not None or checkpoint is not None:
                self._say_once(
                    checkpoint,
                    f"the checkpoint cannot be read ({found.why}). No offsets of a kafka.group.id are committed, and a "
                    "batch that is planned anew under the number of a committed one cannot be told from its replay",
                )
            return found
        log.warning(
            "sink %s: batch %d of query %s is committed already, skipped", options.sink_id, key.batch, key.query
        )
        return found

    def _say_no_offsets(self, why: str) -> None:
        if self.options.group_id is not None:
            self._say_once(None, f"No offsets of kafka.group.id {self.options.group_id} are committed: {why}")

    def _say_once(self, checkpoint: str | None, what: str) -> None:
        """Log `what` once for each sink, checkpoint and process."""
        sink = self.options.sink_id or f"of {self.options.topic or 'topics'}"
        if (sink, checkpoint) not in _SAID:
            _SAID.add((sink, checkpoint))
            log.warning("sink %s: %s", sink, what)

    def abort(self, messages: Sequence[Any]) -> None:
        """On the driver: abort what a batch has left open, unless the batch is decided. Recovery does the rest.

        A message is None if its task has not ended, or Spark has lost what it said.
        """
        steps = self._aborting(_reports(messages), {slot for slot, each in enumerate(messages) if each is None})
        if steps is not None:
            try:
                self._drive(steps, None, within_s=self.abort_within_s)
            except OttlaError as error:
                log.warning("sink %s: the batch's transactions stay open for now: %s", self.options.sink_id, error)

    def _aborting(self, reports: Sequence[SlotReport], unfinished: set[int]) -> Steps | None:
        options = self.options
        if options.semantics is Semantics.AT_LEAST_ONCE:
            return None
        if not unfinished or options.atomicity is Atomicity.BATCH:  # its tasks open no transactions
            if not reports:
                return None
            self.options = replace(options, sink_id=reports[0].claim.sink)
            return abort_batch(reports)
        claim = reports[0].claim if reports else self.claim
        left = claim_left(options) if claim is None else (claim.sink, claim.driver)
        if left is None:
            log.warning("sink %s: what its tasks have open stays so until the next start", options.sink_id)
            return None
        sink, driver = left
        self.options = replace(options, sink_id=sink)
        return abort_unfinished(sink, driver, unfinished)

    def _drive(self, steps: Steps, batch: int | None, *, within_s: float | None = None) -> Any:
        with told(self.options):
            return link(self.options.client).run(self._ledger.drive(steps, batch, within_s=within_s))

    @property
    def _ledger(self) -> LedgerKafka:
        options = self.options
        timeout_ms = int(str(options.client["transaction.timeout.ms"]))
        topic, replication = options.ledger_topic, options.ledger_replication
        return LedgerKafka(link(options.client), options.sink_id, topic, replication, timeout_ms)


def _reports(messages: Sequence[Any]) -> list[SlotReport]:
    return [message.report for message in messages if message is not None and message.report is not None]


def _note(reports: Sequence[SlotReport]) -> SinkNote:
    claim, written = claim_of(reports), [report for report in reports if report.task is SlotTask.WRITE]
    skipped = all(report.task is SlotTask.SKIP for report in reports)
    handles = sum(report.handle is not None for report in reports)
    return SinkNote(
        reports[0].key.batch,
        sum(report.rows for report in written),
        handles if skipped else handles + 1,
        claim.recovered,
        claim.aborted,
        skipped,
        claim.sink,
    )


def _attempt(context: Any) -> int | None:
    """The attempt's number, if Spark may run another beside it."""
    speculation = context.getLocalProperty("spark.speculation") or ""
    return context.attemptNumber() if speculation.lower() == "true" else None


class OttlaStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """A streaming write. The batch's identity is the query's id and the batch's number, the same after a restart."""

    def __init__(self, options: SinkOptions, schema: Any, *, on_driver: bool) -> None:
        self._sink = KafkaSink(options, schema, on_driver=on_driver)

    def write(self, iterator: Iterator[Any]) -> SlotMessage:
        """A task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        require(context is not None, "write() is called in a task")
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty(_BATCH)
        key = BatchKey(query, int(batch))
        message = self._sink.write(key, context.partitionId(), iterator, _attempt(context))
        options = self._sink.options
        session = context.getLocalProperty("spark.sql.streaming.checkpointLocation")
        message.checkpoint = checkpoint_of(options.checkpoint, session, options.query_name)
        return message

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """All tasks have succeeded."""
        self._sink.commit(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """A task, or commit(), has failed. The messages may lack even those of tasks that have finished."""
        self._sink.abort(messages)


class OttlaWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """A batch write: nothing is seen before the decision. With `queryId` and `batchId`, once over restarts."""

    def __init__(self, options: SinkOptions, schema: Any, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("mode overwrite: a topic cannot be overwritten; use mode append")
        self._sink = KafkaSink(options, schema, on_driver=True, query=options.query_id or UNNAMED)
        claim = self._sink.claim
        self._key = BatchKey(UNNAMED, 0)
        if options.query_id is not None:
            self._key = BatchKey(options.query_id, options.batch_id or 0)
        elif claim is not None:
            self._key = unnamed_batch(claim)
        if claim is not None:
            self._sink.claim = claim.only_for(self._key.query)  # the claim goes to every task

    def write(self, iterator: Iterator[Any]) -> SlotMessage:
        """A task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        require(context is not None, "write() is called in a task")
        self._refuse_a_replay(context)
        return self._sink.write(self._key, context.partitionId(), iterator, _attempt(context))

    def _refuse_a_replay(self, context: Any) -> None:
        """Raise ConfigError if a streaming query's replay would write these rows again. Only tasks know it."""
        options, query = self._sink.options, context.getLocalProperty("sql.streaming.queryId")
        if options.query_id is not None or options.semantics is not Semantics.EXACTLY_ONCE:
            return
        where = f"in batch {context.getLocalProperty(_BATCH)} of a streaming query ({query})"
        if query is None:
            # A thread of Python's own has nothing of the query's thread. But the rows have the session in which the
            # query runs, and that gives its settings to all tasks.
            if context.getLocalProperty(_OF_A_QUERY) is None:
                return
            where = "with the session of a streaming query, in a thread that does not tell which"
        raise ConfigError(
            f"sink {options.sink_id}: this is a batch write {where}. When Spark runs that batch again, its rows would "
            "be written twice. Write it by ottla.spark.pipeline.foreach_batch(options)(frame, batch_id), with the same "
            "options and a sink.id for each write; or give it queryId and batchId; or accept it with "
            "semantics=at-least-once"
        )

    def commit(self, messages: list[Any]) -> None:
        """All tasks have succeeded."""
        self._sink.commit(messages, None)

    def abort(self, messages: list[Any]) -> None:
        """A task, or commit(), has failed."""
        self._sink.abort(messages)

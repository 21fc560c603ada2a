"""The sink of `format("ottla")`: rows to Kafka topics, exactly once (the default) or at least once.

One task writes one slot, a transaction of its own that it leaves open; the driver decides over all of them. What is
asked of Kafka, and why it is right, is `ottla.spark.protocol`; here are the rows, and who calls what in Spark:

* On the driver, before each micro-batch, Spark makes the data source and the writer anew; then the sink is claimed,
  and what an earlier driver left is finished. The claim travels to the tasks inside the pickled writer.
* After the tasks Spark makes a writer once more, from a pickled data source and in another process, for `commit`. It
  has only the tasks' messages, so they carry the claim.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.base.errors import ConfigError, OttlaError
from ottla.base.require import require
from ottla.spark import faults
from ottla.spark.columns import RowDigest, check_writable
from ottla.spark.ledger import BatchKey, SlotMarker
from ottla.spark.ledger_io import LedgerKafka
from ottla.spark.link import link
from ottla.spark.options import Semantics, SinkOptions
from ottla.spark.pipeline import batch_offsets
from ottla.spark.protocol import (
    Claim,
    GroupOffsets,
    SlotReport,
    SlotTask,
    abort_batch,
    check_same,
    claim_sink,
    commit_batch,
    slot_task,
)
from ottla.spark.slot_writer import PlainWriter, SlotWriter

log = logging.getLogger("ottla.spark")


class SlotMessage(WriterCommitMessage):  # type: ignore[misc]
    """What a task tells the driver; without a report for at-least-once."""

    def __init__(self, report: SlotReport | None, rows: int) -> None:
        self.report, self.rows = report, rows


class KafkaSink:
    """What batch and streaming writes have in common. Pickled: it holds options and the claim, no connection."""

    def __init__(self, options: SinkOptions, schema: Any, *, on_driver: bool) -> None:
        """`on_driver`: before the tasks of a batch, when the sink is to be claimed."""
        from pyspark.sql.pandas.types import to_arrow_schema

        self.options = options
        check_writable(to_arrow_schema(schema, timezone="UTC"), options.topic)
        self.claim: Claim | None = None
        if on_driver and options.semantics is Semantics.EXACTLY_ONCE:
            claim: Claim = self._drive(claim_sink(options.sink_id), None)
            if claim.recovered or claim.aborted:
                log.warning(
                    "sink %s: recovered %d slots that were decided, aborted %d open transactions",
                    options.sink_id,
                    claim.recovered,
                    claim.aborted,
                )
            self.claim = claim
            faults.reach("sink.claimed")

    def write(self, key: BatchKey, slot: int, batches: Iterator[Any]) -> SlotMessage:
        """In a task: write one slot."""
        if self.options.semantics is Semantics.AT_LEAST_ONCE:
            return SlotMessage(None, PlainWriter(self.options).write(batches, key.batch))
        claim = self.claim
        require(claim is not None, "the sink was claimed before its tasks started")
        assert claim is not None
        task, marker = slot_task(claim, key, slot)
        if task is SlotTask.WRITE:
            return self._write_slot(claim, key, slot, batches)
        digest = RowDigest()
        for batch in batches:
            if marker is not None:
                digest.update(batch)
        if marker is not None:
            check_same(claim, marker, digest.rows, digest.hex())
        return SlotMessage(SlotReport(claim, key, slot, task, digest.rows, digest.hex(), None), digest.rows)

    def _write_slot(self, claim: Claim, key: BatchKey, slot: int, batches: Iterator[Any]) -> SlotMessage:
        digest = RowDigest()
        writer: SlotWriter | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if writer is None:
                    writer = SlotWriter(self.options, slot)
                    faults.reach("sink.write-begun", key.batch)
                digest.update(batch)
                writer.send(batch)
                faults.reach("sink.mid-write", key.batch)
            handle = None
            if writer is not None:
                handle = writer.finish(SlotMarker(key, slot, digest.rows, digest.hex()))
                faults.reach("sink.flushed", key.batch)
        except BaseException:
            if writer is not None:
                writer.give_up()
            raise
        report = SlotReport(claim, key, slot, SlotTask.WRITE, digest.rows, digest.hex(), handle)
        return SlotMessage(report, digest.rows)

    def commit(self, messages: Sequence[Any], batch: int | None) -> None:
        """On the driver: decide the batch. Safe to repeat."""
        reports = _reports(messages)
        if self.options.semantics is Semantics.AT_LEAST_ONCE or not reports:
            return
        require(len(reports) == len(messages), "every slot reports to commit()")
        offsets: GroupOffsets = {}
        if batch is not None and any(report.task is not SlotTask.SKIP for report in reports):
            offsets = batch_offsets(self.options.checkpoint, batch, self.options.group_id)
        self._drive(commit_batch(reports, offsets), reports[0].key.batch)

    def abort(self, messages: Sequence[Any]) -> None:
        """On the driver: release what a batch has left open, unless it is decided. Recovery does the rest."""
        reports = _reports(messages)
        if reports:
            try:
                self._drive(abort_batch(reports), None)
            except OttlaError as error:
                log.warning("sink %s: the batch's transactions stay open for now: %s", self.options.sink_id, error)

    def _drive(self, steps: Any, batch: int | None) -> Any:
        options = self.options
        kafka = link(options.client)
        timeout_ms = int(str(options.client["transaction.timeout.ms"]))
        ledger = LedgerKafka(kafka, options.sink_id, options.ledger_topic, options.ledger_replication, timeout_ms)
        return kafka.run(ledger.drive(steps, batch))


def _reports(messages: Sequence[Any]) -> list[SlotReport]:
    return [message.report for message in messages if message is not None and message.report is not None]


class OttlaStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """A streaming write. The batch's identity is the query's id and the batch's number, the same after a restart."""

    def __init__(self, options: SinkOptions, schema: Any, overwrite: bool, *, on_driver: bool) -> None:
        if overwrite:
            raise ConfigError("a topic cannot be overwritten: use output mode append, or foreachBatch")
        self._sink = KafkaSink(options, schema, on_driver=on_driver)

    def write(self, iterator: Iterator[Any]) -> SlotMessage:
        """A task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        require(context is not None, "write() is called in a task")
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return self._sink.write(BatchKey(query, int(batch)), context.partitionId(), iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """All tasks have succeeded."""
        self._sink.commit(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """A task, or commit(), has failed. Not even what finished need be among the messages."""
        self._sink.abort(messages)


class OttlaWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """A batch write: nothing is seen before the decision. With `queryId` and `batchId`, once over restarts."""

    def __init__(self, options: SinkOptions, schema: Any, overwrite: bool, key: BatchKey) -> None:
        if overwrite:
            raise ConfigError("a topic cannot be overwritten: use mode append")
        self._key = key
        self._sink = KafkaSink(options, schema, on_driver=True)

    def write(self, iterator: Iterator[Any]) -> SlotMessage:
        """A task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        require(context is not None, "write() is called in a task")
        return self._sink.write(self._key, context.partitionId(), iterator)

    def commit(self, messages: list[Any]) -> None:
        """All tasks have succeeded."""
        self._sink.commit(messages, None)

    def abort(self, messages: list[Any]) -> None:
        """A task, or commit(), has failed."""
        self._sink.abort(messages)

"""The sink without Spark: its drivers and tasks are called as Spark would, against a real broker, and crash at will."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla import Admin, Consumer, NewTopic
from ottla.base.types import TopicPartition
from ottla.spark.ids import PREFIX
from ottla.spark.ledger import BatchKey, Plan
from ottla.spark.ledger_io import LedgerKafka
from ottla.spark.link import link
from ottla.spark.options import sink_options
from ottla.spark.plan import SourceOffset
from ottla.spark.protocol import commit_batch
from ottla.spark.requests import EndTransactions
from ottla.spark.sink import KafkaSink, SlotMessage

SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
PARTITIONS = 3
QUERY = "9f6d"


class SinkWorld(NamedTuple):
    """A sink on a topic of its own."""

    bootstrap: str
    topic: str
    checkpoint: Path

    @classmethod
    def create(cls, bootstrap: str, topic: str, checkpoint: Path) -> "SinkWorld":
        """Make the topic."""
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        return cls(bootstrap, topic, checkpoint)

    @property
    def sink(self) -> str:
        """The sink's id."""
        return f"{self.topic}.sink"

    def driver(self, **options: str) -> KafkaSink:
        """A driver about to run a batch: claims the sink, recovers what an earlier one left."""
        return self._sink(on_driver=True, **options)

    def committer(self, **options: str) -> KafkaSink:
        """Spark's other driver process, which knows nothing but the messages."""
        return self._sink(on_driver=False, **options)

    def _sink(self, *, on_driver: bool, **options: str) -> KafkaSink:
        given = {
            "kafka.bootstrap.servers": self.bootstrap,
            "topic": self.topic,
            "sink.id": self.sink,
            "checkpointlocation": str(self.checkpoint),
            **options,
        }
        return KafkaSink(sink_options(given), SCHEMA, on_driver=on_driver)

    def task(
        self,
        driver: KafkaSink,
        batch: int,
        slot: int,
        words: str,
        attempt: int | None = None,
        query: str = QUERY,
    ) -> SlotMessage:
        """An attempt at a slot, to its end; `attempt` is its number with Spark's speculation."""
        values = [word.encode() for word in words.split()]
        rows = pa.RecordBatch.from_pydict(
            {"key": pa.array([None] * len(values), pa.binary()), "value": pa.array(values, pa.binary())}
        )
        return driver.write(BatchKey(query, batch), slot, iter([rows.slice(0, 1), rows.slice(1)]), attempt)

    def batch(self, driver: KafkaSink, batch: int, *slots: str) -> list[Any]:
        """All tasks of a batch."""
        return [self.task(driver, batch, slot, words) for slot, words in enumerate(slots)]

    def plan(self, batch: int, end: int, group: str) -> None:
        """What Spark writes into the checkpoint before the batch runs."""
        offset = SourceOffset({}, {TopicPartition(self.topic, 0): end}, group)
        text = "\n".join(["v1", "{}", json.dumps(offset.to_json())])
        (self.checkpoint / "offsets" / str(batch)).write_text(text)

    def output(self) -> Counter[str]:
        """The words that a read_committed consumer sees."""
        config = {
            "bootstrap.servers": self.bootstrap,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
        found: Counter[str] = Counter()
        self.settle()
        with Consumer(config) as consumer:
            tps = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
            consumer.assign(tps)
            ends = consumer.end_offsets(tps)
            while any(consumer.position(tp) < ends[tp] for tp in tps):
                found.update(bytes(record.value or b"").decode() for record in consumer.poll(0.1))
        return found

    def live_keys(self, ledger: str) -> set[bytes]:
        """The keys in the topic `ledger` that compaction keeps."""
        config = {"bootstrap.servers": self.bootstrap, "isolation.level": "read_committed"}
        live: dict[bytes, object] = {}
        self.settle()
        with Consumer(config) as consumer:
            tp = TopicPartition(ledger, 0)
            consumer.assign([tp])
            consumer.seek_to_beginning([tp])
            end = consumer.end_offsets([tp])[tp]
            while consumer.position(tp) < end:
                live |= {bytes(record.key or b""): record.value for record in consumer.poll(0.1)}
        return {key for key, value in live.items() if value is not None}

    def open_transactions(self) -> list[str]:
        """Ids of the sink's transactions that nobody has ended."""
        return self._transactions("Ongoing")

    def settle(self) -> None:
        """Wait until the markers of all ended transactions are written; an end is answered before that."""
        while self._transactions("PrepareCommit", "PrepareAbort"):
            pass

    def _transactions(self, *states: str) -> list[str]:
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            listed = admin.list_transactions(f"{PREFIX}{self.sink.replace('.', '[.]')}/.*", states)
        return [transaction.transactional_id for transaction in listed]

    def group_offset(self, group: str) -> int:
        """The group's committed offset of the source."""
        self.settle()
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            return admin.list_group_offsets(group)[TopicPartition(self.topic, 0)].offset


def commit_until(sink: KafkaSink, messages: list[Any], stop: Callable[[Any], bool], plan: Plan | None = None) -> None:
    """A driver that dies in commit(), before the request for which `stop` is true."""

    def dying() -> Any:
        steps = commit_batch([message.report for message in messages], {}, plan or Plan())
        answer = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration:
                return
            if stop(request):
                return
            answer = yield request

    kafka = link(sink.options.client)
    ledger = LedgerKafka(kafka, sink.options.sink_id, sink.options.ledger_topic, -1, 60_000)
    kafka.run(ledger.drive(dying()))


def ends_slots(request: Any) -> bool:
    """Whether a driver would end the transactions of its slots."""
    return isinstance(request, EndTransactions) and not ends_driver(request)


def ends_driver(request: Any) -> bool:
    """Whether a driver would end its own transaction: the decision."""
    return isinstance(request, EndTransactions) and request.handles[0].transactional_id.endswith("/driver")

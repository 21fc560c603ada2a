"""What goes wrong in a task, or in the driver, is told in the words of the sink."""

from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from ottla import Admin
from ottla.client.errors import (
    AbortableTransactionError,
    BufferExhaustedError,
    FatalProducerError,
    KafkaError,
    RequestTimeoutError,
)
from ottla.spark.client_errors import told
from ottla.spark.errors import PipelineError, RowError, SinkFencedError, UnknownOutcomeError
from ottla.spark.ids import slot_id
from ottla.spark.ledger import BatchKey
from ottla.spark.options import sink_options
from ottla.spark.sink import KafkaSink
from ottla.wire.errors import ErrorCode
from tests.spark.sink_world import SinkWorld

OPTIONS = sink_options({"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t", "sink.id": "words"})
SCHEMA = StructType(
    [StructField("value", BinaryType()), StructField("partition", IntegerType()), StructField("topic", StringType())]
)
WAYS: tuple[dict[str, str], ...] = ({}, {"atomicity": "batch"}, {"semantics": "at-least-once"})


def caused(outer: type[Exception], code: ErrorCode) -> Exception:
    error = outer("the transaction failed, call abort_transaction()")
    error.__cause__ = KafkaError.of(code, "t-0")
    return error


@pytest.mark.parametrize(
    ("happened", "kind", "said"),
    [
        (caused(AbortableTransactionError, ErrorCode.INVALID_PRODUCER_EPOCH), SinkFencedError, "timeout.ms=600000"),
        (caused(FatalProducerError, ErrorCode.PRODUCER_FENCED), SinkFencedError, "slot 3 of sink words was taken over"),
        (
            caused(AbortableTransactionError, ErrorCode.MESSAGE_TOO_LARGE),
            RowError,
            "a row is too large: raise max.mess",
        ),
        (KafkaError.of(ErrorCode.INVALID_TOPIC_EXCEPTION), RowError, "the topic of a row cannot be written to"),
        (RequestTimeoutError("no answer within 60 s"), UnknownOutcomeError, "no answer within 60 s. Start the query"),
        (BufferExhaustedError("full"), UnknownOutcomeError, "slot 3 of sink words: full. Start the query again"),
        (caused(FatalProducerError, ErrorCode.TOPIC_AUTHORIZATION_FAILED), PipelineError, "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_s2_what_the_client_says_is_told_in_the_words_of_the_sink(
    happened: Exception, kind: type[Exception], said: str
) -> None:
    with pytest.raises(PipelineError) as caught, told(OPTIONS, 3):
        raise happened
    assert type(caught.value) is kind
    assert said in str(caught.value)
    assert "abort_transaction" not in f"{caught.value}{caught.value.__cause__}"


def rows(topic: str, value: bytes, partition: int) -> pa.RecordBatch:
    columns = {"value": pa.array([value], pa.binary()), "partition": pa.array([partition], pa.int32())}
    return pa.RecordBatch.from_pydict(columns | {"topic": pa.array([topic])})


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    ("topic", "value", "partition", "why"),
    [
        ("OUT", b"x" * 2_000_000, 0, "a row is too large"),
        ("OUT", b"x", 99, "the topic or partition of a row is not there .*partitions 0 to 2, not 99"),
        ("a b", b"x", 0, "the topic of a row cannot be written to"),
        ("__consumer_offsets", b"x", 0, "the topic of a row cannot be written to"),
    ],
)
def test_s2_a_row_that_cannot_be_written_is_told(
    world: SinkWorld, way: dict[str, str], topic: str, value: bytes, partition: int, why: str
) -> None:
    given = {"kafka.bootstrap.servers": world.bootstrap, "sink.id": world.sink, **way}
    batch = rows(world.topic if topic == "OUT" else topic, value, partition)
    driver = KafkaSink(sink_options(given), SCHEMA, on_driver=True)
    with pytest.raises(RowError, match=why) as caught:
        message = driver.write(BatchKey("q", 0), 0, iter([batch]))
        KafkaSink(sink_options(given), SCHEMA, on_driver=False).commit([message], None)
    assert "abort_transaction" not in f"{caught.value}{caught.value.__cause__}"


def test_s2_a_task_whose_slot_another_driver_has_taken_over_is_told_so(world: SinkWorld) -> None:
    driver = world.driver()

    def batches() -> Any:
        yield pa.RecordBatch.from_pydict({"value": pa.array([b"a"], pa.binary())})
        with Admin({"bootstrap.servers": world.bootstrap}) as admin:
            admin.fence_producers([slot_id(world.sink, 0)])
        yield pa.RecordBatch.from_pydict({"value": pa.array([b"b"], pa.binary())})

    with pytest.raises(SinkFencedError, match=f"slot 0 of sink {world.sink} was taken over by another query"):
        driver.write(BatchKey("q", 0), 0, batches())

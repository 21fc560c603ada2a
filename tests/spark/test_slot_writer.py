"""Where rows go, and what is left when a slot or a writer comes to an early end."""

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa

from ottla.spark.errors import RowError
from ottla.spark.ledger import BatchKey
from ottla.spark.link import link
from ottla.spark.options import SinkOptions, sink_options
from ottla.spark.slot_writer import PlainWriter, rows_by_topic
from tests.spark.sink_world import SinkWorld

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def rows(*topics: str | None) -> pa.RecordBatch:
    values = [str(at).encode() for at in range(len(topics))]
    return pa.RecordBatch.from_pydict(
        {"value": pa.array(values, pa.binary()), "topic": pa.array(list(topics), pa.string())}
    )


def divided(options: SinkOptions, batch: pa.RecordBatch) -> dict[str, list[bytes]]:
    return {topic: part.column("value").to_pylist() for topic, part in rows_by_topic(options, batch)}


def test_s4_rows_go_to_the_topic_that_they_name() -> None:
    options = sink_options({**SERVERS, "sink.id": "s"})
    assert divided(options, rows("a", "b", "a")) == {"a": [b"0", b"2"], "b": [b"1"]}


def test_s4_rows_of_one_topic_are_not_copied() -> None:
    batch = rows("a", "a")
    ((_, found),) = rows_by_topic(sink_options({**SERVERS, "sink.id": "s"}), batch)
    assert [each.address for each in found.column("value").buffers()[1:]] == [
        each.address for each in batch.column("value").buffers()[1:]
    ]


def test_s4_the_option_overrides_the_column() -> None:
    options = sink_options({**SERVERS, "sink.id": "s", "topic": "c"})
    assert divided(options, rows("a", None, "__ottla_ledger")) == {"c": [b"0", b"1", b"2"]}


def test_s4_what_is_no_column_of_the_sink_is_passed_over_and_headers_are_written_whatever_is_said() -> None:
    """As in Spark's connector: rows of a source can be written as they are."""
    options = sink_options({**SERVERS, "sink.id": "s", "topic": "c", "includeHeaders": "false"})
    columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    batch = pa.RecordBatch.from_pydict({name: pa.array([None], pa.binary()) for name in columns})
    ((_, written),) = rows_by_topic(options, batch)
    assert set(written.schema.names) == {"key", "value", "partition", "headers"}


@pytest.mark.parametrize("semantics", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize(
    ("topic", "why"),
    [
        (None, "a row has no topic"),
        ("__ottla_ledger", "a row has the topic __ottla_ledger, which is a ledger"),
        ("__ottla_of_others", "a row has the topic __ottla_of_others, which is a ledger"),
        ("notes", "a row has the topic notes, which is a ledger"),
    ],
)
def test_s2_a_row_that_has_no_topic_or_would_spoil_a_ledger_is_refused(
    topic: str | None, why: str, semantics: str
) -> None:
    options = sink_options({**SERVERS, "sink.id": "s", "ledger.topic": "notes", "semantics": semantics})
    with pytest.raises(RowError, match=why):
        divided(options, rows("a", topic))


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([[], None, [{"key": "h", "value": None}], [{"key": None, "value": b"1"}]], "a header without a key"),
        ([None, [{"key": "h", "value": b"1"}, None]], "a null in the place of a header"),
    ],
)
def test_s4_a_header_that_is_none_or_has_no_key_is_told(headers: list[object], why: str) -> None:
    column = pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"a"] * len(headers), pa.binary()), "headers": column})
    options = sink_options({**SERVERS, "sink.id": "s", "topic": "c"})
    with pytest.raises(RowError, match=why):
        divided(options, batch)
    assert divided(options, batch.slice(0, 1)) == {"c": [b"a"]}  # what is not in the slice is not looked at


# what a fault leaves

_FAULT = ZeroDivisionError("nobody expects this")


def value(text: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array([text.encode()], pa.binary())})


def test_s2_an_at_least_once_writer_whose_producer_a_fault_has_ended_gets_a_new_one(world: SinkWorld) -> None:
    given = {"kafka.bootstrap.servers": world.bootstrap, "topic": world.topic, "semantics": "at-least-once"}
    options = sink_options({**given, "kafka.client.id": f"plain of {world.topic}"})
    first = PlainWriter(options)
    assert first.write(iter([value("a")]), 0) == 1

    async def crash() -> None:
        first._producer._producer._supervisor.crash(_FAULT)

    first._producer._thread.run(crash())
    second = PlainWriter(options)
    assert second.write(iter([value("b")]), 1) == 1
    assert PlainWriter(options)._producer is second._producer
    second._producer.close()
    third = PlainWriter(options)
    assert third.write(iter([value("c")]), 2) == 1
    third._producer.close()
    assert world.output() == {"a": 1, "b": 1, "c": 1}


def test_s2_why_a_slot_failed_is_said_although_its_transaction_cannot_be_given_up(
    world: SinkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    driver = world.driver(**{"kafka.client.id": f"slot of {world.topic}"})

    def batches() -> Iterator[pa.RecordBatch]:
        yield value("a")
        link(driver.options.client).shut()
        raise _FAULT

    with pytest.raises(ZeroDivisionError):
        driver.write(BatchKey("q", 0), 0, batches())
    (said,) = [record.getMessage() for record in caplog.records if record.name == "ottla.spark"]
    assert "stays open for now: the client is closed" in said

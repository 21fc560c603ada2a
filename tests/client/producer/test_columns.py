"""Which rows of a table go to which partition, and how many go together."""

import asyncio

import pytest

from ottla import AbortableTransactionError, Admin, NewTopic, RecordTooLargeError
from ottla.client.core.producer.batch import ProducerBatch
from ottla.client.producer.producer import AsyncProducer
from ottla.testing import Broker
from tests.client.conftest import Watchdog
from tests.client.journeys import PATIENCE_S, fresh, read_all
from tests.client.scripted_broker import ScriptedBroker
from tests.counted_calls import calls

pa = pytest.importorskip("pyarrow")

from ottla.client.producer.columns import split_by_partition  # noqa: E402


def test_rows_that_go_to_one_partition_are_not_copied() -> None:
    values = pa.array([b"a", b"b"])
    for rows, partition in (
        (pa.RecordBatch.from_pydict({"value": values}), None),
        (pa.RecordBatch.from_pydict({"value": values, "key": pa.array([b"k", b"l"])}), 1),
        (pa.RecordBatch.from_pydict({"value": values, "partition": pa.array([2, 2], pa.int32())}), 2),
    ):
        ((number, found),) = split_by_partition(rows, None, lambda _: 1)
        assert number == partition
        assert found is rows


def test_rows_keep_their_order_in_each_partition() -> None:
    keys, wanted = pa.array([b"a", b"b", None, b"a", b"b"]), pa.array([None, None, None, 7, None], pa.int32())
    rows = pa.RecordBatch.from_pydict(
        {"key": keys, "value": pa.array([b"%d" % n for n in range(5)]), "partition": wanted}
    )
    found = {
        number: part.column("value").to_pylist()
        for number, part in split_by_partition(rows, None, {b"a": 0, b"b": 1}.get)
    }
    assert found == {0: [b"0"], 1: [b"1", b"4"], None: [b"2"], 7: [b"3"]}


def test_of_a_topic_that_takes_only_smaller_batches_a_producer_learns_it_from_the_first() -> None:
    values = [b"%0100d" % at for at in range(9_000)]

    async def send(servers: str, topic: str, times: int) -> None:
        async with AsyncProducer({"bootstrap.servers": servers}) as producer:
            for _ in range(times):
                await producer.send_arrow(topic, pa.record_batch({"value": values}))
                await producer.flush(PATIENCE_S)

    def splits(servers: str, times: int) -> int:
        topic = fresh("small")
        with Admin({"bootstrap.servers": servers}) as admin:
            admin.create_topics([NewTopic(topic, 1, 1, {"max.message.bytes": "300000"})])
        made = calls(lambda: asyncio.run(send(servers, topic, times)), ProducerBatch.split.__code__)
        assert [record.value for record in read_all(servers, topic)] == values * times
        return made

    with Broker() as broker:
        assert splits(broker.bootstrap_servers, 1) == splits(broker.bootstrap_servers, 3) == 2


async def test_a_row_above_max_request_size_is_refused_and_fails_its_transaction(watchdog: Watchdog) -> None:
    """As `send` does. Rows that are together above it are only more requests."""
    config: dict[str, object] = {"transactional.id": "id", "max.request.size": 1_000}
    headers = pa.array([[], [("h", b"x" * 1_000)]], pa.map_(pa.string(), pa.binary()))
    headers = headers.cast(pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])))
    too_large = [
        {"value": pa.array([b"small", b"x" * 1_000])},
        {"value": pa.array([None, "x" * 500]), "key": pa.array([None, b"k" * 500])},
        {"value": pa.array([b"a", b"b"]), "headers": headers},
    ]
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer(config) as producer:
        await producer.init_transactions()
        for columns in too_large:
            await producer.begin_transaction()
            with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
                await producer.send_arrow("t", pa.record_batch(columns))
            with pytest.raises(AbortableTransactionError):
                await producer.commit_transaction()
            await producer.abort_transaction()
        await producer.begin_transaction()
        many = [b"x" * 500] * 10
        await producer.send_arrow("t", pa.table({"value": pa.chunked_array([many[:5], many[5:]])}))
        await producer.commit_transaction()
        assert [value for value in broker.kafka.log("t").values() if value] == many
        await producer.begin_transaction()
        apart = {"key": pa.array([b"k" * 600, None]), "value": pa.array([None, b"v" * 600])}
        few = pa.array([[("h", b"x" * 300)], [("h", b"x" * 300)]], pa.map_(pa.string(), pa.binary())).cast(headers.type)
        for columns in (apart, {"value": pa.array([b"v" * 500, b"w"]), "headers": few}):
            await producer.send_arrow("t", pa.record_batch(columns))
        await producer.commit_transaction()

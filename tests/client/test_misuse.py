"""What users do wrong, or in the middle of something, on our own broker: clear errors, nothing lost, no hang."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from ottla import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from ottla.base.errors import ConfigError
from ottla.client.errors import (
    AbortableTransactionError,
    IllegalStateError,
    KafkaError,
    OffsetOutOfRangeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from ottla.testing import Broker
from tests.client.journeys import PATIENCE_S, fresh, make_topic, poll_until, read_all


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def producer(servers: str) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": servers}) as made:
        yield made


def test_headers_may_come_from_a_generator(servers: str, producer: Producer) -> None:
    topic = make_topic(servers)
    for _ in range(2):  # one that begins a batch, one that joins it
        producer.send(topic, b"v", headers=((name, b"1") for name in "ab"))
    producer.flush(PATIENCE_S)
    assert [record.headers for record in read_all(servers, topic)] == [(("a", b"1"), ("b", b"1"))] * 2


def test_c2_a_serializer_has_to_return_bytes(servers: str) -> None:
    topic = make_topic(servers)
    with Producer({"bootstrap.servers": servers, "value.serializer": lambda topic, value: value}) as producer:
        with pytest.raises(SerializationError, match=rf"topic {topic}: the value.serializer returned a str, not bytes"):
            producer.send(topic, "text")
        producer.send(topic, bytearray(b"taken")).result(PATIENCE_S)


def test_poll_arrow_of_a_paused_partition_waits_and_returns(servers: str, producer: Producer) -> None:
    pytest.importorskip("pyarrow")
    topic = make_topic(servers)
    tp = TopicPartition(topic, 0)
    for _ in range(10):
        producer.send(topic, b"v")
    producer.flush(PATIENCE_S)
    with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest", "max.poll.records": 1}) as consumer:
        consumer.assign([tp])
        assert len(consumer.poll(PATIENCE_S)) == 1
        consumer.pause([tp])
        assert consumer.poll_arrow(0.01) == {}
        consumer.resume([tp])
        assert consumer.poll_arrow(PATIENCE_S)[tp].num_rows == 9


def test_rows_without_key_and_value_are_refused(servers: str, producer: Producer) -> None:
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="rows need a column key or value to become records; there are valeu"):
        producer.send_arrow(make_topic(servers), pa.record_batch({"valeu": [b"v"]}))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"timestamp_ms": 1.5}, "timestamp_ms must be whole milliseconds since the epoch, not 1.5"),
        ({"timestamp_ms": "now"}, "timestamp_ms must be whole milliseconds since the epoch, not 'now'"),
        ({"timestamp_ms": -5}, "timestamp_ms must be from 0 to 9223372036854775807, not -5"),
        ({"timestamp_ms": 2**63}, "timestamp_ms must be from 0 to 9223372036854775807, not 9223372036854775808"),
        ({"partition": "0"}, "partition must be a whole number or None, not '0'"),
        ({"headers": [("a", 1)]}, r"a header must be a pair of str and bytes \(or None\), not \('a', 1\)"),
        ({"headers": [("a", b"1"), ("b",)]}, r"a header must be a pair .*, not \('b',\)"),
        ({"headers": {"a": b"x"}}, "a header must be a pair .*, not 'a'"),
        ({"headers": [(b"a", b"x")]}, "a header must be a pair .*, not"),
    ],
)
def test_a_record_that_cannot_be_one_is_named_and_spoils_nothing(
    servers: str, producer: Producer, arguments: dict[str, object], why: str
) -> None:
    topic = make_topic(servers)
    producer.send(topic, b"before")
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=f"a record for topic {topic}: {why}"):
            producer.send(topic, b"v", **arguments)  # type: ignore[arg-type]
    producer.send(topic, b"after")
    producer.flush(PATIENCE_S)
    assert [record.value for record in read_all(servers, topic)] == [b"before", b"after"]


def test_rows_for_a_partition_that_is_not_there_queue_nothing(servers: str, producer: Producer) -> None:
    pa = pytest.importorskip("pyarrow")
    topic = make_topic(servers, 2)
    rows = pa.record_batch({"value": [b"a", b"b"], "partition": pa.array([0, 7], pa.int32())})
    with pytest.raises(UnknownTopicOrPartitionError, match=f"topic {topic} has partitions 0 to 1, not 7"):
        producer.send_arrow(topic, rows)
    producer.flush(PATIENCE_S)
    assert read_all(servers, topic, 2) == []


def test_a_transaction_without_rows_that_were_refused_is_not_committed(servers: str) -> None:
    pa = pytest.importorskip("pyarrow")
    topic = make_topic(servers, 2)
    with Producer({"bootstrap.servers": servers, "transactional.id": fresh("rows")}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_arrow(topic, pa.record_batch({"value": [b"a"]}))
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.send_arrow(topic, pa.record_batch({"value": [b"b"]}), partition=99)
        with pytest.raises(AbortableTransactionError, match="call abort_transaction"):
            producer.commit_transaction()
        producer.abort_transaction()


def test_the_coordinators_topics_are_written_by_the_broker_alone(servers: str) -> None:
    config = {"bootstrap.servers": servers, "enable.idempotence": False}
    with Producer({**config, "enable.idempotence": True, "transactional.id": fresh("internal")}) as transactional:
        transactional.init_transactions()
    topic = "__transaction_state"
    with Producer(config) as producer, Admin({"bootstrap.servers": servers}) as admin:
        delivery = producer.send(topic, b"oops", key=b"k", partition=0)
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
            delivery.result(PATIENCE_S)
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
            admin.delete_records({TopicPartition(topic, 0): -1})


def test_a_closed_consumer_gives_no_records(servers: str, producer: Producer) -> None:
    topic = make_topic(servers)
    for _ in range(10):
        producer.send(topic, b"v")
    producer.flush(PATIENCE_S)
    with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest", "max.poll.records": 1}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert len(consumer.poll(PATIENCE_S)) == 1
    for _ in range(2):
        with pytest.raises(IllegalStateError, match="the consumer is closed"):
            consumer.poll(PATIENCE_S)
        with pytest.raises(IllegalStateError, match="the consumer is closed"):
            consumer.poll_arrow(PATIENCE_S)


async def test_a_closed_asyncio_consumer_gives_no_records(servers: str) -> None:
    consumer = AsyncConsumer({"bootstrap.servers": servers})
    consumer.assign([TopicPartition(await asyncio.to_thread(make_topic, servers), 0)])
    await consumer.close()
    with pytest.raises(IllegalStateError, match="the consumer is closed"):
        await consumer.poll(PATIENCE_S)


def test_a_consumer_is_polled_by_one_thread_at_a_time(servers: str) -> None:
    topic = make_topic(servers)
    heard: list[str] = []

    def poll_too() -> None:
        try:
            consumer.poll(0)
        except IllegalStateError as error:
            heard.append(str(error))

    def in_another_thread(_: list[TopicPartition]) -> None:
        thread = threading.Thread(target=poll_too)
        thread.start()
        thread.join()

    with Consumer({"bootstrap.servers": servers, "group.id": fresh("threads")}) as consumer:
        consumer.subscribe([topic], on_assigned=in_another_thread)
        poll_until(consumer, lambda: bool(heard))
    assert "which belongs to one thread at a time" in heard[0]


def test_o5_without_a_reset_policy_a_lost_position_is_told_until_the_user_seeks(
    servers: str, producer: Producer
) -> None:
    topic = make_topic(servers)
    tp = TopicPartition(topic, 0)
    producer.send(topic, b"v").result(PATIENCE_S)
    config = {"bootstrap.servers": servers, "auto.offset.reset": "none", "retry.backoff.max.ms": 10}
    with Consumer(config) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 99)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match="offset 99"):
                consumer.poll(PATIENCE_S)
            assert consumer.position(tp) == 99
        consumer.seek(tp, 0)
        assert [record.value for record in consumer.poll(PATIENCE_S)] == [b"v"]


def test_commits_need_a_group(servers: str) -> None:
    with Consumer({"bootstrap.servers": servers}) as consumer:
        with pytest.raises(IllegalStateError, match="commits need a"):
            consumer.commit()
        with pytest.raises(IllegalStateError, match="commits need a"):
            consumer.commit_async()


@pytest.mark.parametrize("policy", ["by_duration:1 day", "by_duration:", "by_duration", "first"])
def test_c3_a_bad_reset_policy_is_refused_by_the_constructor(policy: str) -> None:
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset.*by_duration:<ISO-8601 duration>"):
        Consumer({"bootstrap.servers": "127.0.0.1:9", "auto.offset.reset": policy, "group.id": fresh("c3")})


def test_a_topic_without_a_name_is_refused_and_spoils_nothing(servers: str, producer: Producer) -> None:
    with pytest.raises(TypeError, match="the name of a topic must be a str, not 5"):
        producer.send(5, b"v")  # type: ignore[arg-type]
    with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION: Topic name is invalid: the empty string"):
        producer.send("", b"v")
    producer.send(make_topic(servers), b"v").result(PATIENCE_S)


def test_g10_a_consumer_whose_callback_raises_in_close_has_left_its_group(servers: str) -> None:
    group, threads = fresh("g10"), set(threading.enumerate())
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})

    def raising(partitions: list[TopicPartition]) -> None:
        raise RuntimeError("from on_revoked")

    consumer.subscribe([make_topic(servers)], on_revoked=raising)
    poll_until(consumer, lambda: bool(consumer.assignment()))
    with pytest.raises(RuntimeError, match="from on_revoked"):
        consumer.close()
    consumer.close()
    assert set(threading.enumerate()) <= threads
    with Admin({"bootstrap.servers": servers}) as admin:
        assert admin.describe_groups([group])[group].state == "Empty"


async def test_c4_a_close_that_is_cancelled_leaves_no_task_behind(servers: str) -> None:
    before = asyncio.all_tasks()
    consumer = AsyncConsumer({"bootstrap.servers": servers, "group.id": fresh("c4")})
    closing = asyncio.Event()

    async def slow(partitions: list[TopicPartition]) -> None:
        closing.set()
        await asyncio.Event().wait()

    consumer.subscribe([await asyncio.to_thread(make_topic, servers)], on_revoked=slow)
    while not consumer.assignment():
        await consumer.poll(PATIENCE_S / 100)
    task = asyncio.create_task(consumer.close())
    await closing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


def test_t1_what_a_transaction_block_raises_is_not_replaced_by_the_abort_that_fails(servers: str) -> None:
    topic, config = make_topic(servers), {"bootstrap.servers": servers, "transactional.id": fresh("t1")}
    with Producer(config) as zombie, Producer(config) as heir:
        zombie.init_transactions()
        heir.init_transactions()
        with pytest.raises(ValueError, match="the user's own"), zombie.transaction():
            zombie.send(topic, b"never")
            raise ValueError("the user's own")
        with heir.transaction():
            heir.send(topic, b"seen")
    assert [record.value for record in read_all(servers, topic)] == [b"seen"]


async def test_t1_two_commits_at_once_are_one_and_a_clear_error(servers: str) -> None:
    topic = await asyncio.to_thread(make_topic, servers)
    async with AsyncProducer({"bootstrap.servers": servers, "transactional.id": fresh("t1")}) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(topic, b"v")
        ends = await asyncio.gather(*(producer.commit_transaction() for _ in range(2)), return_exceptions=True)
        assert ends[0] is None
        with pytest.raises(IllegalStateError, match="there is no open transaction"):
            raise ends[1] or AssertionError("committed twice")


def test_negative_offsets_are_not_committed(servers: str) -> None:
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(-5)}
    negative = pytest.raises(ValueError, match="an offset must not be negative, but this one is -5")
    with Consumer({"bootstrap.servers": servers, "group.id": fresh("o1")}) as consumer, negative:
        consumer.commit(offsets)
    with Producer({"bootstrap.servers": servers, "transactional.id": fresh("t1")}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(ValueError, match="an offset must not be negative, but this one is -5"):
            producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("g"))


def test_a_forked_process_hears_that_the_client_is_not_its_own(servers: str, producer: Producer) -> None:
    program = """
import os, sys
from ottla import Producer
from ottla.client.errors import IllegalStateError
producer = Producer({"bootstrap.servers": sys.argv[1]})
producer.send(sys.argv[2], b"before").result(30)
child = os.fork()
if child == 0:
    heard = 0
    for call in (lambda: producer.send(sys.argv[2], b"child"), producer.flush):
        try:
            call()
        except IllegalStateError as error:
            heard += "belongs to the process that was forked" in str(error)
    producer.close()
    own = Producer({"bootstrap.servers": sys.argv[1]})
    own.send(sys.argv[2], b"own").result(30)
    own.close()
    os._exit(heard)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
producer.send(sys.argv[2], b"after").result(30)
"""  # and it ends without close()
    topic = make_topic(servers)
    # from 3.12 on Python itself warns of a fork beside threads, as it should
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, servers, topic],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")
    assert [record.value for record in read_all(servers, topic)] == [b"before", b"own", b"after"]

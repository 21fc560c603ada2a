"""The blocking consumer: which thread calls the user, what Ctrl-C does, and what a loop that is left has got."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import pytest

from ottla import Consumer, ConsumerRecord, OffsetAndMetadata, Producer, TopicPartition
from ottla.testing import Broker
from tests.client.interrupts import every_moment
from tests.client.journeys import PATIENCE_S, fresh, make_topic, member, partitions_of, poll_until

#: A signal is never handled at the end of a `with` block, where the tracing of lines would interrupt the loop's thread.
_MODULES = ("ottla.client.blocking.consumer", "ottla.client.consumer", "ottla.client.core.consumer")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def test_g13_a_callback_of_unsubscribe_runs_in_the_users_thread_and_may_commit(servers: str) -> None:
    topic = make_topic(servers)
    said: list[object] = []

    def revoked(partitions: list[TopicPartition]) -> None:
        consumer.commit({tp: OffsetAndMetadata(7) for tp in partitions})
        said.append(threading.current_thread())

    with member(servers, fresh("g13"), enable_auto_commit=False) as consumer:
        consumer.subscribe([topic], on_revoked=revoked)
        poll_until(consumer, lambda: bool(consumer.assignment()))
        consumer.unsubscribe()
        assert said == [threading.current_thread()]
        assert consumer.committed(partitions_of(topic, 1))[TopicPartition(topic, 0)].offset == 7


@contextmanager
def reading(servers: str, count: int, **config: object) -> Iterator[tuple[Consumer, TopicPartition]]:
    """A consumer of one partition with so many records; each has its offset as its value."""
    topic = make_topic(servers)
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(count):
            producer.send(topic, str(number).encode())
    dotted = {key.replace("_", "."): value for key, value in config.items()}
    with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest", **dotted}) as consumer:
        tp = TopicPartition(topic, 0)
        consumer.assign([tp])
        yield consumer, tp


def test_c4_records_are_made_in_the_users_thread_also_when_poll_had_to_wait(servers: str) -> None:
    made_in: set[int] = set()

    def deserialize(topic: str, data: bytes | None) -> bytes | None:
        made_in.add(threading.get_ident())
        return data

    with reading(servers, 3, value_deserializer=deserialize) as (consumer, _):
        found: list[ConsumerRecord] = []
        while len(found) < 3:
            found += consumer.poll(PATIENCE_S)
    assert made_in == {threading.get_ident()}


@pytest.mark.parametrize("how", ["records", "columns"])
def test_c4_ctrl_c_in_poll_loses_no_record_and_gives_none_twice(servers: str, how: str) -> None:
    if how == "columns":
        pytest.importorskip("pyarrow")
    found: list[int] = []

    with reading(servers, 40, max_poll_records=3, max_partition_fetch_bytes=100) as (consumer, tp):

        def poll() -> None:
            if how == "records":
                found.extend(int(record.value or b"") for record in consumer.poll(PATIENCE_S))
            else:
                for columns in consumer.poll_arrow(PATIENCE_S).values():
                    found.extend(int(value) for value in columns.column("value").to_pylist())

        moments = sum(1 for _ in every_moment(poll, *_MODULES, events=("line",)))
        while consumer.position(tp) < 40:
            poll()
        assert found == list(range(40))
        assert moments > 20


def test_c4_a_loop_that_is_left_loses_nothing_and_commits_what_it_has_got(servers: str) -> None:
    group = fresh("c4")
    with reading(servers, 10, group_id=group, enable_auto_commit=False) as (consumer, tp):
        for record in consumer:
            if record.offset == 3:
                consumer.commit()
                break
        assert consumer.committed([tp])[tp].offset == 4
        assert consumer.position(tp) == 4
        assert [record.offset for record in islice(consumer, 6)] == [4, 5, 6, 7, 8, 9]

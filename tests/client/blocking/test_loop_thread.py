"""What ends a blocking client's loop, and what must not: no record and no caller waits for ever."""

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator

import pytest

from ottla import AssignorError, Consumer, Delivery, IllegalStateError, Producer
from ottla.assign import RoundRobinAssignor
from ottla.testing import Broker
from tests.client.journeys import PATIENCE_S, fresh, make_topic, read_all


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), ValueError("theirs")])
def test_whatever_on_delivery_raises_is_logged_and_harms_no_record(
    servers: str, raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(servers)

    def callback(delivery: Delivery) -> None:
        raise raised

    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send(topic, b"a", on_delivery=callback)
        producer.send(topic, b"b").result(PATIENCE_S)
        producer.send(topic, b"c").result(PATIENCE_S)
    assert [record.value for record in read_all(servers, topic)] == [b"a", b"b", b"c"]
    [told] = [record for record in caplog.records if record.message == "on_delivery raised"]
    assert told.exc_info is not None
    assert told.exc_info[1] is raised


@pytest.mark.parametrize("deadly", ["exit", "stop"])
def test_when_the_loop_ends_every_record_and_every_call_hears_of_it(
    servers: str, deadly: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(servers)
    heard: list[Delivery] = []

    def callback(delivery: Delivery) -> None:
        loop = asyncio.get_running_loop()
        if deadly == "exit":
            loop.call_soon(sys.exit, 3)
        else:
            loop.stop()

    with caplog.at_level(logging.CRITICAL), Producer({"bootstrap.servers": servers, "linger.ms": 60_000}) as producer:
        producer.send(topic, b"first", on_delivery=callback)
        with producer._producer._lock:
            producer._producer._records.close_all()  # it goes when the next batch is begun
        waiting = [producer.send(topic, b"v", on_delivery=heard.append) for _ in range(3)]
        why = "the client's background thread has ended.*make a new one"
        for delivery in waiting:
            with pytest.raises(IllegalStateError, match=why):
                delivery.result(PATIENCE_S)
        producer._thread.join(PATIENCE_S)
        assert heard == waiting
        for call in (lambda: producer.send(topic, b"v"), lambda: producer.send("new", b"v"), producer.flush):
            with pytest.raises(IllegalStateError, match=why):
                call()
    assert "3 records were not acknowledged yet" in caplog.messages[-1]


def test_an_exit_in_a_serializer_reaches_the_caller(servers: str) -> None:
    called_in: list[threading.Thread] = []

    def serialize(topic: str, value: str) -> bytes:
        called_in.append(threading.current_thread())
        return value.encode() if len(called_in) == 1 else sys.exit("no bytes")

    with Producer({"bootstrap.servers": servers, "value.serializer": serialize}) as producer:
        with pytest.raises(SystemExit, match="no bytes"):
            producer.send(make_topic(servers), "v")  # of a topic that is not known yet it is called on the loop too
        assert called_in[-1] is not threading.current_thread()
        called_in.clear()
        producer.flush(PATIENCE_S)


class Exits(RoundRobinAssignor):
    """An assignor that ends the program, or tries to."""

    name = "exits"

    def assign(self, cluster: object, subscriptions: object) -> dict[str, object]:  # type: ignore[override]
        sys.exit("no assignment")


def test_an_exit_in_an_assignor_is_raised_by_poll(servers: str) -> None:
    config = {"bootstrap.servers": servers, "group.id": fresh("exits"), "partition.assignment.strategy": [Exits]}
    with Consumer(config) as consumer:
        consumer.subscribe([make_topic(servers)])
        with pytest.raises(AssignorError, match=r"the assignor 'exits' failed in assign\(\): SystemExit"):
            consumer.poll(PATIENCE_S)

"""What a test asks of its broker: topics, what was written, a group at rest, and that time goes by."""

from __future__ import annotations

import pytest

from ottla import Admin, AsyncProducer, Consumer, Producer
from ottla.base.clock import ManualClock
from ottla.client.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from ottla.testing import AsyncBroker, Broker, BrokerError, Faults

PATIENCE_S = 60.0


def test_topics_are_made_and_what_was_written_is_read_back() -> None:
    with Broker() as broker:
        config: dict[str, object] = {"bootstrap.servers": broker.bootstrap_servers}
        broker.create_topics("orders", "returns", partitions=2, config={"max.message.bytes": "1000"})
        with pytest.raises(TopicAlreadyExistsError):
            broker.create_topics("orders")
        assert broker.records("orders") == []
        with pytest.raises(UnknownTopicOrPartitionError):
            broker.records("nothing")
        with Producer({**config, "transactional.id": "x"}) as producer:
            producer.init_transactions()
            for number in range(3):
                producer.begin_transaction()
                producer.send("orders", b"%d" % number, partition=number % 2, key=b"k", headers=[("h", b"1")])
                producer.flush(PATIENCE_S)
                if number == 1:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
        found = broker.records("orders")
        assert [(each.partition, each.value) for each in found] == [(0, b"0"), (0, b"2"), (1, b"1")]
        assert (found[0].key, found[0].headers) == (b"k", (("h", b"1"),))
        assert [each.value for each in broker.records("orders", read_committed=True)] == [b"0", b"2"]


def test_a_group_is_waited_for() -> None:
    with Broker() as broker:
        broker.create_topics("orders")
        with pytest.raises(TimeoutError, match="group g is not stable with 1 members after 0 s: it"):
            broker.wait_for_group("g", members=1, timeout_s=0)
        with pytest.raises(TimeoutError, match=r"group never is not stable with members after 0\.3 s: it is not there"):
            broker.wait_for_group("never", timeout_s=0.3)
        with Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}) as consumer:
            consumer.subscribe(["orders"])
            consumer.poll(PATIENCE_S / 60)
            assert len(broker.wait_for_group("g", members=1, timeout_s=PATIENCE_S).members) == 1
            with pytest.raises(TimeoutError, match=r"not stable with 2 members after .*: it is Stable, with 1 members"):
                broker.wait_for_group("g", members=2, timeout_s=2)  # time enough to see how it is
    with pytest.raises(BrokerError, match="the broker does not run"):
        broker.records("orders")


def test_in_an_outage_a_test_waits_no_longer_than_it_says() -> None:
    faults = Faults()
    with Broker(faults=faults) as broker:
        broker.create_topics("orders")
        with faults.outage():
            with pytest.raises(TimeoutError, match=r"topic orders was not read to its end within 0\.3 s"):
                broker.records("orders", timeout_s=0.3)
            with pytest.raises(TimeoutError, match=r"group g is not stable with members after 0\.3 s"):
                broker.wait_for_group("g", timeout_s=0.3)
        assert broker.records("orders") == []


def test_time_goes_by_for_the_broker_alone_and_does_not_come_back_after_a_restart() -> None:
    with Broker() as broker:
        config: dict[str, object] = {"bootstrap.servers": broker.bootstrap_servers}
        producer = Producer({**config, "transactional.id": "x", "transaction.timeout.ms": 60_000})
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"1").result(PATIENCE_S)
        with Admin(config) as admin:
            broker.clock.advance(59_000)
            assert admin.describe_transactions(["x"])["x"].state == "Ongoing"
            broker.kill()
            broker.restart()  # it goes on where it was: 59 s are gone
            broker.clock.advance(2_000)
            assert admin.describe_transactions(["x"])["x"].state in ("PrepareAbort", "CompleteAbort")
        producer.close(0)
        with pytest.raises(ValueError, match="time does not run backwards: -1 ms"):
            broker.clock.advance(-1)
        broker.stop()
        with pytest.raises(BrokerError, match="does not run"):
            broker.clock.advance(1)


async def test_in_the_loop_it_is_the_same() -> None:
    async with AsyncBroker() as broker:
        config: dict[str, object] = {"bootstrap.servers": broker.bootstrap_servers}
        await broker.create_topics("orders", partitions=2)
        async with AsyncProducer(config) as producer:
            await (await producer.send("orders", b"1", partition=1))
        (record,) = await broker.records("orders")
        assert (record.partition, record.value) == (1, b"1")
        with pytest.raises(TimeoutError, match="group g is not stable with members after 0 s"):
            await broker.wait_for_group("g", timeout_s=0)
        before_ms = broker.node.clock.now_ms()
        broker.clock.advance(3_600_000)
        assert broker.node.clock.now_ms() >= before_ms + 3_600_000


async def test_a_clock_that_was_given_is_moved() -> None:
    clock = ManualClock()
    async with AsyncBroker(clock=clock) as broker:
        broker.clock.advance(5)
        assert clock.monotonic_ms() == 5


def test_a_disk_that_takes_its_time_loses_nothing() -> None:
    with Broker() as broker:
        config: dict[str, object] = {"bootstrap.servers": broker.bootstrap_servers, "delivery.timeout.ms": 60_000}
        broker.create_topics("orders")
        broker.slow_disk(0.3)
        with Producer({**config, "request.timeout.ms": 100, "retry.backoff.ms": 10}) as producer:
            deliveries = [producer.send("orders", b"%d" % number) for number in range(3)]
            broker.slow_disk(0.2)
            broker.kill()
            broker.restart()  # the disk is as slow as before
            broker.slow_disk(0)
            for delivery in deliveries:
                delivery.result(PATIENCE_S)
        assert [each.value for each in broker.records("orders")] == [b"0", b"1", b"2"]
        for wrong in (-1.0, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="a disk takes some seconds longer"):
                broker.slow_disk(wrong)


async def test_a_slow_disk_in_the_loop_is_waited_for() -> None:
    async with AsyncBroker() as broker:
        broker.slow_disk(0.01)
        async with AsyncProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            await (await producer.send("orders", b"1"))
        broker.slow_disk(0)
        assert [each.value for each in await broker.records("orders")] == [b"1"]
    with pytest.raises(ValueError, match="start it first"):
        AsyncBroker().slow_disk(1)

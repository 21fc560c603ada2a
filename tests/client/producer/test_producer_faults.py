"""Whatever goes wrong on the way out, each record's fate is told; nobody waits for good, and nothing runs hot."""

import asyncio
import threading
import traceback
from typing import Any

import pytest

from ottla import AsyncProducer, ConsumerGroupMetadata, Delivery, OffsetAndMetadata, Producer
from ottla.base.errors import OttlaError
from ottla.client.errors import IllegalStateError, UnsupportedVersionError
from ottla.wire.apis import ApiKey
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.metadata import MetadataResponse
from ottla.wire.messages.produce import ProduceResponse
from tests.client.blame import chain
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import Hold, ScriptedBroker, changed, instead

_SOON: dict[str, object] = {"request.timeout.ms": 100, "delivery.timeout.ms": 100}
_GARBAGE = b"\0\0\0\2hi"
#: For a thread that never comes to its point.
_PATIENCE_S = 60.0


async def told(producer: AsyncProducer) -> BaseException:
    """Why a record was not delivered."""
    delivery = await producer.send("t", b"v")
    with pytest.raises(OttlaError) as raised:
        await delivery
    return raised.value


def depth(error: BaseException) -> int:
    """How many frames its traceback has."""
    return sum(1 for _ in traceback.walk_tb(error.__traceback__))


async def test_an_error_that_many_hear_does_not_grow_with_each_of_them(watchdog: Watchdog) -> None:
    depths = []
    async with watchdog(), ScriptedBroker({"t": 1}, without=[ApiKey.PRODUCE]) as broker:
        async with broker.producer({"linger.ms": 60_000}) as producer:
            sent = [await producer.send("t", b"v") for _ in range(50)]
            await producer.flush()
            for delivery in sent:
                with pytest.raises(UnsupportedVersionError) as refused:
                    await delivery
                depths.append(depth(refused.value))
        for _ in range(50):
            with pytest.raises(IllegalStateError) as closed:
                producer.try_send("t", b"v", None, None, None, (), None)
            depths.append(depth(closed.value))
    assert max(depths) < 20


async def test_a_broker_that_does_not_speak_produce_is_told(watchdog: Watchdog) -> None:
    async with (
        watchdog(),
        ScriptedBroker({"t": 1}, without=[ApiKey.PRODUCE]) as broker,
        broker.producer() as producer,
    ):
        assert "PRODUCE" in " ".join(str(error) for error in chain(await told(producer)))


def bad_host(answer: MetadataResponse) -> MetadataResponse:
    return answer._replace(brokers=tuple(node._replace(host="two..dots") for node in answer.brokers))


async def test_a_host_that_cannot_be_a_name_is_asked_for_again(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer() as producer:
        broker.script(ApiKey.METADATA, changed(bad_host))
        await (await producer.send("t", b"v"))


async def test_a_host_that_cannot_be_a_name_does_not_run_hot(watchdog: Watchdog) -> None:
    config = {**_SOON, "retry.backoff.ms": 50, "reconnect.backoff.ms": 50}
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer(config) as producer:
        broker.always(ApiKey.METADATA, changed(bad_host))
        begun: list[str] = []

        def count(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> "asyncio.Task[Any]":
            begun.append(str(coroutine))
            return asyncio.Task(coroutine, loop=loop, **options)

        loop = asyncio.get_running_loop()
        loop.set_task_factory(count)
        try:
            await told(producer)
        finally:
            loop.set_task_factory(None)
        assert len(begun) < 50


async def test_an_answer_without_a_producer_id_does_not_run_hot(watchdog: Watchdog) -> None:
    config = {**_SOON, "retry.backoff.ms": 50}
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer(config) as producer:
        broker.always(ApiKey.INIT_PRODUCER_ID, instead(InitProducerIdResponse(0, 0, -1, -1)))
        await told(producer)
        assert len(broker.asked(ApiKey.INIT_PRODUCER_ID)) < 20


@pytest.mark.parametrize("answer", [_GARBAGE, ProduceResponse()], ids=["garbage", "nothing about the partition"])
async def test_a_produce_answer_that_is_none_leads_to_a_repetition(
    watchdog: Watchdog, answer: bytes | ProduceResponse
) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer() as producer:
        broker.script(ApiKey.PRODUCE, instead(answer))
        assert (await (await producer.send("t", b"v"))).offset == 0


@pytest.mark.parametrize("fault", [ZeroDivisionError(), SystemExit(), asyncio.CancelledError()], ids=repr)
async def test_what_on_delivery_raises_harms_no_other_record(watchdog: Watchdog, fault: BaseException) -> None:
    def on_delivery(delivery: Delivery) -> None:
        raise fault

    async with watchdog(), ScriptedBroker({"t": 2}) as broker, broker.producer() as producer:
        heard: list[Delivery] = []
        for callback in (on_delivery, heard.append):
            for partition in (0, 1):
                await producer.send("t", b"v", partition=partition, on_delivery=callback)
        await producer.flush()
        assert len(heard) == 2


async def test_a_loop_that_ended_while_it_waited_for_a_record_harms_no_other(watchdog: Watchdog) -> None:
    async def waits_in_vain(delivery: Delivery) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await delivery

    def use(servers: str, held: Hold, loop: asyncio.AbstractEventLoop) -> None:
        config = {"bootstrap.servers": servers, "linger.ms": 60_000}
        producer = Producer(config)
        try:
            # of two partitions, so that they are two batches of one request
            first, second = (producer.send("t", b"v", partition=partition) for partition in (0, 1))
            begun = asyncio.run_coroutine_threadsafe(held.reached.wait(), loop)
            threading.Thread(target=producer.flush, daemon=True).start()
            begun.result(_PATIENCE_S)
            asyncio.run(waits_in_vain(first))
            loop.call_soon_threadsafe(held.release)
            assert second.result(_PATIENCE_S).offset == 0
            assert first.result(_PATIENCE_S).offset == 0
        finally:
            producer.close(0)

    async with watchdog(), ScriptedBroker({"t": 2}) as broker:
        held = Hold()
        broker.script(ApiKey.PRODUCE, held)
        await asyncio.to_thread(use, broker.bootstrap_servers, held, asyncio.get_running_loop())


@pytest.mark.parametrize(
    ("offsets", "group"),
    [
        ({"t": OffsetAndMetadata(1)}, ConsumerGroupMetadata("g")),
        ({("t", 0, 1): 1}, ConsumerGroupMetadata("g")),
        ([("t", 0)], ConsumerGroupMetadata("g")),
        ("t", ConsumerGroupMetadata("g")),
        ({("t", 0): 1}, "group"),
        ({("t", 0): 1}, None),
        ({("t", 0): 1}, ConsumerGroupMetadata(5)),  # type: ignore[arg-type]
        ({("t", 0): 1}, ConsumerGroupMetadata("g", "3")),  # type: ignore[arg-type]
        ({("t", 0): "1"}, ConsumerGroupMetadata("g")),
        ({("t", 0): 2**63}, ConsumerGroupMetadata("g")),
        ({("t", 2**31): 1}, ConsumerGroupMetadata("g")),
        ({(5, 0): 1}, ConsumerGroupMetadata("g")),
        ({("t", 0): OffsetAndMetadata(1, b"note")}, ConsumerGroupMetadata("g")),  # type: ignore[arg-type]
        ({("t", 0): OffsetAndMetadata(1, leader_epoch=2**31)}, ConsumerGroupMetadata("g")),
    ],
    ids=repr,
)
async def test_offsets_that_are_none_are_refused_and_harm_no_transaction(
    watchdog: Watchdog, offsets: Any, group: Any
) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer({"transactional.id": "x"}) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("t", b"v")
            with pytest.raises((TypeError, ValueError)) as refused:
                await producer.send_offsets_to_transaction(offsets, group)
            assert "__new__" not in str(refused.value)
        assert broker.kafka.log("t").values() == [b"v"]

"""A call that is broken off ends at once, and leaves a consumer that can go on, or is closed."""

import asyncio

import pytest

from ottla import IllegalStateError, TopicPartition
from ottla.wire.apis import ApiKey
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import ScriptedBroker, silence

_T0 = TopicPartition("t", 0)
_GROUP: dict[str, object] = {"group.id": "g", "heartbeat.interval.ms": 5}


@pytest.mark.parametrize("silent", [ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT])
async def test_a_close_that_is_broken_off_ends_at_once_and_closes(watchdog: Watchdog, silent: ApiKey) -> None:
    config = {**_GROUP, "enable.auto.commit": True}
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(config) as consumer:
        broker.kafka.write(_T0, b"v")
        consumer.subscribe(["t"])
        while not await consumer.poll(0.01):
            pass
        broker.always(silent, silence)
        closing = asyncio.create_task(consumer.close())
        await broker.saw(silent)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(IllegalStateError):
            await consumer.poll(0)


@pytest.mark.parametrize("held", [ApiKey.METADATA, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.FETCH])
async def test_a_poll_that_is_broken_off_can_be_repeated(watchdog: Watchdog, held: ApiKey) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_GROUP) as consumer:
        consumer.subscribe(["t"])
        polling = asyncio.create_task(consumer.poll(60))
        await broker.saw(held)
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        broker.kafka.write(_T0, b"v")
        assert [record.value for record in await consumer.poll(60)] == [b"v"]


async def test_a_callback_that_is_broken_off_is_told_and_the_member_goes_on(watchdog: Watchdog) -> None:
    begun = asyncio.Event()

    async def on_assigned(partitions: list[TopicPartition]) -> None:
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()

    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_GROUP) as consumer:
        broker.kafka.write(_T0, b"v")
        consumer.subscribe(["t"], on_assigned=on_assigned)
        polling = asyncio.create_task(consumer.poll(60))
        await begun.wait()
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        with pytest.raises(Exception, match="was interrupted"):
            while True:
                assert not await consumer.poll(60)
        assert [record.value for record in await consumer.poll(60)] == [b"v"]

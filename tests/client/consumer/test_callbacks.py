"""Calls into the user's code: each is made once, whatever interrupts who was to make it, and before close returns."""

import asyncio

import pytest

from ottla import IllegalStateError, OffsetAndMetadata, TopicPartition
from ottla.client.consumer.callbacks import CallbackDue
from ottla.client.net.retry import Deadline
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import ScriptedBroker

_T0 = TopicPartition("t", 0)
_GROUP: dict[str, object] = {"group.id": "g", "heartbeat.interval.ms": 5}
_AT_5 = {_T0: OffsetAndMetadata(5)}


async def test_c4_a_call_that_nobody_came_to_make_is_due_again(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_GROUP) as consumer:
        given: list[list[TopicPartition]] = []
        consumer.subscribe(["t"], on_assigned=given.append)
        due = await consumer.step(lambda: None, Deadline(60_000))  # and Ctrl-C comes before the call is made
        assert isinstance(due, CallbackDue)
        assert not given
        broker.kafka.write(_T0, b"v")
        assert [record.value for record in await consumer.poll(60)] == [b"v"]
        assert given == [[_T0]]


async def test_o1_close_calls_the_callbacks_of_all_commits(watchdog: Watchdog) -> None:
    heard: list[int] = []
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_GROUP) as consumer:

        async def on_commit(offsets: object, error: object) -> None:
            heard.append(1)
            while True:  # until the consumer is closed
                try:
                    consumer.commit_async(_AT_5)
                except IllegalStateError:
                    return
                await asyncio.sleep(0)

        consumer.assign([_T0])
        for _ in range(2):
            consumer.commit_async(_AT_5, on_commit)
        await consumer.close()
        assert heard == [1, 1]


async def test_o1_what_a_callback_raises_while_the_consumer_closes_is_said(
    watchdog: Watchdog, caplog: pytest.LogCaptureFixture
) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_GROUP) as consumer:

        def on_commit(offsets: object, error: object) -> None:
            raise ValueError("of the user's")

        consumer.assign([_T0])
        consumer.commit_async(_AT_5, on_commit)
        await consumer.close()
        assert "of the user's" in caplog.text

"""Commits keep the time they are given, and what goes wrong with one is told to whoever asked for it."""

import asyncio
from collections.abc import Mapping

import pytest

from ottla import AsyncConsumer, OffsetAndMetadata, OffsetReset, RequestTimeoutError, TopicPartition
from ottla.wire.apis import ApiKey
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import Hold, ScriptedBroker, silence

_T0 = TopicPartition("t", 0)
_OFFSETS = {_T0: OffsetAndMetadata(5)}
_BY_HAND: dict[str, object] = {"group.id": "g"}
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


async def reads_by_hand(consumer: AsyncConsumer) -> None:
    """It has its partition, and knows the cluster."""
    consumer.assign([_T0])
    assert await consumer.position(_T0) == 0


@pytest.mark.parametrize("timeout_s", [0, 0.0])
async def test_a_commit_without_time_does_not_wait(watchdog: Watchdog, timeout_s: float) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_BY_HAND) as consumer:
        await reads_by_hand(consumer)
        broker.always(ApiKey.OFFSET_COMMIT, silence)
        with pytest.raises(RequestTimeoutError):
            await consumer.commit(_OFFSETS, timeout_s=timeout_s)


async def test_a_commits_time_runs_while_it_waits_for_those_before_it(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_BY_HAND) as consumer:
        await reads_by_hand(consumer)
        held = Hold()
        broker.script(ApiKey.OFFSET_COMMIT, held)
        consumer.commit_async(_OFFSETS)
        await held.reached.wait()
        with pytest.raises(RequestTimeoutError):
            await consumer.commit(_OFFSETS, timeout_s=0.02)


@pytest.mark.parametrize(
    ("note", "why"),
    [
        ("\ud800", "must be text that UTF-8 can write"),
        ("ü" * 16_384, "must take at most 32767 bytes in UTF-8, and takes"),
    ],
    ids=["no text", "too long"],
)
async def test_a_note_that_no_request_can_hold_is_refused_at_once(watchdog: Watchdog, note: str, why: str) -> None:
    """A broker would close the connection, again and again until the time-out."""
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_BY_HAND) as consumer:
        await reads_by_hand(consumer)
        with pytest.raises(ValueError, match=f"the metadata {why}"):
            consumer.commit_async({_T0: OffsetAndMetadata(5, note)})


async def test_what_a_commits_callback_raises_is_raised_by_poll(watchdog: Watchdog) -> None:
    def callback(offsets: Offsets, error: Exception | None) -> None:
        raise ZeroDivisionError

    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_BY_HAND) as consumer:
        await reads_by_hand(consumer)
        consumer.commit_async(_OFFSETS, callback)
        with pytest.raises(ZeroDivisionError):
            while True:
                await consumer.poll(0.001)


async def test_what_on_reset_raises_is_raised_by_poll(watchdog: Watchdog) -> None:
    def on_reset(reset: OffsetReset) -> None:
        raise ZeroDivisionError

    async with watchdog(), ScriptedBroker({"t": 1}) as broker:
        consumer = AsyncConsumer(broker.config({"auto.offset.reset": "earliest"}), on_reset=on_reset)
        try:
            consumer.assign([_T0])
            with pytest.raises(ZeroDivisionError):
                while True:
                    await consumer.poll(0.001)
        finally:
            await consumer.abandon()


@pytest.mark.parametrize("poll_first", [False, True])
async def test_a_commits_callback_is_called_at_the_latest_by_close(watchdog: Watchdog, poll_first: bool) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_BY_HAND) as consumer:
        await reads_by_hand(consumer)
        held = Hold()
        broker.script(ApiKey.OFFSET_COMMIT, held)
        heard: list[Exception | None] = []
        consumer.commit_async(_OFFSETS, lambda offsets, error: heard.append(error))
        await held.reached.wait()
        if poll_first:
            await consumer.poll(0)
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        held.release()
        await closing
        assert heard == [None]

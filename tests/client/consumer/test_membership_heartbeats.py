"""Heartbeats go on whatever one of them is answered; when they cannot, the user is told."""

from typing import Any

import pytest

from ottla import AsyncConsumer, TopicPartition
from ottla.base.errors import OttlaError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorResponse
from ottla.wire.messages.heartbeat import HeartbeatResponse
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import ScriptedBroker, Step, changed, hang_up, instead

_GROUP: dict[str, object] = {"group.id": "g", "heartbeat.interval.ms": 1}


async def joined(consumer: AsyncConsumer) -> None:
    consumer.subscribe(["t"])
    while not consumer.assignment():
        await consumer.poll(0.01)


@pytest.mark.parametrize(
    "step",
    [
        hang_up,
        instead(b"\0\0\0\2hi"),
        instead(b"\xff\xff\xff\xff"),
        instead(HeartbeatResponse(0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)),
        instead(HeartbeatResponse(0, ErrorCode.NOT_COORDINATOR)),
    ],
    ids=["lost", "too short", "negative length", "loading", "moved"],
)
async def test_a_heartbeat_that_fails_is_not_the_last(watchdog: Watchdog, step: Step) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_GROUP) as consumer:
        await joined(consumer)
        beats = len(broker.asked(ApiKey.HEARTBEAT))
        broker.script(ApiKey.HEARTBEAT, step)
        await broker.saw(ApiKey.HEARTBEAT, beats + 5)
        await consumer.poll(0.01)
        assert consumer.assignment() == {TopicPartition("t", 0)}
        assert {beat.generation_id for beat in broker.asked(ApiKey.HEARTBEAT)} == {1}


@pytest.mark.parametrize("code", [9_999, ErrorCode.GROUP_AUTHORIZATION_FAILED])
async def test_an_error_that_no_heartbeat_mends_is_told(watchdog: Watchdog, code: int) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_GROUP) as consumer:
        await joined(consumer)
        broker.script(ApiKey.HEARTBEAT, instead(HeartbeatResponse(0, code)))
        with pytest.raises(OttlaError):
            while True:
                await consumer.poll(60)


def bad_host(answer: FindCoordinatorResponse) -> Any:
    return answer._replace(coordinators=tuple(c._replace(host="two..dots", node_id=7) for c in answer.coordinators))


async def test_a_coordinator_that_cannot_be_reached_is_looked_for_again(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_GROUP) as consumer:
        await joined(consumer)
        broker.script(ApiKey.FIND_COORDINATOR, changed(bad_host))
        broker.script(ApiKey.HEARTBEAT, instead(HeartbeatResponse(0, ErrorCode.NOT_COORDINATOR)))
        beats = len(broker.asked(ApiKey.HEARTBEAT))
        while len(broker.asked(ApiKey.HEARTBEAT)) < beats + 5:
            await consumer.poll(0.01)

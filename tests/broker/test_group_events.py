"""G23: the history of groups as a topic: what is in it, and what happens when it cannot be written."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.base.errors import StorageError
from ottla.base.limits import MAX_EVENT_WEIGHT
from ottla.broker.metadata.image import TopicImage
from ottla.broker.metadata.names import GROUP_EVENTS_TOPIC
from ottla.broker.runtime.group_events import GroupEvents
from ottla.broker.runtime.group_topics import GroupTopics
from ottla.coordinator.facts import Emptied, GroupFacts
from ottla.log.replay import replay
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.wire_client import WireClient

pytestmark = pytest.mark.usefixtures("group_coordinator")

_PATIENCE_S = 30.0


def _events(broker: AsyncBroker) -> list[dict[str, Any]]:
    partition = broker.node.partitions.find(GROUP_EVENTS_TOPIC, 0)
    if partition is None:
        return []
    return [json.loads(record.value or b"") for batch in replay(partition.log) for record in batch.records]


async def _until(found: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while not found():  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)  # a turn of the loop; a timer writes it


async def _join(client: WireClient, group: str = "g") -> None:
    request = JoinGroupRequest(group, 10_000, 10_000, "", None, "consumer", (JoinGroupRequestProtocol("range", b""),))
    answer = await client.ask(ApiKey.JOIN_GROUP, request, 3)
    assert answer.error_code == ErrorCode.NONE


def _facts(count: int) -> list[GroupFacts]:
    return [GroupFacts("g", "classic", number, (Emptied(number),)) for number in range(count)]


def _over(broker: AsyncBroker, create_topic: Callable[[str], Coroutine[Any, Any, TopicImage]]) -> GroupEvents:
    """The history over a broker's ports, with a topic of the test's own making."""
    node = broker.node
    return GroupEvents(node.partitions, node.timers, node.clock, node.slices, node.image, create_topic)


async def test_g23_the_history_is_an_internal_topic_that_is_made_with_the_first_group(
    broker: AsyncBroker, client: WireClient
) -> None:
    assert GROUP_EVENTS_TOPIC not in broker.node.image.topics
    await _join(client)
    await _until(lambda: bool(_events(broker)))
    first = _events(broker)[0]
    assert (first["event"], first["group"], first["version"]) == ("member-joined", "g", 1)
    asked = MetadataRequest((MetadataRequestTopic(name=GROUP_EVENTS_TOPIC),))
    (topic,) = (await client.ask(ApiKey.METADATA, asked)).topics
    assert (topic.is_internal, len(topic.partitions)) == (True, 1)
    configs = broker.node.image.topic_configs(GROUP_EVENTS_TOPIC)
    assert (configs["retention.ms"], configs["retention.bytes"]) == ("604800000", "67108864")


async def test_g23_only_the_broker_writes_to_it(broker: AsyncBroker, client: WireClient) -> None:
    await broker.node.topics.create_internal(GROUP_EVENTS_TOPIC)
    data = (TopicProduceData(name=GROUP_EVENTS_TOPIC, partition_data=(PartitionProduceData(0, b"x"),)),)
    answer = await client.ask(ApiKey.PRODUCE, ProduceRequest(acks=1, timeout_ms=1_000, topic_data=data), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_g23_it_can_be_switched_off() -> None:
    async with AsyncBroker(config={"group.events.enable": "false"}) as broker, WireClient(broker) as client:
        await broker.node.groups.ready()
        await _join(client)
        await broker.node.events.close()
        assert GROUP_EVENTS_TOPIC not in broker.node.image.topics


async def test_g23_what_waits_is_written_when_the_broker_stops(broker: AsyncBroker, client: WireClient) -> None:
    await _join(client)
    await broker.node.events.close()
    assert [each["event"] for each in _events(broker)][:2] == ["member-joined", "rebalance-started"]


async def test_g23_a_disk_that_refuses_costs_the_events_alone_and_says_how_many(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    is_full = True

    async def create(name: str) -> TopicImage:
        if is_full:
            raise StorageError("no space left")
        return await broker.node.topics.create_internal(name)

    events = _over(broker, create)
    with caplog.at_level(logging.WARNING):
        events.heard(_facts(3))
        await events.close()
        events.heard(_facts(2))
        await events.close()
    assert [each.getMessage() for each in caplog.records] == [
        f"events of {GROUP_EVENTS_TOPIC} are lost: no space left. Groups go on without them"
    ]
    is_full = False
    events.heard(_facts(1))
    await events.close()
    assert [(each["event"], each.get("count")) for each in _events(broker)] == [
        ("group-emptied", None),
        ("events-lost", 5),
    ]


async def test_g23_what_may_wait_is_bounded(broker: AsyncBroker) -> None:
    events = _over(broker, broker.node.topics.create_internal)
    events.heard(_facts(MAX_EVENT_WEIGHT + 4))
    await events.close()
    assert _events(broker)[-1] | {"time_ms": 0} == {"version": 1, "event": "events-lost", "time_ms": 0, "count": 4}


async def test_g23_a_pattern_of_the_brokers_does_not_match_it(broker: AsyncBroker) -> None:
    await broker.node.topics.create_internal(GROUP_EVENTS_TOPIC)
    topics = GroupTopics(broker.node.image, None)
    assert GROUP_EVENTS_TOPIC not in topics.names()
    assert topics.find(GROUP_EVENTS_TOPIC) is not None

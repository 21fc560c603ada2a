"""A client makes a topic of an internal name while the broker makes it for itself: there is one, and it is whole.

Two did not know of each other: the metadata log had the topic twice, and no start could read it any more; or the one
that failed removed the files of the other.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.broker.handlers import create_topics
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.names import GROUP_EVENTS_TOPIC, GROUP_TOPIC, TRANSACTION_TOPIC
from ottla.broker.session import Session
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.broker import ticking
from tests.broker.wire_client import WireClient

_CONFIG = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


@pytest.mark.parametrize("name", [GROUP_TOPIC, TRANSACTION_TOPIC, GROUP_EVENTS_TOPIC])
async def test_a_topic_is_made_once(tmp_path: Path, name: str) -> None:
    request = CreateTopicsRequest((CreatableTopic(name, 1, 1),), 30_000)
    for turns in (0, 1, 3, 9, 27):  # of the loop, until the broker begins
        data_dir = tmp_path / str(turns)
        async with AsyncBroker(_CONFIG, data_dir=data_dir) as broker, WireClient(broker) as client:
            asked = asyncio.ensure_future(client.ask(ApiKey.CREATE_TOPICS, request))
            for _ in range(turns):
                await asyncio.sleep(0)
            by_itself = await broker.node.topics.create_internal(name)
            answer = await asked
            assert isinstance(answer, CreateTopicsResponse)
            assert answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            assert broker.node.image.topics[name].topic_id == by_itself.topic_id
        assert len(list((data_dir / f"{name}-0").glob("*.log"))) == 1
        async with AsyncBroker(_CONFIG, data_dir=data_dir) as broker:
            assert name in broker.node.image.topics


async def test_a_client_that_only_asks_whether_it_could_be_made_changes_nothing(tmp_path: Path) -> None:
    """Its end let the next one begin, while the first one was still at work."""
    request = CreateTopicsRequest((CreatableTopic(GROUP_TOPIC, 1, 1),), 30_000, validate_only=True)
    context = RequestContext(ApiKey.CREATE_TOPICS, 7, 1, "test", Session("PLAINTEXT", "/"))
    for turns in (0, 1, 3, 9):
        async with AsyncBroker(_CONFIG, data_dir=tmp_path / str(turns)) as broker:
            first = asyncio.ensure_future(broker.node.topics.create_internal(GROUP_TOPIC))
            for _ in range(turns):
                await asyncio.sleep(0)
            asked = create_topics.handle(broker.node, request, context)
            for _ in range(turns):
                await asyncio.sleep(0)
            second = await broker.node.topics.create_internal(GROUP_TOPIC)
            await asked
            assert (await first).topic_id == second.topic_id == broker.node.image.topics[GROUP_TOPIC].topic_id


async def test_a_topic_that_is_seen_among_others_has_its_coordinators(tmp_path: Path) -> None:
    """They began when all topics of the request were there: meanwhile clients were told that this is not the node."""
    names = [GROUP_TOPIC, TRANSACTION_TOPIC, *(f"t{number}" for number in range(20))]
    asked = CreateTopicsRequest(tuple(CreatableTopic(name, 1, 1) for name in names), 30_000)
    async with (
        AsyncBroker(_CONFIG, data_dir=tmp_path, clock=ticking.TickingClock()) as broker,
        WireClient(broker) as client,
    ):
        node = broker.node

        def begun() -> int:
            found = [each.find("g") for each in (node.groups, node.transactions) if each.topic in node.image.topics]
            assert ErrorCode.NOT_COORDINATOR not in found
            return len(found)

        seen = await ticking.turns(asyncio.create_task(client.ask(ApiKey.CREATE_TOPICS, asked)), begun)
    assert set(seen) == {0, 1, 2}

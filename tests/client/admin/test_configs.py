"""Configurations in a cluster of several brokers: a broker's own goes to that broker, as in Java's admin client.

Apache Kafka refuses a BROKER with a name, and a BROKER_LOGGER, at every other broker than the one that is named.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla import AlterConfig, AsyncAdmin, ConfigResource, KafkaError, RequestTimeoutError, ResourceType
from ottla.client.admin.types import ConfigEntry
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.wire.messages.incremental_alter_configs import AlterConfigsResourceResponse, IncrementalAlterConfigsResponse
from ottla.wire.messages.metadata import MetadataResponseBroker
from tests.client.conftest import Watchdog
from tests.client.fake_kafka import Asked
from tests.client.moved_time import MovableLoop, in_moved_time
from tests.client.scripted_broker import Answer, ScriptedBroker, Step, Usual, changed

_IDS = (1, 2)
_TOPIC, _ALL_BROKERS = ConfigResource(ResourceType.TOPIC, "t"), ConfigResource(ResourceType.BROKER, "")
_BROKERS = {node: ConfigResource(ResourceType.BROKER, str(node)) for node in _IDS}
_LOGGERS = {node: ConfigResource(ResourceType.BROKER_LOGGER, str(node)) for node in _IDS}
_ALL = [_TOPIC, _ALL_BROKERS, *_BROKERS.values(), *_LOGGERS.values()]
_CHANGE = [AlterConfig("key", "value")]
Brokers = dict[int, ScriptedBroker]


def _refusal(node_id: int, resource: Any) -> tuple[int, str | None]:
    """What Apache Kafka's broker `node_id` says about a resource."""
    own = (ResourceType.BROKER_LOGGER, str(node_id)), (ResourceType.BROKER, str(node_id)), tuple(_ALL_BROKERS)
    resource_type, name = resource[:2]
    if resource_type != ResourceType.TOPIC and (resource_type, name) not in own:
        return ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}"
    return ErrorCode.NONE, None


def _describes(node_id: int) -> Step:
    async def step(asked: Asked, usual: Usual) -> Answer:
        entry = DescribeConfigsResourceResult("answered.by", str(node_id))
        return DescribeConfigsResponse(
            results=tuple(
                DescribeConfigsResult(*_refusal(node_id, each), each.resource_type, each.resource_name, (entry,))
                for each in asked.message.resources
            )
        )

    return step


def _alters(node_id: int) -> Step:
    async def step(asked: Asked, usual: Usual) -> Answer:
        return IncrementalAlterConfigsResponse(
            responses=tuple(
                AlterConfigsResourceResponse(*_refusal(node_id, each), each.resource_type, each.resource_name)
                for each in asked.message.resources
            )
        )

    return step


@asynccontextmanager
async def cluster() -> AsyncIterator[Brokers]:
    """Two brokers, of which broker 1 is the controller."""
    async with ScriptedBroker({"t": 1}) as first, ScriptedBroker({"t": 1}) as second:
        brokers = dict(zip(_IDS, (first, second), strict=True))
        nodes = tuple(MetadataResponseBroker(node, each.kafka.host, each.kafka.port) for node, each in brokers.items())
        for node, each in brokers.items():
            each.always(ApiKey.METADATA, changed(lambda answer: answer._replace(brokers=nodes)))
            each.always(ApiKey.DESCRIBE_CONFIGS, _describes(node))
            each.always(ApiKey.INCREMENTAL_ALTER_CONFIGS, _alters(node))
        yield brokers


def _asked(broker: ScriptedBroker, api: ApiKey) -> list[ConfigResource]:
    """The resources in all requests of `api`, oldest first."""
    return [
        ConfigResource(ResourceType(each.resource_type), each.resource_name)
        for request in broker.asked(api)
        for each in request.resources
    ]


def _own(entries: dict[str, ConfigEntry]) -> str | None:
    return entries["answered.by"].value


async def test_each_broker_describes_itself(watchdog: Watchdog) -> None:
    async with watchdog(), cluster() as brokers, AsyncAdmin(brokers[1].config()) as admin:
        found = await admin.describe_configs(_ALL)
        assert found.keys() == set(_ALL)
        for node in _IDS:
            assert (_own(found[_BROKERS[node]]), _own(found[_LOGGERS[node]])) == (str(node), str(node))
        asked = [request for each in brokers.values() for request in each.asked(ApiKey.DESCRIBE_CONFIGS)]
        assert len(asked) == 3, "one for each broker, and one that any broker answers"


async def test_each_broker_changes_itself_and_the_controller_the_rest(watchdog: Watchdog) -> None:
    async with watchdog(), cluster() as brokers, AsyncAdmin(brokers[1].config()) as admin:
        await admin.incremental_alter_configs(dict.fromkeys(_ALL, _CHANGE))
        altered = {node: _asked(each, ApiKey.INCREMENTAL_ALTER_CONFIGS) for node, each in brokers.items()}
        assert set(altered[1]) == {_TOPIC, _ALL_BROKERS, _BROKERS[1], _LOGGERS[1]}
        assert set(altered[2]) == {_BROKERS[2], _LOGGERS[2]}


async def test_what_one_broker_refuses_is_raised(watchdog: Watchdog) -> None:
    async with watchdog(), cluster() as brokers, AsyncAdmin(brokers[1].config()) as admin:
        brokers[2].always(ApiKey.DESCRIBE_CONFIGS, _describes(7))
        brokers[2].always(ApiKey.INCREMENTAL_ALTER_CONFIGS, _alters(7))
        with pytest.raises(KafkaError, match="INVALID_REQUEST: 2: Unexpected broker id, expected 7"):
            await admin.describe_configs([_BROKERS[1], _BROKERS[2]])
        with pytest.raises(KafkaError, match="INVALID_REQUEST: 2: Unexpected broker id, expected 7"):
            await admin.incremental_alter_configs(dict.fromkeys(_BROKERS.values(), _CHANGE))


@pytest.mark.parametrize("name", ["one", "-1", "1.0", "²", "1 "])
@pytest.mark.parametrize("kind", [ResourceType.BROKER, ResourceType.BROKER_LOGGER])
async def test_a_broker_is_named_by_its_id(watchdog: Watchdog, kind: ResourceType, name: str) -> None:
    resource = ConfigResource(kind, name)
    async with watchdog(), cluster() as brokers, AsyncAdmin(brokers[1].config()) as admin:
        with pytest.raises(KafkaError, match="INVALID_REQUEST: a broker is named by its id, which is a number"):
            await admin.describe_configs([resource])
        with pytest.raises(KafkaError, match="INVALID_REQUEST: a broker is named by its id, which is a number"):
            await admin.incremental_alter_configs({resource: _CHANGE})


def test_a_broker_that_is_not_there_is_told() -> None:
    """It is waited for: it may be starting."""
    resource = ConfigResource(ResourceType.BROKER, "9")

    async def test(loop: MovableLoop) -> None:
        async with cluster() as brokers, AsyncAdmin(brokers[1].config({"default.api.timeout.ms": 5_000})) as admin:
            calls = [admin.describe_configs([resource]), admin.incremental_alter_configs({resource: _CHANGE})]
            waiting = [asyncio.ensure_future(call) for call in calls]
            await loop.move(6)
            for call in waiting:
                with pytest.raises(RequestTimeoutError, match="broker 9 is not in the cluster's metadata"):
                    await call

    in_moved_time(test)

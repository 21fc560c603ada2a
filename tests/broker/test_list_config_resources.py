"""ListConfigResources: what has settings, so that nobody must know the names beforehand."""

from __future__ import annotations

import pytest

from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.wire_client import WireClient

_TOPIC, _BROKER, _LOGGER, _METRICS, _GROUP = 2, 4, 8, 16, 32
_SET, _DELETE = 0, 1


async def _alter_group(client: WireClient, name: str, operation: int) -> None:
    config = AlterableConfig("consumer.session.timeout.ms", operation, "50000")
    request = IncrementalAlterConfigsRequest((AlterConfigsResource(_GROUP, name, (config,)),))
    (answer,) = (await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)).responses
    assert answer.error_code == ErrorCode.NONE


async def _listed(client: WireClient, *types: int, version: int = 1) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(types)
    answer = await client.ask(ApiKey.LIST_CONFIG_RESOURCES, request, version=version)
    assert answer.error_code == ErrorCode.NONE
    return [(each.resource_type, each.resource_name) for each in answer.config_resources]


async def test_groups_with_settings_are_listed_without_members(client: WireClient) -> None:
    for name in ("kept", "reset"):
        await _alter_group(client, name, _SET)
    await _alter_group(client, "reset", _DELETE)
    assert await _listed(client, _GROUP) == [(_GROUP, "kept")]


async def test_no_type_means_all(client: WireClient) -> None:
    await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest((CreatableTopic("t", 1, 1),), 1000))
    await _alter_group(client, "g", _SET)
    everything = [(_GROUP, "g"), (_LOGGER, "1"), (_BROKER, "1"), (_TOPIC, "t")]
    assert await _listed(client) == everything
    assert await _listed(client, _TOPIC, _BROKER) == [(_BROKER, "1"), (_TOPIC, "t")]
    assert await _listed(client, _METRICS) == []


async def test_version_0_asks_for_client_metrics_alone(client: WireClient) -> None:
    await _alter_group(client, "g", _SET)
    assert await _listed(client, version=0) == []


@pytest.mark.parametrize("unknown", [0, 1, 3, 127, -1])
async def test_a_type_that_does_not_exist_is_refused(client: WireClient, unknown: int) -> None:
    request = ListConfigResourcesRequest((_TOPIC, unknown))
    answer = await client.ask(ApiKey.LIST_CONFIG_RESOURCES, request)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, ())

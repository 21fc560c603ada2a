"""Levels of features (KIP-584): what clients are told, and `metadata.version`, the one that can be raised."""

from pathlib import Path
from typing import Any

import pytest

from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.full_disk import no_room
from tests.broker.wire_client import WireClient

_NEWEST = 30


async def _told(client: WireClient) -> tuple[dict[str, int], int]:
    """Levels and their epoch, which is the last offset of the metadata log."""
    answer = await client.ask(ApiKey.API_VERSIONS, ApiVersionsRequest("test", "1.0"))
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    assert supported == {"group.version": (0, 1), "metadata.version": (7, _NEWEST), "transaction.version": (0, 2)}
    assert all(each.min_version_level == each.max_version_level for each in answer.finalized_features)
    return levels, answer.finalized_features_epoch


async def _raise(client: WireClient, level: int, *, dry: bool = False, kind: int = 1) -> Any:
    wanted = (FeatureUpdateKey("metadata.version", level, kind),)
    return await client.ask(ApiKey.UPDATE_FEATURES, UpdateFeaturesRequest(10_000, wanted, dry))


async def test_a_raised_metadata_version_is_told_and_kept(tmp_path: Path) -> None:
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        before, epoch = await _told(client)
        assert before == {"group.version": 1, "metadata.version": 25, "transaction.version": 2}
        assert epoch == broker.node.metadata_log.end_offset - 1
        assert (await _raise(client, _NEWEST, dry=True)).error_code == ErrorCode.NONE
        assert await _told(client) == (before, epoch), "only checked"
        assert (await _raise(client, 26)).error_code == ErrorCode.NONE
        assert (await _raise(client, _NEWEST)).error_code == ErrorCode.NONE
        raised = {**before, "metadata.version": _NEWEST}
        assert await _told(client) == (raised, epoch + 2)
        assert (await _raise(client, _NEWEST)).error_code == ErrorCode.NONE
        assert await _told(client) == (raised, epoch + 2), "nothing was to do"
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        assert (await _told(client))[0] == raised
        assert (await _raise(client, 25)).error_code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize("kind", [2, 3])
async def test_a_downgrade_raises_nothing(kind: int) -> None:
    async with AsyncBroker() as broker, WireClient(broker) as client:
        before = await _told(client)
        answer = await _raise(client, _NEWEST, kind=kind)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert answer.error_message == (
            "No feature is changed, for metadata.version cannot be 30: it is 25, so that is no downgrade."
        )
        assert await _told(client) == before


async def test_a_level_that_the_disk_refuses_is_as_before() -> None:
    async with AsyncBroker() as broker, WireClient(broker) as client:
        before = await _told(client)
        with no_room():
            assert (await _raise(client, _NEWEST)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await _told(client) == before
        assert (await _raise(client, _NEWEST)).error_code == ErrorCode.NONE

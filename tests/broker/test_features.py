"""Levels of features (KIP-584): what clients are told, and `metadata.version`, the one that can be raised."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.clock import ManualClock
from ottla.base.limits import MAX_STRING_BYTES
from ottla.broker.handlers import update_features
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.records import FeatureLevelRecord
from ottla.broker.runtime.changes import Changes
from ottla.broker.runtime.slices import Slices
from ottla.broker.session import Session
from ottla.log.memory import MemoryStorage
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.full_disk import no_room
from tests.broker.metadata_changes import opened_metadata
from tests.broker.wire_client import WireClient

_NEWEST = 30


async def _told(client: WireClient) -> tuple[dict[str, int], int]:
    """Levels and their epoch, which is the offset of the metadata log that they are of."""
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
            "No feature is changed, for 'metadata.version' cannot be 30: it is 25, so that is no downgrade."
        )
        assert await _told(client) == before


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_longest_name_of_a_feature_is_answered(client: WireClient, version: int) -> None:
    """Named in full, it did not fit into the answer, and its connection was closed."""
    wanted = (FeatureUpdateKey("x" * MAX_STRING_BYTES, 1),)
    answer = await client.ask(ApiKey.UPDATE_FEATURES, UpdateFeaturesRequest(10_000, wanted), version)
    assert (answer.error_code, answer.results) == (ErrorCode.INVALID_UPDATE_VERSION, ())
    assert "(32,767 characters) cannot be 1: this broker does not have that feature" in answer.error_message


@pytest.mark.parametrize("level", [0, 1])
async def test_the_quorums_own_version_is_what_the_directory_has(broker: AsyncBroker, level: int) -> None:
    """As `kafka-features upgrade --release-version` asks for, among all features, in a directory of Apache Kafka."""
    own, log = broker.node, SimpleNamespace(kraft_version=level)
    node: Any = SimpleNamespace(access=own.access, features=own.features, image=own.image, metadata_log=log)
    context = RequestContext(ApiKey.UPDATE_FEATURES, 2, 1, "c", Session("PLAINTEXT", "/127.0.0.1"))
    for asked, expected in ((level, ErrorCode.NONE), (1 - level, ErrorCode.INVALID_UPDATE_VERSION)):
        wanted = (FeatureUpdateKey("kraft.version", asked),)
        answer: Any = update_features.handle(node, UpdateFeaturesRequest(10_000, wanted), context)
        assert (await answer).error_code == expected


async def test_the_epoch_moves_with_the_level_and_not_before_it() -> None:
    """Clients keep the levels of an epoch, and look at none again that they know: the old level was told under the new
    epoch while the device was waited for."""
    storage = MemoryStorage()
    metadata = opened_metadata(storage)
    seen: list[tuple[int, int]] = []

    async def pause(_seconds: float) -> None:
        seen.append((metadata.metadata_version, metadata.features_epoch))
        storage.refuses = None

    before = metadata.features_epoch
    storage.refuses = lambda action, name: action == "sync"
    changes = Changes(metadata, Slices(ManualClock()), pause)
    await changes.write(changes.change([FeatureLevelRecord("metadata.version", _NEWEST)]))
    assert seen == [(25, before)]
    assert (metadata.metadata_version, metadata.features_epoch) == (_NEWEST, before + 1)


async def test_the_epoch_does_not_move_with_a_topic(broker: AsyncBroker, client: WireClient) -> None:
    before = await _told(client)
    await broker.node.topics.create("t", 1, {})
    assert await _told(client) == before
    assert (await _raise(client, _NEWEST)).error_code == ErrorCode.NONE
    assert (await _told(client))[1] == broker.node.metadata_log.end_offset - 1


async def test_of_a_feature_that_is_named_twice_the_last_level_counts() -> None:
    """As in Apache Kafka."""
    async with AsyncBroker() as broker, WireClient(broker) as client:
        before = await _told(client)
        for levels, expected in (((_NEWEST, 25), 25), ((25, _NEWEST), _NEWEST)):
            wanted = tuple(FeatureUpdateKey("metadata.version", level) for level in levels)
            answer = await client.ask(ApiKey.UPDATE_FEATURES, UpdateFeaturesRequest(10_000, wanted))
            assert answer.error_code == ErrorCode.NONE
            assert await _told(client) == (
                {**before[0], "metadata.version": expected},
                before[1] + (expected == _NEWEST),
            )


async def test_a_level_that_the_disk_refuses_is_as_before() -> None:
    async with AsyncBroker() as broker, WireClient(broker) as client:
        before = await _told(client)
        with no_room():
            assert (await _raise(client, _NEWEST)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await _told(client) == before
        assert (await _raise(client, _NEWEST)).error_code == ErrorCode.NONE

"""DescribeQuorum: the one voter, and how far the metadata log is, here and in a directory of Apache Kafka."""

import asyncio
from typing import Any

import pytest

from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.log.memory import MemoryStorage
from ottla.log.results import Origin
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.batch import mark_as_control
from ottla.wire.codec import NULL_UUID
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionData,
    QuorumPartition,
    ReplicaState,
    TopicData,
)
from ottla.wire.quorum_records import ControlType, KRaftVersionRecord
from ottla.wire.records import Record, encode_batch
from ottla.wire.schema import encode
from tests.broker.held_metadata import held_metadata
from tests.broker.metadata_changes import opened_metadata
from tests.broker.wire_client import WireClient

_ASKED = DescribeQuorumRequest((TopicData("__cluster_metadata", (PartitionData(0),)),))


async def _quorum(client: WireClient) -> tuple[QuorumPartition, ReplicaState]:
    ((_, (quorum,)),) = (await client.ask(ApiKey.DESCRIBE_QUORUM, _ASKED)).topics
    (voter,) = quorum.current_voters
    return quorum, voter


async def test_what_is_not_on_the_device_is_above_the_high_watermark(broker: AsyncBroker, client: WireClient) -> None:
    before, voter = await _quorum(client)
    assert before.high_watermark == voter.log_end_offset == broker.node.metadata_log.end_offset
    async with held_metadata() as held:
        making: asyncio.Task[Any] = asyncio.create_task(broker.node.topics.create("t", 1, {}))
        await held.is_waited_for()
        quorum, voter = await _quorum(client)
        assert (quorum.high_watermark, voter.log_end_offset) == (before.high_watermark, before.high_watermark + 2)
        held.go_on()
        await making
    quorum, voter = await _quorum(client)
    assert quorum.high_watermark == voter.log_end_offset == before.high_watermark + 2


async def test_epoch_and_voter_are_those_of_the_directory(
    broker: AsyncBroker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A voter has an id of its directory from `kraft.version` 1 on."""
    quorum, voter = await _quorum(client)
    assert (quorum.leader_epoch, voter.replica_directory_id) == (0, NULL_UUID)
    monkeypatch.setattr(broker.node.metadata_log, "_epoch", 7)
    monkeypatch.setattr(broker.node.metadata_log, "kraft_version", 1)
    quorum, voter = await _quorum(client)
    assert (quorum.leader_epoch, voter.replica_directory_id) == (7, broker.node.identity.directory_id)


def test_the_quorums_version_is_found_in_the_log() -> None:
    storage = MemoryStorage()
    metadata: ClusterMetadata = opened_metadata(storage)
    assert metadata.kraft_version == 0
    value = encode(KRaftVersionRecord(0, 1), 0)
    batch = bytearray(encode_batch([Record(0, 5, ControlType.KRAFT_VERSION.to_bytes(4, "big"), value, ())]))
    mark_as_control(batch)
    assert not metadata.log.append(bytes(batch), now_ms=5, origin=Origin.RAFT_LEADER, leader_epoch=0).error
    metadata.close()
    assert opened_metadata(storage).kraft_version == 1

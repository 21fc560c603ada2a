"""DescribeQuorum: the one voter, and how far the metadata log is, here and in a directory of Apache Kafka."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.handlers import describe_quorum
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.session import Session
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
from tests.broker.metadata_changes import opened_metadata
from tests.broker.wire_client import WireClient

_ASKED = DescribeQuorumRequest((TopicData("__cluster_metadata", (PartitionData(0),)),))

_CONTEXT = RequestContext(ApiKey.DESCRIBE_QUORUM, 2, 1, "c", Session("PLAINTEXT", "/127.0.0.1"))


async def _quorum(client: WireClient) -> tuple[QuorumPartition, ReplicaState]:
    ((_, (quorum,)),) = (await client.ask(ApiKey.DESCRIBE_QUORUM, _ASKED)).topics
    (voter,) = quorum.current_voters
    return quorum, voter


async def test_how_far_the_log_is(broker: AsyncBroker, client: WireClient) -> None:
    before, voter = await _quorum(client)
    assert before.high_watermark == voter.log_end_offset > 0
    await broker.node.topics.create("t", 1, {})
    quorum, voter = await _quorum(client)
    assert quorum.high_watermark == voter.log_end_offset == before.high_watermark + 2


@pytest.mark.parametrize("kraft_version", [0, 1])
async def test_what_the_log_says_is_told(broker: AsyncBroker, kraft_version: int) -> None:
    """A voter has an id of its directory from `kraft.version` 1 on."""
    log = SimpleNamespace(kraft_version=kraft_version, leader_epoch=7, high_watermark=8, end_offset=9)
    own = broker.node
    node = SimpleNamespace(access=own.access, clock=own.clock, identity=own.identity, metadata_log=log)
    answer: Any = describe_quorum.handle(cast(Any, node), _ASKED, _CONTEXT)
    ((_, (quorum,)),) = answer.topics
    (voter,) = quorum.current_voters
    assert (quorum.leader_epoch, quorum.high_watermark, voter.log_end_offset) == (7, 8, 9)
    assert voter.replica_directory_id == (own.identity.directory_id if kraft_version else NULL_UUID)


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

"""A deleted topic takes the offsets committed in it along, whatever happens between the two (O2).

Its next namesake must not begin where readers of the old one were. Apache Kafka tells the coordinators that are loaded
and leaves the rest to retention; here every shard also compares its offsets with the metadata once it is loaded.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.app import BrokerApp
from ottla.broker.config import BrokerConfig
from ottla.testing import AsyncBroker
from ottla.testing.broker import TEST_DEFAULTS
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import offset_commit as oc
from ottla.wire.messages import offset_fetch as of
from ottla.wire.messages import txn_offset_commit as toc
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from tests.broker.wire_client import WireClient


async def _commit(client: WireClient, topic: str, partitions: int = 1) -> None:
    offsets = tuple(oc.OffsetCommitRequestPartition(each, 7) for each in range(partitions))
    request = oc.OffsetCommitRequest("g", topics=(oc.OffsetCommitRequestTopic(name=topic, partitions=offsets),))
    answer = await client.ask(ApiKey.OFFSET_COMMIT, request, 9)
    assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.NONE}


async def _commit_in_transaction(client: WireClient, topic: str, *, ended: bool) -> None:
    await client.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=1, coordinator_keys=("tx",)))
    begun = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("tx", 60_000))
    offset = toc.TxnOffsetCommitRequestPartition(0, 7)
    answer = await client.ask(
        ApiKey.TXN_OFFSET_COMMIT,
        toc.TxnOffsetCommitRequest(
            "tx",
            "g",
            begun.producer_id,
            begun.producer_epoch,
            topics=(toc.TxnOffsetCommitRequestTopic(topic, (offset,)),),
        ),
    )
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    if ended:
        done = await client.ask(ApiKey.END_TXN, EndTxnRequest("tx", begun.producer_id, begun.producer_epoch, True))
        assert done.error_code == ErrorCode.NONE


async def _committed(client: WireClient, topic: str) -> tuple[int, int]:
    """The offset and the error of partition 0."""
    wanted = (of.OffsetFetchRequestTopics(name=topic, partition_indexes=(0,)),)
    request = of.OffsetFetchRequest(groups=(of.OffsetFetchRequestGroup("g", topics=wanted),), require_stable=True)
    answer = await client.ask(ApiKey.OFFSET_FETCH, request, 9)
    (partition,) = answer.groups[0].topics[0].partitions
    return partition.committed_offset, partition.error_code


async def test_coordinators_are_loading_from_the_first_moment(tmp_path: Path) -> None:
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, {})
        await broker.node.groups.ready()
        await _commit(client, "t")
    async with _loading(tmp_path) as app:
        assert app.node is not None
        assert app.node.groups.find("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@asynccontextmanager
async def _loading(data_dir: Path) -> AsyncIterator[BrokerApp]:
    """A broker that listens, and has not read its coordinators' partitions yet."""
    config = {**TEST_DEFAULTS, "log.dirs": (str(data_dir),), "listeners": ("PLAINTEXT://127.0.0.1:0",)}
    app = BrokerApp(BrokerConfig(config))
    await app.start()
    try:
        yield app
    finally:
        await app.stop()


async def _with_offsets(broker: AsyncBroker, how: str) -> None:
    """Topics `gone` and `stays` with an offset each; the one of `gone` committed in one way or another."""
    for name in ("gone", "stays"):
        await broker.node.topics.create(name, 1, {})
    async with WireClient(broker) as client:
        await client.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=("g",)))
        await _commit(client, "stays")
        match how:
            case "plain":
                await _commit(client, "gone")
            case "in a transaction":
                await _commit_in_transaction(client, "gone", ended=True)
            case _:
                await _commit_in_transaction(client, "gone", ended=False)


_HOW = ["plain", "in a transaction", "in an open transaction"]


@pytest.mark.parametrize("how", _HOW)
async def test_o2_a_topic_deleted_while_group_shards_load_keeps_no_offsets(tmp_path: Path, how: str) -> None:
    async with AsyncBroker(data_dir=tmp_path) as broker:
        await _with_offsets(broker, how)
    async with _loading(tmp_path) as app:
        node = app.node
        assert node is not None
        await node.topics.delete_all([node.image.topics["gone"]])
        await node.topics.create("gone", 1, {})
        await app.loaded()
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        assert await _committed(client, "gone") == (-1, ErrorCode.NONE)
        assert await _committed(client, "stays") == (7, ErrorCode.NONE)


@pytest.mark.parametrize("made_again", [False, True])
@pytest.mark.parametrize("how", _HOW)
async def test_o2_a_crash_between_a_topics_deletion_and_the_tombstones_leaves_no_offsets(
    tmp_path: Path, how: str, made_again: bool
) -> None:
    async with AsyncBroker(data_dir=tmp_path) as broker:
        await _with_offsets(broker, how)
        topics = broker.node.topics
        topics.tell(made=lambda topic: None, deleted=lambda topics: None)  # it dies before the coordinators hear of it
        await topics.delete_all([broker.node.image.topics["gone"]])
        if made_again:
            await topics.create("gone", 1, {})
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        assert await _committed(client, "gone") == (-1, ErrorCode.NONE)
        assert await _committed(client, "stays") == (7, ErrorCode.NONE)


async def test_o2_offsets_that_wait_for_their_tombstones_do_not_count_for_a_new_topic() -> None:
    async with AsyncBroker() as broker, WireClient(broker) as client:
        await _with_offsets(broker, "plain")
        topics = broker.node.topics
        topics.tell(made=lambda topic: None, deleted=lambda topics: None)  # as if no tombstone could be written yet
        await topics.delete_all([broker.node.image.topics["gone"]])
        await topics.create("gone", 1, {})
        assert await _committed(client, "gone") == (-1, ErrorCode.NONE)
        everything = of.OffsetFetchRequest(groups=(of.OffsetFetchRequestGroup("g", topics=None),))
        for version in (9, 10):
            answer = await client.ask(ApiKey.OFFSET_FETCH, everything, version)
            offsets = [each.committed_offset for topic in answer.groups[0].topics for each in topic.partitions]
            assert offsets == [7]

"""Texts of clients that are no UTF-8: read as Apache Kafka reads them, with U+FFFD, and stored as what all can read.

A client in C can send any bytes. Its names then mean the same in every answer, in the logs, and after a restart.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla import AsyncAdmin, KafkaError, NewTopic
from ottla.broker.metadata.names import GROUP_EVENTS_TOPIC
from ottla.log.replay import replay
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import encode_request
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.wire_client import WireClient

#: What a test writes, and the bytes that stand in its place on the wire: a lone byte, and half of a surrogate pair.
_MARK, _BYTES = "@@@@", b"\xff\xed\xa0\x80"
_SAID = _BYTES.decode("utf-8", "replace")
_PATIENCE_S = 30.0


async def _ask(client: WireClient, key: ApiKey, message: tuple[Any, ...], version: int) -> Any:
    """Send a request with the broken bytes in the place of each mark; its answer."""
    frame = encode_request(key, version, 0, f"c{_MARK}", message).replace(_MARK.encode(), _BYTES)
    client._correlation_id = 0
    await client.send_bytes(frame)
    return await client.answer(key, version)


def _events(broker: AsyncBroker) -> Iterator[dict[str, Any]]:
    partition = broker.node.partitions.find(GROUP_EVENTS_TOPIC, 0)
    for batch in () if partition is None else replay(partition.log):
        yield from (json.loads((record.value or b"").decode()) for record in batch.records)


async def _event(broker: AsyncBroker, name: str) -> dict[str, Any]:
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            with suppress(StopIteration):
                return next(each for each in _events(broker) if each["event"] == name)
            await asyncio.sleep(0)  # a turn of the loop; a timer writes it


async def test_g23_members_of_both_kinds_are_named_as_the_answers_and_the_history_say(tmp_path: Path) -> None:
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        assert await broker.node.groups.ready() is None
        protocols = (JoinGroupRequestProtocol("range", b""),)
        joins = JoinGroupRequest(f"g{_MARK}", 10_000, 10_000, "", f"i{_MARK}", "consumer", protocols, f"why {_MARK}")
        answer = await _ask(client, ApiKey.JOIN_GROUP, joins, 9)
        assert (answer.error_code, answer.members[0].group_instance_id) == (ErrorCode.NONE, f"i{_SAID}")
        joined = await _event(broker, "member-joined")
        assert (joined["group"], joined["instance_id"], joined["client_id"]) == (f"g{_SAID}", f"i{_SAID}", f"c{_SAID}")
        assert f"why {_SAID}" in (await _event(broker, "rebalance-started"))["reason"]
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        await broker.create_topics("t")
        beat = ConsumerGroupHeartbeatRequest(
            f"k{_MARK}", f"m{_MARK}", 0, f"i{_MARK}", rebalance_timeout_ms=10_000, subscribed_topic_names=("t",)
        )
        answer = await _ask(client, ApiKey.CONSUMER_GROUP_HEARTBEAT, beat, 1)
        assert (answer.error_code, answer.member_id) == (ErrorCode.NONE, f"m{_SAID}")


async def test_o1_metadata_of_a_commit_and_o9_the_id_of_a_transaction(tmp_path: Path) -> None:
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        assert await broker.node.groups.ready() is None
        assert await broker.node.transactions.ready() is None
        await broker.create_topics("t")
        partition = OffsetCommitRequestPartition(0, 7, -1, f"note {_MARK}")
        commit = OffsetCommitRequest(f"g{_MARK}", topics=(OffsetCommitRequestTopic(name="t", partitions=(partition,)),))
        (topic,) = (await _ask(client, ApiKey.OFFSET_COMMIT, commit, 8)).topics
        assert topic.partitions[0].error_code == ErrorCode.NONE
        made = await _ask(client, ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(f"tx{_MARK}", 60_000), 5)
        assert made.error_code == ErrorCode.NONE
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        fetch = OffsetFetchRequest((OffsetFetchRequestGroup(f"g{_SAID}", topics=None),))
        (group,) = (await client.ask(ApiKey.OFFSET_FETCH, fetch, 8)).groups
        assert [each.metadata for each in group.topics[0].partitions] == [f"note {_SAID}"]
        found = await client.ask(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest())
        assert [each.transactional_id for each in found.transaction_states] == [f"tx{_SAID}"]


async def test_names_of_quotas_and_values_of_configs(tmp_path: Path) -> None:
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        await broker.create_topics("t")
        quota = EntryData((EntityData("client-id", f"c{_MARK}"),), (OpData("request_percentage", 50.0),))
        answer = await _ask(client, ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest((quota,)), 1)
        assert [each.error_code for each in answer.entries] == [ErrorCode.NONE]
        config = AlterableConfig("cleanup.policy", 0, f"delete{_MARK}")
        alter = IncrementalAlterConfigsRequest((AlterConfigsResource(2, "t", (config,)),))
        (told,) = (await _ask(client, ApiKey.INCREMENTAL_ALTER_CONFIGS, alter, 1)).responses
        assert (told.error_code, f"delete{_SAID}" in (told.error_message or "")) == (ErrorCode.INVALID_CONFIG, True)
        configs = (CreatableTopicConfig(f"key{_MARK}", "1"),)
        topics = tuple(CreatableTopic(name, 1, 1, (), configs) for name in ("u", f"t{_MARK}"))
        answer = await _ask(client, ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics), 7)
        errors = {each.name: each.error_code for each in answer.topics}
        assert errors == {"u": ErrorCode.INVALID_CONFIG, f"t{_SAID}": ErrorCode.INVALID_TOPIC_EXCEPTION}
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        found = await client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest())
        assert [each.entity[0].entity_name for each in found.entries] == [f"c{_SAID}"]


async def test_what_a_client_of_ours_cannot_send_is_an_error_and_the_client_goes_on(tmp_path: Path) -> None:
    async with (
        AsyncBroker(data_dir=tmp_path) as broker,
        AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin,
    ):
        topic = NewTopic("t", 1, 1, {"cleanup.policy": "a\udcff"})
        with pytest.raises(KafkaError, match=r"CreateTopics cannot be sent: .*'a\\udcff' is no text that UTF-8 can"):
            await admin.create_topics([topic])
        assert await admin.list_topics() == []

"""What one request may cost: its elements are counted before they are built, its records are looked at in a thread."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from ottla.base.limits import MAX_INLINE_OPENED_BYTES, MAX_REQUEST_ELEMENTS
from ottla.broker.handlers.describe_configs import handle as describe_configs
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import BROKER_RESOURCE
from ottla.broker.session import Session
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch
from tests.broker.wire_client import WireClient


def _names(count: int) -> MetadataRequest:
    return MetadataRequest(tuple(MetadataRequestTopic(name=f"n{at}") for at in range(count)), False)


async def test_a_request_of_too_many_elements_closes_its_connection_and_is_told(
    client: WireClient, broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await client.send(ApiKey.METADATA, _names(MAX_REQUEST_ELEMENTS + 1))
    assert await client.is_closed()
    assert "closing the connection of /127.0.0.1" in caplog.text
    assert f"{MAX_REQUEST_ELEMENTS + 1} elements" in caplog.text
    assert "client id 'test'" in caplog.text


async def test_nested_elements_count_too(client: WireClient, broker: AsyncBroker) -> None:
    numbers = tuple(range(MAX_REQUEST_ELEMENTS // 2))
    topics = (OffsetFetchRequestTopics(name="t", partition_indexes=numbers),)
    groups = tuple(OffsetFetchRequestGroup(name, topics=topics) for name in "ab")
    await client.send(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=groups), version=9)
    assert await client.is_closed()


async def _compacted(client: WireClient) -> None:
    configs = (CreatableTopicConfig("cleanup.policy", "compact"),)
    await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest((CreatableTopic("c", 1, 1, configs=configs),), 10_000))


class _Counting(ThreadPoolExecutor):
    """Counts what the loop gives to its threads."""

    count = 0

    def submit(self, *args: Any, **kwargs: Any) -> "Future[Any]":
        self.count += 1
        return super().submit(*args, **kwargs)


def _produce(value: bytes, compression: Compression, *, key: bytes | None = b"k") -> ProduceRequest:
    records = encode_batch([Record(0, 0, key, value, ())], compression=compression)
    data = (PartitionProduceData(0, records),)
    return ProduceRequest(None, -1, 10_000, (TopicProduceData(name="c", partition_data=data),))


async def test_what_may_be_long_is_looked_at_in_a_thread(client: WireClient, broker: AsyncBroker) -> None:
    await _compacted(client)
    threads = broker.node.partitions.batches = _Counting(1)
    large = bytes(MAX_INLINE_OPENED_BYTES)
    for request, error, count in (
        (_produce(b"v", Compression.NONE), ErrorCode.NONE, 0),
        (_produce(large, Compression.NONE), ErrorCode.NONE, 1),
        (_produce(large, Compression.ZSTD), ErrorCode.NONE, 2),
        (_produce(large, Compression.ZSTD, key=None), ErrorCode.INVALID_RECORD, 3),
    ):
        answer = await client.ask(ApiKey.PRODUCE, request, version=12)
        assert answer.responses[0].partition_responses[0].error_code == error
        assert threads.count == count


class _Name(str):
    """Counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        _Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


async def test_each_setting_is_looked_up_among_the_keys_that_are_wanted(broker: AsyncBroker) -> None:
    keys = (*(_Name(f"no.such.key.{at}") for at in range(1_000)), _Name("log.retention.ms"))
    name = str(broker.node.identity.node_id)
    request = DescribeConfigsRequest((DescribeConfigsResource(BROKER_RESOURCE, name, keys),))
    context = RequestContext(ApiKey.DESCRIBE_CONFIGS, 4, 1, "test", Session("PLAINTEXT", "/"))
    answer = describe_configs(broker.node, request, context)
    assert isinstance(answer, DescribeConfigsResponse)
    assert [each.name for each in answer.results[0].configs] == ["log.retention.ms"]
    assert _Name.compared < len(keys)

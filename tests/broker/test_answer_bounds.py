"""What one answer may take: what is named again is told once, and an answer is given up where it becomes too large."""

from typing import Any

import pytest

from ottla.broker.handlers.describe_producers import PRODUCER_BYTES
from ottla.broker.metadata.image import BROKER_RESOURCE
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.wire_client import WireClient, batch

pytestmark = pytest.mark.usefixtures("group_coordinator", "transaction_coordinator")

_ASKED: dict[ApiKey, Any] = {
    ApiKey.OFFSET_FETCH: lambda names: OffsetFetchRequest(
        tuple(OffsetFetchRequestGroup(name, topics=None) for name in names)
    ),
    ApiKey.DESCRIBE_GROUPS: DescribeGroupsRequest,
    ApiKey.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeRequest,
    ApiKey.DESCRIBE_TRANSACTIONS: DescribeTransactionsRequest,
}
_TOLD = {ApiKey.DESCRIBE_TRANSACTIONS: "transaction_states"}


@pytest.mark.parametrize("key", _ASKED)
async def test_what_is_named_again_among_many_is_told_once(client: WireClient, key: ApiKey) -> None:
    """2,000 bytes that named one group of 400 KB a thousand times were answered with 410 MB."""
    answer = await client.ask(key, _ASKED[key](("a", "b", *["a"] * 1_000)))
    told = getattr(answer, _TOLD.get(key, "groups"))
    assert ["a" in each for each in told] == [True, False]


@pytest.mark.parametrize("key", _ASKED)
async def test_what_is_named_again_among_few_is_told_again(client: WireClient, key: ApiKey) -> None:
    """As Apache Kafka does."""
    answer = await client.ask(key, _ASKED[key](("a", "b", "a")))
    told = getattr(answer, _TOLD.get(key, "groups"))
    assert ["a" in each for each in told] == [True, False, True]


async def test_a_resource_that_is_named_again_among_many_is_described_once(
    client: WireClient, broker: AsyncBroker
) -> None:
    """30,000 names of the broker would be answered with gigabytes."""
    own_id = str(broker.node.identity.node_id)
    whole = DescribeConfigsResource(BROKER_RESOURCE, own_id)
    some = [whole._replace(configuration_keys=(name,)) for name in ("log.dirs", "node.id", "node.id")]
    answer = await client.ask(
        ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest((*some, *[whole._replace(resource_name="9")] * 20))
    )
    assert [(each.resource_name, len(each.configs)) for each in answer.results] == [(own_id, 2), ("9", 0)]
    answer = await client.ask(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest((some[0], *[whole] * 20, some[1])))
    (of_all,) = answer.results
    assert len(of_all.configs) > 2, "whoever wants all gets all"
    few = await client.ask(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest(tuple(some)))
    assert [len(each.configs) for each in few.results] == [1, 1, 1], "as Apache Kafka does"


async def test_a_partition_that_is_named_again_among_many_tells_its_producers_once(client: WireClient) -> None:
    asked = [TopicRequest("t", (0, 1, 0)), *[TopicRequest("t", (0, 2))] * 50, TopicRequest("u", (0,))]
    answer = await client.ask(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest(tuple(asked)))
    told = [(topic.name, each.partition_index) for topic in answer.topics for each in topic.partitions]
    assert told == [("t", 0), ("t", 1), ("t", 2), ("u", 0)]
    few = await client.ask(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest((TopicRequest("t", (0, 0)),)))
    assert [len(topic.partitions) for topic in few.topics] == [2], "as Apache Kafka does"


@pytest.mark.parametrize("partitions", [(0, 1), (0, 0)], ids=["two", "one-twice"])
async def test_producers_count_while_they_are_described(
    client: WireClient, broker: AsyncBroker, caplog: pytest.LogCaptureFixture, partitions: tuple[int, ...]
) -> None:
    """424 bytes that named one of 20,000 producers a hundred times were answered with 75 MB, and took 500."""
    await broker.node.topics.create("t", 2, {})
    for number in range(2):
        partition = broker.node.partitions.find("t", number)
        assert partition is not None
        for producer_id in range(100):
            records = batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0)
            assert partition.log.append(records, now_ms=1_700_000_000_000).error == 0
    answers = broker.node.answers
    answers.limit_bytes = 150 * PRODUCER_BYTES
    await client.send(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest((TopicRequest("t", partitions),)))
    assert await client.is_closed()
    assert "its answer to DescribeProducers is larger than" in caplog.text
    assert answers.held_bytes == 0
    async with WireClient(broker) as other:
        answer = await other.ask(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest((TopicRequest("t", (0,)),)))
    assert [len(each.active_producers) for each in answer.topics[0].partitions] == [100]
    assert answers.held_bytes == 0


@pytest.mark.parametrize("count", [2, 250])
@pytest.mark.parametrize("key", _ASKED)
async def test_an_answer_that_becomes_too_large_is_given_up(
    client: WireClient, broker: AsyncBroker, caplog: pytest.LogCaptureFixture, key: ApiKey, count: int
) -> None:
    broker.node.answers.limit_bytes = 100
    names = tuple(f"{number:0100}" for number in range(count))
    await client.send(key, _ASKED[key](names))
    assert await client.is_closed()
    (line,) = [each.getMessage() for each in caplog.records if each.name == "ottla.broker.connections"]
    assert line.startswith("closing the connection of /127.0.0.1: its answer to ")
    assert line.endswith("is larger than 100 bytes: it should name less in a request (client id 'test')")
    assert broker.node.answers.held_bytes == 0
    async with WireClient(broker) as other:
        assert getattr(await other.ask(key, _ASKED[key](names[:1])), _TOLD.get(key, "groups"))


async def test_answers_that_are_made_at_a_time_share_one_bound(
    client: WireClient, broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    answers = broker.node.answers
    answers.total_bytes = 2_000
    many = FindCoordinatorRequest("", 0, tuple(map(str, range(101))))
    await client.send(ApiKey.FIND_COORDINATOR, many)
    assert await client.is_closed()
    assert "all answers that are being made take more than 2000 bytes" in caplog.text
    assert answers.held_bytes == 0
    answers.total_bytes = 200_000
    async with WireClient(broker) as other:
        assert len((await other.ask(ApiKey.FIND_COORDINATOR, many)).coordinators) == 101
    assert answers.held_bytes == 0


async def test_a_large_answer_is_sent_in_pieces(client: WireClient) -> None:
    """They are not put together to one: that would be the same memory once more."""
    names = tuple(f"{number:05}{'n' * 1_000}" for number in range(3_000))
    answer = await client.ask(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(names))
    assert tuple(each.group_id for each in answer.groups) == names

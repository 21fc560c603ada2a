"""Quotas on the wire: what is set, what it does to requests, and the silence of a throttled connection."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest

from ottla.base.clock import ManualClock
from ottla.base.limits import MAX_QUOTA_SHARERS
from ottla.broker.metadata.records import ClientQuotaRecord, QuotaEntityData, decode_record, encode_record
from ottla.broker.quotas.table import QuotaKey
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import encode_request
from ottla.wire.messages import alter_client_quotas as alter
from ottla.wire.messages import describe_client_quotas as describe
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.wire_client import WireClient, batch

_CLIENT = (("client-id", "test"),)
_ME = (("user", "ANONYMOUS"),)
#: Throttle time, session id, bytes of records.
FetchAnswer: TypeAlias = tuple[int, int, int]


@pytest.fixture
def clock() -> ManualClock:
    """Time stands still, so that every figure is exact."""
    return ManualClock()


@pytest.fixture
async def broker(clock: ManualClock) -> AsyncIterator[AsyncBroker]:
    """A broker with that clock."""
    async with AsyncBroker(clock=clock) as running:
        yield running


def _entry(of: tuple[tuple[str, str | None], ...], **values: float | None) -> alter.EntryData:
    ops = tuple(alter.OpData(key, value or 0.0, value is None) for key, value in values.items())
    return alter.EntryData(tuple(alter.EntityData(*part) for part in of), ops)


async def _alter(
    client: WireClient, *entries: alter.EntryData, validate_only: bool = False, version: int = 1
) -> list[tuple[int, str | None]]:
    request = alter.AlterClientQuotasRequest(entries, validate_only)
    answer = await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, request, version)
    return [(each.error_code, each.error_message) for each in answer.entries]


async def _all(client: WireClient, version: int = 1) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    answer = await client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, describe.DescribeClientQuotasRequest(), version)
    assert answer.error_code == 0
    return {tuple(map(tuple, each.entity)): dict(each.values) for each in answer.entries}


async def _make_topic(client: WireClient, topic: str = "t") -> bytes:
    made = await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest((CreatableTopic(topic, 1, 1),), 10_000))
    return bytes(made.topics[0].topic_id)


def _produce(size_bytes: int, acks: int = -1) -> ProduceRequest:
    """A request whose frame has exactly this size in version 12."""
    empty = ProduceRequest(None, acks, 10_000, (TopicProduceData(name="t", partition_data=(_data(b"x" * 1000),)),))
    rest = len(encode_request(ApiKey.PRODUCE, 12, 1, "test", empty)) - 4 - 1000
    value = b"x" * (size_bytes - rest)
    more = len(encode_request(ApiKey.PRODUCE, 12, 1, "test", _with(empty, value))) - 4 - size_bytes
    return _with(empty, value[more:])


def _with(request: ProduceRequest, value: bytes) -> ProduceRequest:
    return request._replace(topic_data=(TopicProduceData(name="t", partition_data=(_data(value),)),))


def _data(value: bytes) -> PartitionProduceData:
    return PartitionProduceData(0, batch(value))


# --- what is set ---


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_set_described_and_removed(client: WireClient, version: int) -> None:
    both = (("client-id", "app"), ("user", None))
    set_ = [_entry(_ME, producer_byte_rate=5.0, request_percentage=12.5), _entry(both, consumer_byte_rate=7.0)]
    assert await _alter(client, *set_, version=version) == [(0, None)] * 2
    expected = {_ME: {"producer_byte_rate": 5.0, "request_percentage": 12.5}, both: {"consumer_byte_rate": 7.0}}
    assert await _all(client, version) == expected
    assert await _alter(client, _entry(_ME, producer_byte_rate=None), version=version) == [(0, None)]
    assert await _alter(client, _entry(both, consumer_byte_rate=None), version=version) == [(0, None)]
    assert await _all(client, version) == {_ME: {"request_percentage": 12.5}}
    assert await _alter(client, _entry(_ME, controller_mutation_rate=1.0), validate_only=True) == [(0, None)]
    assert await _all(client) == {_ME: {"request_percentage": 12.5}}


_WRONG: list[tuple[alter.EntryData, str]] = [
    (_entry((), producer_byte_rate=1.0), "empty client quota entity"),
    (_entry((("user", ""),), producer_byte_rate=1.0), "Empty user not supported"),
    (_entry((("tribe", "x"),), producer_byte_rate=1.0), "Unhandled client quota entity type: tribe"),
    (_entry((("user", "a"), ("user", "b")), producer_byte_rate=1.0), "twice the same type"),
    (_entry((("ip", "1.2.3.4"), ("user", "a")), connection_creation_rate=1.0), "cannot be combined"),
    (_entry((("ip", "999.1.2.3"),), connection_creation_rate=1.0), "999.1.2.3 is not a valid IP"),
    (_entry((("ip", "1.2.3.4"),), producer_byte_rate=1.0), "Invalid configuration key producer_byte_rate"),
    (_entry(_ME, connection_creation_rate=1.0), "Invalid configuration key connection_creation_rate"),
    (_entry(_ME, producer_byte_rate=0.0), "must be greater than 0"),
    (_entry(_ME, request_percentage=-1.0), "must be greater than 0"),
    (_entry(_ME, request_percentage=float("nan")), "must be greater than 0"),
    (_entry(_ME, producer_byte_rate=1.5), "cannot be a fractional value"),
    (_entry(_ME, producer_byte_rate=1e19), "too large"),
    (_entry((("ip", None),), connection_creation_rate=2.0**31), "too large"),
]


async def test_what_can_be_no_quota_is_refused_and_nothing_of_it_is_set(client: WireClient) -> None:
    for entry, problem in _WRONG:
        [(error, message)] = await _alter(client, entry)
        assert error == ErrorCode.INVALID_REQUEST
        assert problem in (message or ""), entry
    [(error, _)] = await _alter(client, _entry(_ME, request_percentage=1.0, producer_byte_rate=1.5))
    assert error == ErrorCode.INVALID_REQUEST
    twice = _entry(_ME, producer_byte_rate=1.0)
    [(error, message)] = await _alter(client, twice._replace(ops=twice.ops * 2))
    assert (error, message) == (ErrorCode.INVALID_REQUEST, "Duplicate quota key producer_byte_rate of user=ANONYMOUS")
    assert await _all(client) == {}


async def test_of_an_entity_that_is_named_twice_the_first_counts_and_an_error_is_told(client: WireClient) -> None:
    first, second = _entry(_CLIENT, producer_byte_rate=1e6), _entry(_CLIENT, producer_byte_rate=2e6)
    assert await _alter(client, first, second) == [
        (ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity client-id=test")
    ]
    assert await _all(client) == {_CLIENT: {"producer_byte_rate": 1e6}}


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("", 0, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 0, "x"), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("tribe", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused(
    client: WireClient, components: list[tuple[str, int, str | None]], error: ErrorCode
) -> None:
    request = describe.DescribeClientQuotasRequest(tuple(describe.ComponentData(*each) for each in components))
    answer = await client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, request)
    assert (answer.error_code, answer.entries) == (error, None)
    assert answer.error_message


async def test_quotas_are_there_after_a_restart(tmp_path: Path) -> None:
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        assert await _alter(client, _entry(_ME, producer_byte_rate=10.0), _entry(_CLIENT, request_percentage=99.0))
        assert await _alter(client, _entry(_CLIENT, request_percentage=None)) == [(0, None)]
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        assert broker.node.quotas.is_on
        assert await _all(client) == {_ME: {"producer_byte_rate": 10.0}}


def test_a_quota_in_the_metadata_log_has_the_bytes_of_kafkas_client_quota_record() -> None:
    record = ClientQuotaRecord((QuotaEntityData("user", None),), "request_percentage", 2.0)
    value = encode_record(record)
    expected = "010e00 02 05 75736572 00 00 13 726571756573745f70657263656e74616765 4000000000000000 00 00"
    assert value.hex() == expected.replace(" ", "")
    assert decode_record(value) == record


# --- what they do ---


async def test_a_produce_above_the_quota_is_answered_with_the_throttle_time(
    client: WireClient, clock: ManualClock
) -> None:
    await _make_topic(client)
    await _alter(client, _entry(_CLIENT, producer_byte_rate=1000.0))
    answer = await client.ask(ApiKey.PRODUCE, _produce(10_000), 12)
    assert (answer.throttle_time_ms, answer.responses[0].partition_responses[0].error_code) == (0, 0)
    answer = await client.ask(ApiKey.PRODUCE, _produce(1020), 12)  # 11,020 bytes in what counts as ten seconds
    assert (answer.throttle_time_ms, answer.responses[0].partition_responses[0].base_offset) == (1020, 1)
    clock.advance(11_000)
    answer = await client.ask(ApiKey.PRODUCE, _produce(10_000), 12)
    assert answer.throttle_time_ms == 0


async def test_a_throttled_connection_is_not_served_and_others_are(broker: AsyncBroker, client: WireClient) -> None:
    await _make_topic(client)
    await _alter(client, _entry(_CLIENT, producer_byte_rate=1000.0))
    assert (await client.ask(ApiKey.PRODUCE, _produce(70_000), 12)).throttle_time_ms == 60_000
    version = await client.send(ApiKey.LIST_GROUPS, ListGroupsRequest())
    waiting = asyncio.create_task(client.answer(ApiKey.LIST_GROUPS, version))
    async with WireClient(broker, "other") as other:
        for _ in range(20):
            await other.ask(ApiKey.LIST_GROUPS, ListGroupsRequest())
    assert not waiting.done()
    waiting.cancel()


async def test_after_the_throttle_time_the_connection_is_served(broker: AsyncBroker, client: WireClient) -> None:
    await _make_topic(client)
    await _alter(client, _entry(_CLIENT, producer_byte_rate=1000.0))
    assert (await client.ask(ApiKey.PRODUCE, _produce(10_030), 12)).throttle_time_ms == 30
    assert (await client.ask(ApiKey.LIST_GROUPS, ListGroupsRequest())).throttle_time_ms == 0


async def test_without_an_answer_the_connection_is_silent_all_the_same(broker: AsyncBroker, client: WireClient) -> None:
    await _make_topic(client)
    await _alter(client, _entry(_CLIENT, producer_byte_rate=1000.0))
    await client.send(ApiKey.PRODUCE, _produce(70_000, acks=0), 12)
    version = await client.send(ApiKey.LIST_GROUPS, ListGroupsRequest())
    waiting = asyncio.create_task(client.answer(ApiKey.LIST_GROUPS, version))
    async with WireClient(broker, "other") as other:
        for _ in range(20):
            await other.ask(ApiKey.LIST_GROUPS, ListGroupsRequest())
    assert not waiting.done()
    waiting.cancel()


async def _fetch(
    client: WireClient, topic_id: bytes, offset: int, *, session: tuple[int, int] = (0, -1)
) -> FetchAnswer:
    asked = FetchTopic(
        topic_id=topic_id, partitions=(FetchPartition(0, fetch_offset=offset, partition_max_bytes=10**6),)
    )
    request = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=session[0], session_epoch=session[1], topics=(asked,))
    answer = await client.ask(ApiKey.FETCH, request, 17)
    records = sum(len(each.records or b"") for topic in answer.responses for each in topic.partitions)
    return answer.throttle_time_ms, answer.session_id, records


async def test_a_fetch_above_the_quota_gets_nothing_and_has_used_nothing(
    client: WireClient, clock: ManualClock
) -> None:
    topic_id = await _make_topic(client)
    for _ in range(4):
        await client.ask(ApiKey.PRODUCE, _with(_produce(2000), b"x" * 3000), 12)
    await _alter(client, _entry(_CLIENT, consumer_byte_rate=1000.0))
    # No more than ten seconds' worth is read; with what stands around the records it is a little too much.
    throttle_ms, session_id, records = await _fetch(client, topic_id, 0, session=(0, 0))
    assert (50 < throttle_ms < 100, session_id, records) == (True, 0, 0)
    clock.advance(throttle_ms)
    throttle_ms, session_id, records = await _fetch(client, topic_id, 0, session=(0, 0))
    assert (throttle_ms, session_id > 0, records) == (0, True, 10_000)
    assert (await _fetch(client, topic_id, 3))[0] > 2000
    clock.advance(11_000)
    throttle_ms, _, records = await _fetch(client, topic_id, 3)
    assert (throttle_ms, 3000 < records < 3200) == (0, True)


async def test_a_throttled_fetch_of_a_session_forgets_no_news(client: WireClient, clock: ManualClock) -> None:
    topic_id = await _make_topic(client)
    await client.ask(ApiKey.PRODUCE, _with(_produce(2000), b"x" * 6000), 12)
    await _alter(client, _entry(_CLIENT, consumer_byte_rate=1000.0))
    throttle_ms, session_id, _ = await _fetch(client, topic_id, 0, session=(0, 0))
    assert throttle_ms == 0
    throttle_ms, same_id, records = await _fetch(client, topic_id, 0, session=(session_id, 1))
    assert (throttle_ms > 0, same_id, records) == (True, session_id, 0)
    clock.advance(11_000)
    throttle_ms, same_id, records = await _fetch(client, topic_id, 0, session=(session_id, 2))
    assert (throttle_ms, same_id, records > 6000) == (0, session_id, True)


async def test_time_that_a_request_takes_counts_up_to_one_window(broker: AsyncBroker, client: WireClient) -> None:
    await _alter(client, _entry(_CLIENT, request_percentage=10.0))
    broker.node.quotas.nanos = _steps_of(40_000_000)  # 40 ms a request
    throttled = [
        (await client.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest())).throttle_time_ms for _ in range(27)
    ]
    assert throttled[:25] == [0] * 25  # a second in what counts as ten
    assert throttled[25:] == [400, 800]
    broker.node.quotas.nanos = _steps_of(10**11)
    assert (await client.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest())).throttle_time_ms == 1000


async def test_a_request_of_many_partitions_is_counted_slice_by_slice(
    broker: AsyncBroker, client: WireClient, clock: ManualClock
) -> None:
    made = await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest((CreatableTopic("t", 201, 1),), 10_000))
    await _alter(client, _entry(_CLIENT, request_percentage=10.0, consumer_byte_rate=1e6))
    data = TopicProduceData(name="t", partition_data=tuple(PartitionProduceData(at, batch(b"x")) for at in range(51)))
    asked = tuple(FetchPartition(at, fetch_offset=0, partition_max_bytes=1000) for at in range(201))
    topic = FetchTopic(topic_id=made.topics[0].topic_id, partitions=asked)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=10**6, session_epoch=-1, topics=(topic,))
    for key, request, version in (
        (ApiKey.PRODUCE, ProduceRequest(None, -1, 10_000, (data,)), 12),
        (ApiKey.FETCH, fetch, 17),
    ):
        clock.advance(11_000)
        broker.node.quotas.nanos = _steps_of(25_000_000)  # 25 ms a slice; a second is free
        answer = await client.ask(key, request, version)
        assert answer.throttle_time_ms == 1000
        broker.node.quotas.nanos = _steps_of(0)


def _steps_of(step_ns: int) -> Callable[[], int]:
    return count(0, step_ns).__next__


async def test_a_strict_change_of_topics_is_refused_when_others_have_taken_too_much(
    client: WireClient, clock: ManualClock
) -> None:
    await _alter(client, _entry(_CLIENT, controller_mutation_rate=100.0))
    request = CreateTopicsRequest(
        (CreatableTopic("a", 1000, 1), CreatableTopic("b", 105, 1), CreatableTopic("c", 1, 1))
    )
    answer = await client.ask(ApiKey.CREATE_TOPICS, request)
    assert {each.name: each.error_code for each in answer.topics} == {"a": 0, "b": 0, "c": 89}
    assert answer.throttle_time_ms == 50  # 1,105 of 1,100
    clock.advance(40)
    grown = CreatePartitionsRequest((CreatePartitionsTopic("a", 1001, None),))
    answer = await client.ask(ApiKey.CREATE_PARTITIONS, grown)
    assert (answer.results[0].error_code, answer.throttle_time_ms) == (89, 10)
    deleted = DeleteTopicsRequest((DeleteTopicState("a"),))
    answer = await client.ask(ApiKey.DELETE_TOPICS, deleted)
    assert (answer.responses[0].error_code, answer.throttle_time_ms) == (89, 10)
    named = MetadataRequest((MetadataRequestTopic(name="new"),), allow_auto_topic_creation=True)
    answer = await client.ask(ApiKey.METADATA, named)
    assert (answer.topics[0].error_code, answer.throttle_time_ms) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    clock.advance(10)
    assert (await client.ask(ApiKey.METADATA, named)).topics[0].error_code == 0
    clock.advance(10)
    answer = await client.ask(ApiKey.DELETE_TOPICS, deleted)
    assert (answer.responses[0].error_code, answer.throttle_time_ms) == (0, 0)


async def test_a_client_that_does_not_know_the_error_only_has_to_wait(client: WireClient) -> None:
    await _alter(client, _entry(_CLIENT, controller_mutation_rate=100.0))
    request = CreateTopicsRequest((CreatableTopic("a", 1100, 1), CreatableTopic("b", 1, 1), CreatableTopic("c", 1, 1)))
    answer = await client.ask(ApiKey.CREATE_TOPICS, request, 5)
    assert [each.error_code for each in answer.topics] == [0, 0, 0]
    assert answer.throttle_time_ms == 20


@pytest.mark.parametrize("quota", [1e-5, 5e-324])
async def test_an_answer_is_sent_however_long_the_client_is_to_be_silent(broker: AsyncBroker, quota: float) -> None:
    broker.node.image.quotas.set(_CLIENT, QuotaKey.CONTROLLER, quota)
    for version, refused in ((5, False), (7, True)):
        request = CreateTopicsRequest((CreatableTopic(f"t{version}", 50, 1),))
        async with WireClient(broker) as client:
            answer = await client.ask(ApiKey.CREATE_TOPICS, request, version)
        assert answer.throttle_time_ms == 2**31 - 1
        assert (answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED) is refused


async def test_clients_that_give_themselves_ever_new_ids_take_no_memory(
    broker: AsyncBroker, clock: ManualClock
) -> None:
    async with WireClient(broker) as client:
        await _alter(client, _entry((("client-id", None),), request_percentage=1.0, producer_byte_rate=1.0))
    quotas = broker.node.quotas
    for number in range(5_000):
        quotas.used(QuotaKey.REQUEST, "ANONYMOUS", f"client-{number}", 1.0)
        clock.advance(11)
    assert quotas.count <= 2_002


async def test_long_client_ids_are_not_kept(broker: AsyncBroker) -> None:
    quotas = broker.node.quotas
    broker.node.image.quotas.set((("client-id", None),), QuotaKey.REQUEST, 1.0)
    quotas.used(QuotaKey.REQUEST, "ANONYMOUS", "x" * 32_000, 100.0)
    tracemalloc.start()
    try:
        for number in range(1_000):
            quotas.used(QuotaKey.REQUEST, "ANONYMOUS", f"{number:32000}", 1.0)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2_000_000
    assert quotas.used(QuotaKey.REQUEST, "ANONYMOUS", "x" * 32_000, 0.0) > 0, "each has its own all the same"
    assert quotas.used(QuotaKey.REQUEST, "ANONYMOUS", "x" * 31_999, 0.0) == 0


@pytest.mark.parametrize("key", [QuotaKey.REQUEST, QuotaKey.CONTROLLER])
async def test_too_many_client_ids_share_what_the_default_allows(
    broker: AsyncBroker, clock: ManualClock, key: QuotaKey
) -> None:
    quotas, table = broker.node.quotas, broker.node.image.quotas
    table.set((("client-id", None),), key, 1.0)
    table.set((("client-id", "named"),), key, 1.0)

    def use(client_id: str, amount: int) -> int:
        if key is QuotaKey.REQUEST:
            return quotas.used(key, "ANONYMOUS", client_id, amount)
        return quotas.changed_topics("ANONYMOUS", client_id, amount, strict=False)[1]

    for number in range(MAX_QUOTA_SHARERS + 100):
        use(f"client-{number}", 1)
    assert quotas.count <= MAX_QUOTA_SHARERS + 1
    assert use("one of the others", 1) > 0
    assert use("client-5", 1) == 0
    assert use("named", 1) == 0
    clock.advance(3_600_000)
    assert use("one of the others", 1) == 0
    assert quotas.count <= 10, "what is as new is forgotten, and each has its own again"

"""Requests that name thousands of topics, mostly without partitions, and without a right to them: decided in turns.

Each piece is charged to the client where there are quotas: a turn has few of them, and all together are as many as
there are names, or as there are parts.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.clock import ManualClock
from ottla.base.limits import MAX_CHANGES
from ottla.broker.access.acls import AclFilter
from ottla.broker.answers import Later
from ottla.broker.handlers import add_partitions_to_txn, describe_topic_partitions, offset_fetch
from ottla.broker.handlers.encoding import as_it_is
from ottla.broker.handlers.large import in_its_turn, slowly
from ottla.broker.handlers.parts import PART_NAMES, PART_TOPICS, cut, weight
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.records import TopicRecord
from ottla.broker.runtime.slices import TURN_MS, Slices
from ottla.broker.session import Session
from ottla.testing import AsyncBroker
from ottla.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_request, encode_request
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderTopic
from ottla.wire.messages.produce import ProduceRequest, TopicProduceData
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from tests.broker.guarded import GUARDED, allow_only, allowed
from tests.broker.ticking import TickingClock, in_pieces, steps, turns
from tests.broker.wire_client import WireClient

_PARTS = 6
_NAMES = tuple(f"n{number:04}" for number in range((_PARTS - 1) * PART_TOPICS + 1))
#: One more than a part has, with short names.
_FEW = tuple(f"{number:03}" for number in range(PART_TOPICS + 1))
#: What is asked, in which version, and in how many pieces it is done at least.
_ASKED: dict[ApiKey, tuple[tuple[Any, ...], int, int]] = {
    ApiKey.LIST_OFFSETS: (ListOffsetsRequest(-1, topics=tuple(map(ListOffsetsTopic, _NAMES))), 9, _PARTS),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        OffsetForLeaderEpochRequest(-1, tuple(map(OffsetForLeaderTopic, _NAMES))),
        4,
        _PARTS,
    ),
    ApiKey.OFFSET_DELETE: (OffsetDeleteRequest("g", tuple(map(OffsetDeleteRequestTopic, _NAMES))), 0, _PARTS),
    ApiKey.OFFSET_COMMIT: (
        OffsetCommitRequest("g", topics=tuple(OffsetCommitRequestTopic(name=name) for name in _NAMES)),
        9,
        _PARTS,
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        TxnOffsetCommitRequest("t", "g", 1, topics=tuple(map(TxnOffsetCommitRequestTopic, _NAMES))),
        3,
        _PARTS,
    ),
    ApiKey.OFFSET_FETCH: (
        OffsetFetchRequest(
            (OffsetFetchRequestGroup("g", topics=tuple(OffsetFetchRequestTopics(name=name) for name in _NAMES)),)
        ),
        9,
        0,
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        AddPartitionsToTxnRequest((), "t", 1, 0, tuple(AddPartitionsToTxnTopic(name, (0,)) for name in _NAMES)),
        3,
        len(_NAMES),
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        ConsumerGroupHeartbeatRequest("g", "m", 0, None, None, 9_000, _NAMES, None, None, ()),
        1,
        len(_NAMES),
    ),
    ApiKey.PRODUCE: (ProduceRequest(None, 1, 9, tuple(TopicProduceData(name=name) for name in _NAMES)), 9, len(_NAMES)),
}

pytestmark = pytest.mark.usefixtures("group_coordinator", "transaction_coordinator")


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[AsyncBroker]:
    settings = GUARDED | {"super.users": ""}
    async with AsyncBroker(settings, data_dir=directory, clock=TickingClock()) as running:
        yield running


@pytest.mark.parametrize("key", _ASKED)
async def test_thousands_of_names_are_decided_in_turns(broker: AsyncBroker, client: WireClient, key: ApiKey) -> None:
    await allow_only(
        broker,
        (
            allowed(AclOperation.ALL, ResourceType.GROUP),
            allowed(AclOperation.ALL, ResourceType.TRANSACTIONAL_ID),
            allowed(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),
        ),
    )
    request, version, least = _ASKED[key]
    _, pieces = await in_pieces(broker, client, key, request, version)
    assert pieces >= least


@pytest.mark.parametrize("key", [key for key, (_, _, least) in _ASKED.items() if least == _PARTS])
async def test_one_topic_more_than_a_part_has_is_decided_in_another_turn(
    broker: AsyncBroker, client: WireClient, key: ApiKey
) -> None:
    """Up to 500 topics, with few bytes each, were one part."""
    await allow_only(broker, (allowed(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),))
    request: Any = _ASKED[key][0]
    field = "topic" if key is ApiKey.OFFSET_FOR_LEADER_EPOCH else "name"
    topics = tuple(each._replace(**{field: name}) for each, name in zip(request.topics, _FEW, strict=False))
    _, at_once = await in_pieces(broker, client, key, request._replace(topics=topics[:-1]), _ASKED[key][1])
    _, pieces = await in_pieces(broker, client, key, request._replace(topics=topics), _ASKED[key][1])
    assert pieces > at_once


async def test_more_topics_than_a_part_has_are_added_and_looked_up_in_turns(broker: AsyncBroker) -> None:
    offsets = OffsetFetchRequestGroup("g", topics=tuple(OffsetFetchRequestTopics(name=name) for name in _FEW))
    topics = tuple(AddPartitionsToTxnTopic(name, (0,)) for name in _FEW)
    session = Session("PLAINTEXT", "/127.0.0.1")
    fetch = RequestContext(ApiKey.OFFSET_FETCH, 9, 1, "c", session)
    add = RequestContext(ApiKey.ADD_PARTITIONS_TO_TXN, 3, 1, "c", session)
    for answer in (
        offset_fetch.handle(broker.node, OffsetFetchRequest((offsets,)), fetch),
        add_partitions_to_txn.handle(broker.node, AddPartitionsToTxnRequest((), "t", 1, 0, topics), add),
    ):
        assert isinstance(answer, asyncio.Future)
        await answer


def test_a_topic_without_partitions_is_as_much_as_one_with_one() -> None:
    topics = [ListOffsetsTopic(name) for name in _NAMES]
    assert weight(topics, "partitions") == len(_NAMES)
    parts = list(cut(topics, "partitions"))
    assert [len(part) for part, _ in parts] == [*[PART_TOPICS] * (_PARTS - 1), 1]
    assert [each for part, goes_on in parts for each in part if not goes_on] == topics


@pytest.mark.parametrize("how", [in_its_turn, slowly])
async def test_what_waits_is_given_up_with_its_connection_also_in_the_turn_in_which_it_begins(how: object) -> None:
    """A fetch may wait for weeks. Nobody knew of it any more."""
    clock, waits = ManualClock(), asyncio.get_running_loop().create_future()
    context = RequestContext(ApiKey.HEARTBEAT, 4, 1, "c", Session("PLAINTEXT", "/127.0.0.1"))

    def carry_out(_: object = None) -> Later:
        clock.advance(2 * TURN_MS)
        asyncio.get_running_loop().call_soon(lambda: task.cancel())
        return Later(waits, as_it_is)

    slices = Slices(clock)
    if how is slowly:
        frame = encode_request(ApiKey.HEARTBEAT, 4, 1, "c", HeartbeatRequest("g", 1, "m"))[4:]
        task = asyncio.ensure_future(slowly(slices, context, frame, decode_request(frame)[1], carry_out))
    else:
        task = asyncio.ensure_future(in_its_turn(slices, context, carry_out))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert waits.cancelled()


async def test_a_topic_that_is_deleted_while_all_are_described_is_left_out() -> None:
    context = RequestContext(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 1, "c", Session("PLAINTEXT", "/127.0.0.1"))
    async with AsyncBroker() as broker:
        image = MetadataImage()
        for number in range(200):
            image.apply(TopicRecord(f"t{number:03}", number.to_bytes(16)))
        node = SimpleNamespace(
            access=broker.node.access, config=broker.node.config, image=image, slices=Slices(TickingClock())
        )
        asked = DescribeTopicPartitionsRequest((), 2_000)
        answer = describe_topic_partitions.handle(cast(Any, node), asked, context)
        for _ in range(5):
            await asyncio.sleep(0)
        del image.topics["t150"]
        told = (await answer).topics
    assert [each.name for each in told] == [f"t{number:03}" for number in range(200) if number != 150]
    assert {each.error_code for each in told} == {0}


async def test_a_refusal_waits_for_no_other_change_of_topics(broker: AsyncBroker, client: WireClient) -> None:
    goes_on = asyncio.Event()
    change = broker.node.topics.change(goes_on.wait)
    answer = await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest((CreatableTopic("t", 1, 1),)))
    assert answer.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not change.done()
    goes_on.set()
    await change


async def test_acls_that_many_filters_mean_are_counted_for_each(broker: AsyncBroker, client: WireClient) -> None:
    """The answer names them for each: a few kilobytes would be answered with gigabytes."""
    rules = [allowed(AclOperation.READ, ResourceType.TOPIC, f"t{number}") for number in range(500)]
    await allow_only(broker, [*rules, allowed(AclOperation.ALTER, ResourceType.CLUSTER)])
    every = DeleteAclsFilter(*AclFilter())
    asked = DeleteAclsRequest((every,) * (MAX_CHANGES // 500 + 1))
    told = (await client.ask(ApiKey.DELETE_ACLS, asked)).filter_results
    assert {each.error_code for each in told} == {ErrorCode.POLICY_VIOLATION}
    assert len(broker.node.image.acls) == 501


async def test_very_many_filters_are_read_and_told_in_turns(broker: AsyncBroker, client: WireClient) -> None:
    """29,000 that make no sense took 29 ms of one turn."""
    there = [allowed(AclOperation.READ, ResourceType.TOPIC, f"t{number}") for number in range(3)]
    await allow_only(broker, [*there, allowed(AclOperation.ALTER, ResourceType.CLUSTER)])
    senseless = DeleteAclsFilter(*AclFilter(ResourceType.UNKNOWN, "t1", PatternType.LITERAL))
    filters = [DeleteAclsFilter(*AclFilter(ResourceType.TOPIC, f"t{number}", PatternType.LITERAL)) for number in (1, 5)]
    asked = DeleteAclsRequest((*(senseless,) * PART_NAMES, *filters))
    answer = asyncio.create_task(client.ask(ApiKey.DELETE_ACLS, asked))
    seen = await turns(answer, lambda: 0)
    told = (await answer).filter_results
    assert [each.error_code for each in told] == [ErrorCode.INVALID_REQUEST] * PART_NAMES + [ErrorCode.NONE] * 2
    assert [[acl.resource_name for acl in each.matching_acls] for each in told[-2:]] == [["t1"], []]
    assert len(seen) > 2 * len(asked.filters) / TURN_MS, "each is read, and told"


@pytest.mark.parametrize("deny_is_last", [False, True])
async def test_thousands_of_acls_come_and_go_in_turns_and_those_that_deny_come_first_and_go_last(
    broker: AsyncBroker, deny_is_last: bool
) -> None:
    """In between nobody may do what he may neither before nor after."""
    rules = [allowed(AclOperation.READ, ResourceType.TOPIC, f"t{number}") for number in range(100)]
    denied = rules[0]._replace(permission_type=AclPermissionType.DENY)
    rules = [*rules, denied] if deny_is_last else [denied, *rules]
    there = broker.node.image.acls

    def look() -> int:
        found = there.find(denied.principal, denied.host, denied.operation, denied.resource_type, denied.resource_name)
        assert found.is_denied or not found.is_allowed
        return len(there)

    for change in (broker.node.acls.create(rules), broker.node.acls.delete([AclFilter()])):
        seen = [look()]
        while not change.done():
            await asyncio.sleep(0)
            seen.append(look())
        assert max(steps(seen)) <= TURN_MS + 1
    assert not len(there)


async def test_more_acls_than_may_be_changed_are_refused_before_they_are_looked_at(
    broker: AsyncBroker, client: WireClient
) -> None:
    await allow_only(broker, [allowed(AclOperation.ALTER, ResourceType.CLUSTER)])
    bad = AclCreation(ResourceType.TOPIC, "", PatternType.LITERAL, "nobody", "", AclOperation.READ, 0)
    told = (await client.ask(ApiKey.CREATE_ACLS, CreateAclsRequest((bad,) * (MAX_CHANGES + 1)))).results
    assert [each.error_code for each in told] == [ErrorCode.POLICY_VIOLATION] * (MAX_CHANGES + 1)

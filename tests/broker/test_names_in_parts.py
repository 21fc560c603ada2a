"""Requests that name very many groups or ids, and answers about all there are: others are served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.limits import MAX_CHANGES
from ottla.broker.handlers.parts import PART_NAMES, Names
from ottla.broker.handlers.table import TABLE
from ottla.testing import AsyncBroker
from ottla.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.schema import schema
from tests.broker.ticking import TickingClock, in_pieces, steps, turns
from tests.broker.wire_client import WireClient

_PARTS = 3
_NAMES = tuple(f"n{number:03}" for number in range((_PARTS - 1) * PART_NAMES + 1))
_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_ANY = 1

pytestmark = pytest.mark.usefixtures("group_coordinator", "transaction_coordinator")


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(_AUTHORIZER, data_dir=directory, clock=TickingClock()) as running:
        yield running


@given(st.lists(st.sampled_from("abc"), max_size=5 * PART_NAMES), st.booleans())
def test_parts_are_the_whole_request_and_their_answers_the_whole_answer(names: list[str], are_distinct: bool) -> None:
    where = Names("groups", "groups", are_distinct, at_once=2)
    whole = where.distinct(DescribeGroupsRequest(tuple(names)))
    assert whole.groups == (tuple(dict.fromkeys(names)) if are_distinct else tuple(names))
    cut = where.parts_of(whole)
    assert bool(cut) == (len(whole.groups) > 2)
    if cut:
        assert all(len(part.request.groups) <= 2 for part in cut)
        assert where.joined([part.request for part in cut]) == whole


def test_an_answer_that_refuses_the_whole_request_is_the_answer_to_all() -> None:
    where = Names("coordinator_keys", "coordinators")
    response = API[ApiKey.FIND_COORDINATOR].response
    refused = response(error_code=15)
    assert where.joined([response(), refused, response()]) == refused


def test_the_table_names_lists_of_requests_and_answers() -> None:
    entries = [(ApiKey(key), entry.names) for key, entry in TABLE.items() if entry.names is not None]
    assert len(entries) == 6
    for key, names in entries:
        for message, name in ((API[key].request, names.asked), (API[key].response, names.told)):
            (kind,) = (field.type for field in schema(message).fields if field.name == name)
            assert isinstance(kind, list), f"{key.name}: {name} is no list"


async def _make_groups(client: WireClient) -> None:
    for name in _NAMES:
        part = (OffsetCommitRequestPartition(0, 1),)
        commit = OffsetCommitRequest(name, topics=(OffsetCommitRequestTopic(name="t", partitions=part),))
        answer = await client.ask(ApiKey.OFFSET_COMMIT, commit, 9)
        assert not answer.topics[0].partitions[0].error_code


_ASKED: dict[ApiKey, tuple[int, Any]] = {
    ApiKey.FIND_COORDINATOR: (4, lambda names: FindCoordinatorRequest("", 0, names)),
    ApiKey.OFFSET_FETCH: (
        9,
        lambda names: OffsetFetchRequest(tuple(OffsetFetchRequestGroup(name, topics=None) for name in names)),
    ),
    ApiKey.DESCRIBE_GROUPS: (5, DescribeGroupsRequest),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (1, ConsumerGroupDescribeRequest),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, DescribeTransactionsRequest),
}


#: What is told of one name may be long: of thousands of members, or of partitions.
_ONE_BY_ONE = (ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.DESCRIBE_TRANSACTIONS)


@pytest.mark.parametrize("key", _ASKED)
async def test_what_is_asked_of_many_is_answered_in_parts_and_in_order(
    broker: AsyncBroker, client: WireClient, key: ApiKey
) -> None:
    version, request = _ASKED[key]
    answer, pieces = await in_pieces(broker, client, key, request(_NAMES), version)
    names = TABLE[key].names
    assert names is not None
    parts = -(-len(_NAMES) // names.at_once)
    more = len(_NAMES) + parts if key in _ONE_BY_ONE else 0
    if key == ApiKey.DESCRIBE_GROUPS:
        more = len(_NAMES) // 50 + parts
    assert pieces == 2 * parts + more, "each part is one step, and then the end of the steps; so are few names"
    told = getattr(answer, names.told)
    assert [name in each for each, name in zip(told, _NAMES, strict=True)] == [True] * len(_NAMES)


async def test_many_groups_are_listed_described_and_deleted_in_turns(broker: AsyncBroker, client: WireClient) -> None:
    await broker.node.topics.create("t", 1, {})
    await _make_groups(client)
    listing, pieces = await in_pieces(broker, client, ApiKey.LIST_GROUPS, ListGroupsRequest(), 5)
    assert pieces >= _PARTS
    assert sorted(group.group_id for group in listing.groups) == list(_NAMES)
    described: DescribeGroupsResponse = await client.ask(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(_NAMES), 5)
    assert {(group.error_code, group.group_state) for group in described.groups} == {(0, "Empty")}

    def there() -> int:
        return sum(len(part) for runner in broker.node.groups.active() for part in runner.shard.list_groups())

    asked = DeleteGroupsRequest((*_NAMES, *_NAMES[:5], "nobody"))
    deleting = asyncio.create_task(client.ask(ApiKey.DELETE_GROUPS, asked, 2))
    assert max(steps(await turns(deleting, there))) <= PART_NAMES
    results = {(each.group_id, each.error_code) for each in (await deleting).results}
    assert results == {*((name, 0) for name in _NAMES), ("nobody", 69)}
    assert len((await deleting).results) == len(_NAMES) + 1, "a group that is named twice is deleted once"


def _changes(names: Sequence[str]) -> list[tuple[ApiKey, tuple[Any, ...], int, str]]:
    """A rule, a quota and a user of each name; where the answers say what became of them."""
    topic, literal = ResourceType.TOPIC, PatternType.LITERAL
    rule = AclOperation.READ, AclPermissionType.ALLOW
    rules = tuple(AclCreation(topic, name, literal, f"User:{name}", "*", *rule) for name in names)
    limit = (OpData("producer_byte_rate", 9.0, False),)
    limits = tuple(EntryData((EntityData("user", name),), limit) for name in names)
    users = tuple(ScramCredentialUpsertion(name, 1, 4096, b"s" * 16, b"p" * 32) for name in names)
    return [
        (ApiKey.CREATE_ACLS, CreateAclsRequest(rules), 3, "results"),
        (ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(limits), 1, "entries"),
        (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentialsRequest((), users), 0, "results"),
    ]


_EVERY_RULE = (_ANY, None, _ANY, None, None, _ANY, _ANY)


async def test_many_rules_quotas_and_users_are_described_in_turns(broker: AsyncBroker, client: WireClient) -> None:
    for key, request, version, field in _changes(_NAMES):
        told = getattr(await client.ask(key, request, version), field)
        assert [each.error_code for each in told] == [0] * len(_NAMES)
    every_rule = DescribeAclsRequest(*_EVERY_RULE)
    asked: list[tuple[ApiKey, tuple[Any, ...], int, str]] = [
        (ApiKey.DESCRIBE_ACLS, every_rule, 3, "resources"),
        (ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest(), 1, "entries"),
        (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest(None), 0, "results"),
    ]
    for key, request, version, field in asked:
        answer, pieces = await in_pieces(broker, client, key, request, version)
        assert len(getattr(answer, field)) >= len(_NAMES)
        assert pieces >= len(_NAMES)


async def test_all_topics_are_described_in_turns(broker: AsyncBroker, client: WireClient) -> None:
    for name in _NAMES:
        await broker.node.topics.create(name, 1, {})
    asked: list[tuple[ApiKey, tuple[Any, ...], int]] = [
        (ApiKey.METADATA, MetadataRequest(None), 13),
        (ApiKey.METADATA, MetadataRequest(tuple(MetadataRequestTopic(name=name) for name in _NAMES)), 13),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest((), 2_000), 0),
        (ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None), 4),
    ]
    for key, request, version in asked:
        answer, pieces = await in_pieces(broker, client, key, request, version)
        assert pieces >= len(_NAMES)
        topics = answer.results[0].topics if key == ApiKey.DESCRIBE_LOG_DIRS else answer.topics
        assert {each.name for each in topics} >= set(_NAMES)


async def test_few_topics_of_many_partitions_are_described_in_turns(broker: AsyncBroker, client: WireClient) -> None:
    for name in ("a", "b"):
        await broker.node.topics.create(name, 1_001, {})
    for asked in (None, tuple(MetadataRequestTopic(name=name) for name in ("a", "b"))):
        answer, pieces = await in_pieces(broker, client, ApiKey.METADATA, MetadataRequest(asked), 13)
        assert pieces >= 2 * 2
        assert [len(each.partitions) for each in answer.topics if each.name in ("a", "b")] == [1_001, 1_001]
    await broker.node.topics.grow_all({"a": 1_002})
    answer = await client.ask(ApiKey.METADATA, MetadataRequest(None), 13)
    assert [len(each.partitions) for each in answer.topics if each.name in ("a", "b")] == [1_002, 1_001]


async def test_more_changes_than_are_applied_at_once_are_refused_whole(broker: AsyncBroker, client: WireClient) -> None:
    rules, _, users = _changes([str(number) for number in range(MAX_CHANGES + 1)])
    two = (OpData("producer_byte_rate", 9.0, False), OpData("consumer_byte_rate", 9.0, False))
    limits = tuple(EntryData((EntityData("user", str(number)),), two) for number in range(MAX_CHANGES // 2 + 1))
    quotas = (ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(limits), 1, "entries")
    for (key, request, version, field), count in ((rules, 10_001), (users, 10_001), (quotas, 10_002)):
        told = getattr(await client.ask(key, request, version), field)
        assert {each.error_code for each in told} == {ErrorCode.POLICY_VIOLATION}
        assert "At most 10000" in told[0].error_message
        assert f"and these are {count}: send several requests" in told[0].error_message
    image = broker.node.image
    assert (len(image.acls), list(image.quotas), image.scram) == (0, [], {})


async def test_more_rules_than_are_deleted_at_once_stay(broker: AsyncBroker, client: WireClient) -> None:
    for half in ("a", "b"):
        key, request, version, _ = _changes([f"{half}{number}" for number in range(MAX_CHANGES // 2 + 1)])[0]
        await client.ask(key, request, version)
    all_of_them = DeleteAclsRequest((DeleteAclsFilter(*_EVERY_RULE),))
    (told,) = (await client.ask(ApiKey.DELETE_ACLS, all_of_them, 3)).filter_results
    assert (told.error_code, told.matching_acls) == (ErrorCode.POLICY_VIOLATION, ())
    assert len(broker.node.image.acls) == MAX_CHANGES + 2

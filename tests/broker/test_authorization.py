"""Every API asks for what its row of the table says, and gives the error that Kafka gives (SPEC X3)."""

import json
import logging
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from ottla.broker.access.acls import Acl
from ottla.broker.handlers.needs import NEEDS, Need
from ottla.broker.handlers.parts import PART_PARTITIONS
from ottla.broker.handlers.table import TABLE
from ottla.testing import AsyncBroker
from ottla.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.apis import ApiKey
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import Assignment, ConsumerGroupHeartbeatRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.broker.api_questions import ApiQuestion, questions
from tests.broker.guarded import GUARDED, UNAUTHORIZED, allow_only, allowed, errors, make_topics
from tests.broker.wire_client import WireClient

_O, _R = AclOperation, ResourceType
_ERRORS = {
    _R.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    _R.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    _R.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    _R.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
#: Whose requests are made by tests that log in (tests of SASL and SCRAM).
_ELSEWHERE = {"SASL_HANDSHAKE", "SASL_AUTHENTICATE", "DESCRIBE_USER_SCRAM_CREDENTIALS", "ALTER_USER_SCRAM_CREDENTIALS"}


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[AsyncBroker]:
    """A broker with an authorizer, where nobody may do anything yet."""
    async with AsyncBroker(GUARDED, data_dir=directory) as running:
        assert await running.node.groups.ready() is None
        assert await running.node.transactions.ready() is None
        yield running


@pytest.fixture
async def client(broker: AsyncBroker) -> AsyncIterator[WireClient]:
    """A client that did not say who it is."""
    async with WireClient(broker) as connected:
        yield connected


def test_every_api_has_a_row_and_every_row_with_needs_a_question() -> None:
    assert {entry.key.name for entry in TABLE.values()} - set(NEEDS) == set(), "add the API to handlers/needs.py"
    asked = {(each.key.name, need) for each in questions("t", "g", "x") for need in each.needs}
    told = {
        (name, at)
        for name, needs in NEEDS.items()
        for at, need in enumerate(needs)
        if name not in _ELSEWHERE and not need.left_out
    }
    # Version 6 of InitProducerId is offered with a setting only; a test of its own below.
    assert told - asked == {("INIT_PRODUCER_ID", 1), ("CONSUMER_GROUP_DESCRIBE", 1)}


_numbers = count()


async def _asked(client: WireClient, question: ApiQuestion) -> set[int]:
    message = question.message
    if isinstance(message, MetadataRequest) and message.allow_auto_topic_creation:  # it may be there already
        message = MetadataRequest((MetadataRequestTopic(name=f"new-{next(_numbers)}"),))
    return errors(await client.ask(question.key, message, question.version)) & UNAUTHORIZED


async def test_who_may_do_nothing_is_refused_by_every_api_with_its_first_error(
    broker: AsyncBroker, client: WireClient
) -> None:
    await make_topics(broker, client, "t")
    wrong = {}
    for question in questions("t", "g", "x"):
        needs = NEEDS[question.key.name]
        expected = {_ERRORS[needs[question.needs[0]].on]} if question.needs else set()
        if (found := await _asked(client, question)) != expected:
            wrong[question] = found
    assert wrong == {}


async def test_each_need_is_enough_with_the_others_and_nothing_is_without_it(
    broker: AsyncBroker, client: WireClient
) -> None:
    await make_topics(broker, client, "t")
    wrong = []
    for question in questions("t", "g", "x"):
        needs = [NEEDS[question.key.name][at] for at in question.needs]
        await allow_only(broker, {allowed(each.operation, each.on) for each in needs})
        if found := await _asked(client, question):
            wrong.append((question.key, "with all", found))
        for left_out in needs if len(needs) > 1 else ():
            await allow_only(broker, {allowed(each.operation, each.on) for each in needs if each != left_out})
            if (found := await _asked(client, question)) != {_ERRORS[left_out.on]}:
                wrong.append((question.key, f"without {left_out}", found))
        for each in needs:
            if each.or_on_cluster is not None:
                others = {allowed(other.operation, other.on) for other in needs if other != each}
                await allow_only(broker, others | {allowed(each.or_on_cluster, _R.CLUSTER)})
                if found := await _asked(client, question):
                    wrong.append((question.key, f"with {each.or_on_cluster} on the cluster", found))
    assert wrong == [], wrong


async def test_what_is_denied_is_refused_although_everything_is_allowed(
    broker: AsyncBroker, client: WireClient
) -> None:
    await make_topics(broker, client, "t")
    everything = {allowed(_O.ALL, kind) for kind in _ERRORS}
    await allow_only(broker, everything)
    for question in questions("t", "g", "x"):  # once, so that the group is there
        assert await _asked(client, question) == set()
    wrong = []
    for question in questions("t", "g", "x"):
        for need in (NEEDS[question.key.name][at] for at in question.needs):
            ways: list[tuple[AclOperation, ResourceType]] = [(need.operation, need.on)]
            if need.or_on_cluster is not None:
                ways.append((need.or_on_cluster, _R.CLUSTER))
            if (question.key, need.operation) == (ApiKey.INIT_PRODUCER_ID, _O.IDEMPOTENT_WRITE):
                ways.append((_O.WRITE, _R.TOPIC))
            if question.key is ApiKey.DELETE_TOPICS:
                continue  # the topic does not exist, and who may describe it is told so
            denied = {allowed(*way, permission_type=AclPermissionType.DENY) for way in ways}
            await allow_only(broker, everything | denied)
            if (found := await _asked(client, question)) != {_ERRORS[need.on]}:
                wrong.append((question.key, str(need), found))
    assert wrong == [], wrong


async def test_nobody_learns_names_that_he_may_not_describe(broker: AsyncBroker, client: WireClient) -> None:
    await make_topics(broker, client, "open", "secret")
    secret_id = broker.node.image.topics["secret"].topic_id
    await allow_only(broker, [allowed(_O.READ, _R.TOPIC, "open")])
    everything = await client.ask(ApiKey.METADATA, MetadataRequest(None))
    assert [each.name for each in everything.topics] == ["open"], "also the internal topics are hidden"
    pages = await client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest())
    assert [each.name for each in pages.topics] == ["open"]
    for name in ("secret", "not-there"):
        named = await client.ask(ApiKey.METADATA, MetadataRequest((MetadataRequestTopic(name=name),)))
        (topic,) = named.topics
        assert (topic.error_code, topic.topic_id) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, NULL_UUID)
        deleted = await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest((DeleteTopicState(name),)))
        assert deleted.responses[0][:3] == (name, NULL_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    by_id = await client.ask(ApiKey.METADATA, MetadataRequest((MetadataRequestTopic(secret_id, None),)))
    assert by_id.topics[0][:3] == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, secret_id)
    deleted = await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest((DeleteTopicState(None, secret_id),)))
    assert deleted.responses[0][:3] == (None, secret_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    await allow_only(broker, [allowed(_O.DESCRIBE, _R.TOPIC)])
    deleted = await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest((DeleteTopicState(None, secret_id),)))
    assert deleted.responses[0][:3] == ("secret", secret_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    deny = allowed(_O.DESCRIBE, _R.TOPIC, "secret", permission_type=AclPermissionType.DENY)
    await allow_only(broker, [allowed(_O.DELETE, _R.TOPIC), deny])
    deleted = await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest((DeleteTopicState("secret"),)))
    assert deleted.responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "secret" in broker.node.image.topics


async def test_lists_have_what_may_be_described(broker: AsyncBroker, client: WireClient) -> None:
    for group in ("mine", "theirs"):
        await allow_only(broker, [allowed(_O.READ, _R.GROUP), allowed(_O.DESCRIBE, _R.TOPIC)])
        request = ConsumerGroupHeartbeatRequest(
            group,
            f"of-{group}",
            0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=("t",),
            topic_partitions=(),
        )
        assert (await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)).error_code == 0
    await allow_only(broker, [allowed(_O.DESCRIBE, _R.GROUP, "mine")])
    listed = await client.ask(ApiKey.LIST_GROUPS, ListGroupsRequest())
    assert [each.group_id for each in listed.groups] == ["mine"]
    await allow_only(broker, [allowed(_O.DESCRIBE, _R.CLUSTER)])
    listed = await client.ask(ApiKey.LIST_GROUPS, ListGroupsRequest())
    assert {each.group_id for each in listed.groups} == {"mine", "theirs"}
    await allow_only(broker, [allowed(_O.WRITE, _R.TRANSACTIONAL_ID)])
    for question in questions("t", "g", "tx-a") + questions("t", "g", "tx-b"):
        if question.key is ApiKey.INIT_PRODUCER_ID and question.needs == (0,):
            await client.ask(question.key, question.message, question.version)
    await allow_only(broker, [allowed(_O.DESCRIBE, _R.TRANSACTIONAL_ID, "tx-a")])
    listed = await client.ask(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest())
    assert [each.transactional_id for each in listed.transaction_states] == ["tx-a"]


async def _until_assigned(client: WireClient, join: ConsumerGroupHeartbeatRequest) -> Assignment:
    """A member's heartbeats until it has partitions; these."""
    epoch = 0
    while True:
        answer = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, join._replace(member_epoch=epoch))
        assert answer.error_code == 0
        epoch, assignment = answer.member_epoch, answer.assignment
        if assignment is not None and assignment.topic_partitions:
            assert isinstance(assignment, Assignment)
            return assignment


async def test_a_group_with_topics_that_may_not_be_described_is_not_shown(
    broker: AsyncBroker, client: WireClient
) -> None:
    await make_topics(broker, client, "open", "secret")
    await allow_only(broker, [allowed(_O.READ, _R.GROUP), allowed(_O.DESCRIBE, _R.TOPIC)])
    join = ConsumerGroupHeartbeatRequest(
        "g", "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=("open", "secret"), topic_partitions=()
    )
    await _until_assigned(client, join)
    seen = await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(("g",)))
    assert seen.groups[0].members[0].member_id == "m"
    await allow_only(broker, [allowed(_O.READ, _R.GROUP), allowed(_O.DESCRIBE, _R.TOPIC, "open")])
    (hidden,) = (await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(("g",)))).groups
    assert (hidden.error_code, hidden.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ())


async def test_a_regular_expression_matches_topics_that_its_member_may_describe(
    broker: AsyncBroker, client: WireClient
) -> None:
    await make_topics(broker, client, "logs-open", "logs-secret")
    await allow_only(broker, [allowed(_O.READ, _R.GROUP), allowed(_O.DESCRIBE, _R.TOPIC, "logs-open")])
    join = ConsumerGroupHeartbeatRequest(
        "g", "m", 0, rebalance_timeout_ms=1000, subscribed_topic_regex="logs-.*", topic_partitions=()
    )
    assigned = await _until_assigned(client, join)
    image = broker.node.image
    assert [image.topics_by_id[each.topic_id].name for each in assigned.topic_partitions] == ["logs-open"]


async def test_authorized_operations_are_those_that_acls_allow(broker: AsyncBroker, client: WireClient) -> None:
    await make_topics(broker, client, "t")
    await allow_only(broker, [allowed(_O.WRITE, _R.TOPIC, "t"), allowed(_O.ALTER_CONFIGS, _R.CLUSTER)])
    request = MetadataRequest((MetadataRequestTopic(name="t"),), False, include_topic_authorized_operations=True)
    (topic,) = (await client.ask(ApiKey.METADATA, request)).topics
    assert topic.topic_authorized_operations == 1 << _O.WRITE | 1 << _O.DESCRIBE
    cluster = await client.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(True))
    assert (cluster.error_code, cluster.cluster_authorized_operations) == (0, 0), "the cluster may not be described"
    await allow_only(broker, [allowed(_O.DESCRIBE, _R.CLUSTER), allowed(_O.ALTER_CONFIGS, _R.CLUSTER)])
    cluster = await client.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(True))
    expected = sum(1 << each for each in (_O.DESCRIBE, _O.ALTER_CONFIGS, _O.DESCRIBE_CONFIGS))
    assert cluster.cluster_authorized_operations == expected


async def test_whoever_makes_a_topic_sees_its_settings_if_he_may(broker: AsyncBroker, client: WireClient) -> None:
    create = [allowed(_O.CREATE, _R.TOPIC, "new", pattern_type=PatternType.PREFIXED)]
    await allow_only(broker, create)
    request = CreateTopicsRequest((CreatableTopic("new-1", 1, 1), CreatableTopic("other", 1, 1)), 10_000)
    made = {each.name: each for each in (await client.ask(ApiKey.CREATE_TOPICS, request)).topics}
    assert made["other"].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert made["new-1"].error_code == 0
    assert made["new-1"].topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (made["new-1"].num_partitions, made["new-1"].configs) == (-1, ())
    await allow_only(broker, [*create, allowed(_O.DESCRIBE_CONFIGS, _R.TOPIC, "new-2")])
    request = CreateTopicsRequest((CreatableTopic("new-2", 1, 1),), 10_000)
    (seen,) = (await client.ask(ApiKey.CREATE_TOPICS, request)).topics
    assert (seen.topic_config_error_code, seen.num_partitions) == (0, 1)
    assert seen.configs


async def test_an_older_offset_fetch_has_the_error_at_each_partition(broker: AsyncBroker, client: WireClient) -> None:
    request = OffsetFetchRequest(group_id="g", topics=(OffsetFetchRequestTopic("t", (0, 1)),))
    answer = await client.ask(ApiKey.OFFSET_FETCH, request, 1)
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2


async def test_offsets_that_are_not_told_are_named_once_in_their_order(broker: AsyncBroker, client: WireClient) -> None:
    """Parts of a large request begin and end within a topic, one that is refused or one with an unknown id."""
    await make_topics(broker, client, "open", "secret", "hidden")
    await allow_only(broker, [allowed(_O.DESCRIBE, _R.GROUP), allowed(_O.DESCRIBE, _R.TOPIC, "open")])
    shown, secret, hidden = (broker.node.image.topics[name].topic_id for name in ("open", "secret", "hidden"))
    unknown = [number.to_bytes(16) for number in (1, 2, 3)]
    many = tuple(range(PART_PARTITIONS - 1))
    asked = {unknown[0]: (0,), secret: many[1:], unknown[1]: many, hidden: many, unknown[2]: (0,), shown: (0,)}
    topics = tuple(OffsetFetchRequestTopics(each, partition_indexes=asked[each]) for each in asked)
    request = OffsetFetchRequest((OffsetFetchRequestGroup("g", topics=topics),))
    first, *others = (await client.ask(ApiKey.OFFSET_FETCH, request, 10)).groups[0].topics
    assert (first.topic_id, errors(first)) == (shown, {0})
    told = [(each.topic_id, tuple(one.partition_index for one in each.partitions)) for each in others]
    assert told == list(asked.items())[:-1]
    assert {each.topic_id for each in others if errors(each) == {ErrorCode.UNKNOWN_TOPIC_ID}} == set(unknown)
    assert {each.topic_id for each in others if errors(each) == {_ERRORS[_R.TOPIC]}} == {secret, hidden}


async def test_a_session_of_fetches_notices_that_it_may_no_longer_read(broker: AsyncBroker, client: WireClient) -> None:
    await make_topics(broker, client, "t")
    await allow_only(broker, [allowed(_O.READ, _R.TOPIC, "t")])
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    first = FetchRequest(session_epoch=0, max_bytes=1000, topics=(FetchTopic(topic="t", partitions=(partition,)),))
    opened = await client.ask(ApiKey.FETCH, first, 12)
    assert (opened.session_id > 0, errors(opened)) == (True, {0})
    await allow_only(broker, ())
    again = FetchRequest(session_id=opened.session_id, session_epoch=1, max_bytes=1000, max_wait_ms=60_000)
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in errors(await client.ask(ApiKey.FETCH, again, 12))


async def test_a_transaction_does_not_name_topics_that_may_not_be_described(
    broker: AsyncBroker, client: WireClient
) -> None:
    await make_topics(broker, client, "open", "secret")
    await allow_only(broker, [allowed(_O.WRITE, _R.TRANSACTIONAL_ID), allowed(_O.WRITE, _R.TOPIC)])
    made = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000), 5)
    topics = tuple(AddPartitionsToTxnTopic(name, (0,)) for name in ("open", "secret"))
    added = AddPartitionsToTxnRequest((), "x", made.producer_id, made.producer_epoch, topics)
    assert errors(await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, added, 3)) == {0}
    await allow_only(broker, [allowed(_O.DESCRIBE, _R.TRANSACTIONAL_ID), allowed(_O.READ, _R.TOPIC, "open")])
    (state,) = (await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(("x",)))).transaction_states
    assert (state.error_code, [each.topic for each in state.topics]) == (0, ["open"])


async def test_t14_an_open_transaction_is_not_ended_by_who_may_only_alter_the_cluster(
    broker: AsyncBroker, client: WireClient
) -> None:
    """Who may not describe it takes it for one that hangs; the marker would tear it."""
    await make_topics(broker, client, "t")
    write, describe = allowed(_O.WRITE, _R.TRANSACTIONAL_ID), allowed(_O.DESCRIBE, _R.TRANSACTIONAL_ID)
    await allow_only(broker, [write, allowed(_O.WRITE, _R.TOPIC)])
    made = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000), 5)
    topics = (AddPartitionsToTxnTopic("t", (0,)),)
    added = AddPartitionsToTxnRequest((), "x", made.producer_id, made.producer_epoch, topics)
    assert errors(await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, added, 3)) == {0}

    async def mark(producer_id: int, *acls: Acl) -> set[int]:
        await allow_only(broker, acls)
        marker = WritableTxnMarker(producer_id, made.producer_epoch, False, (WritableTxnMarkerTopic("t", (0,)),))
        return errors(await client.ask(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest((marker,))))

    alter, broker_only = allowed(_O.ALTER, _R.CLUSTER), allowed(_O.CLUSTER_ACTION, _R.CLUSTER)
    for acls in ([alter], [alter, describe], [broker_only]):
        assert await mark(made.producer_id, *acls) == {ErrorCode.INVALID_TXN_STATE}
    other = made.producer_id + 1
    assert await mark(other, alter) == {0}
    next(broker.node.transactions.active()).unload()
    assert await mark(other, alter) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert await mark(other, broker_only) == {0}
    assert await mark(made.producer_id, broker_only, describe) == {0}


async def test_two_phase_commit_needs_an_operation_of_its_own(client: WireClient) -> None:
    settings = {
        **GUARDED,
        "unstable.api.versions.enable": "true",
        "transaction.two.phase.commit.enable": "true",
    }
    async with AsyncBroker(settings) as broker, WireClient(broker) as own:
        assert await broker.node.transactions.ready() is None
        (question,) = (
            each for each in questions("t", "g", "x") if (each.key, each.needs) == (ApiKey.INIT_PRODUCER_ID, (0,))
        )
        message = question.message._replace(enable_2pc=True)  # type: ignore[attr-defined]
        write = allowed(_O.WRITE, _R.TRANSACTIONAL_ID)
        await allow_only(broker, [write])
        answer = await own.ask(question.key, message, 6)
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        await allow_only(broker, [write, allowed(_O.TWO_PHASE_COMMIT, _R.TRANSACTIONAL_ID)])
        assert (await own.ask(question.key, message, 6)).error_code == 0


async def test_the_audit_log_says_who_was_refused_what(
    broker: AsyncBroker, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "ottla.audit"):
        await client.ask(ApiKey.METADATA, MetadataRequest((MetadataRequestTopic(name="t\n"),)))
        await client.ask(ApiKey.METADATA, MetadataRequest(None))
    (line,) = [json.loads(each.getMessage()) for each in caplog.records if each.name == "ottla.audit"]
    assert line.pop("time_ms") > 0
    assert line == {
        "result": "DENIED",
        "principal": "User:ANONYMOUS",
        "host": "127.0.0.1",
        "listener": "PLAINTEXT",
        "client_id": "test",
        "api": "Metadata",
        "operation": "DESCRIBE",
        "resource_type": "TOPIC",
        "resource_name": "t\n",
        "rule": "no ACL allows it",
    }


async def test_the_audit_log_has_what_was_allowed_if_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncBroker({**GUARDED, "audit.log.allowed": "true"}) as broker, WireClient(broker) as client:
        await allow_only(broker, [allowed(_O.DESCRIBE, _R.CLUSTER)])
        with caplog.at_level(logging.INFO, "ottla.audit"):
            await client.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(True))
    lines = [json.loads(each.getMessage()) for each in caplog.records if each.name == "ottla.audit"]
    told = [(each["result"], each["operation"], each["resource_name"], each["rule"]) for each in lines]
    assert told == [("ALLOWED", "DESCRIBE", "kafka-cluster", "an ACL allows it")]


async def test_what_a_right_to_the_cluster_allows_is_told_with_the_name_of_each_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with AsyncBroker({**GUARDED, "audit.log.allowed": "true"}) as broker, WireClient(broker) as client:
        rights = (_O.CREATE, _O.DELETE, _O.IDEMPOTENT_WRITE)
        await allow_only(broker, [allowed(each, _R.CLUSTER) for each in rights])
        with caplog.at_level(logging.INFO, "ottla.audit"):
            topics = tuple(CreatableTopic(name, 1, 1) for name in ("a", "b"))
            await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics))
            await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest((DeleteTopicState("a"),)))
            await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(None, 1))
    lines = [json.loads(each.getMessage()) for each in caplog.records if each.name == "ottla.audit"]
    assert [(each["result"], each["operation"], each["resource_name"]) for each in lines] == [
        ("ALLOWED", "CREATE", "a"),
        ("ALLOWED", "CREATE", "b"),
        ("ALLOWED", "DELETE", "a"),
        ("ALLOWED", "IDEMPOTENT_WRITE", "kafka-cluster"),
    ]


def test_a_need_reads_like_a_sentence() -> None:
    need = Need(_O.CREATE, _R.TOPIC, or_on_cluster=_O.CREATE, left_out=True, when="to make one")
    assert str(need) == "CREATE topic or CREATE cluster (to make one, else left out)"
